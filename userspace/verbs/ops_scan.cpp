// SPDX-License-Identifier: Apache-2.0
#include "userspace/verbs/ops_scan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "userspace/verbs/ops_layout.h"

namespace collwire::verbs {
namespace {

constexpr std::uint64_t SLOT_BYTES = 8;
constexpr std::uint64_t OBJECT_ALIGNMENT_BYTES = 32;
// Distance from loading the table's address to the call: other arguments are set up in between.
constexpr std::size_t CALL_WINDOW_BYTES = 64;

// Slots that every driver with post_send fills (all drivers of rdma-core 33 to 65 do).
constexpr std::string_view REQUIRED[] = {
    "alloc_pd",  "create_cq", "create_qp", "dealloc_pd", "dereg_mr",   "destroy_cq", "destroy_qp",
    "modify_qp", "poll_cq",   "post_recv", "post_send",  "query_port", "reg_mr"};

// A driver has both or none.
constexpr std::pair<std::string_view, std::string_view> PAIRS[] = {
    {"alloc_buf", "free_buf"},
    {"alloc_dm", "free_dm"},
    {"alloc_dmah", "dealloc_dmah"},
    {"alloc_mw", "dealloc_mw"},
    {"alloc_td", "dealloc_td"},
    {"attach_mcast", "detach_mcast"},
    {"close_xrcd", "open_xrcd"},
    {"create_ah", "destroy_ah"},
    {"create_comp_cntr", "destroy_comp_cntr"},
    {"create_counters", "destroy_counters"},
    {"create_counters", "read_counters"},
    {"create_flow", "destroy_flow"},
    {"create_rwq_ind_table", "destroy_rwq_ind_table"},
    {"create_srq", "destroy_srq"},
    {"create_srq", "modify_srq"},
    {"create_wq", "destroy_wq"},
    {"import_dm", "unimport_dm"},
    {"import_mr", "unimport_mr"},
    {"import_pd", "unimport_pd"},
    {"query_ece", "set_ece"},
};

std::int32_t displacement_at(std::span<const std::byte> code, std::size_t at) {
    std::int32_t value = 0;
    std::memcpy(&value, code.data() + at, sizeof value);
    return value;
}

bool matches(std::span<const std::byte> code, std::size_t at,
             std::initializer_list<unsigned char> pattern) {
    return at + pattern.size() <= code.size() &&
           std::equal(pattern.begin(), pattern.end(),
                      code.begin() + static_cast<std::ptrdiff_t>(at),
                      [](unsigned char want, std::byte have) { return std::byte{want} == have; });
}

// The addresses that tables are loaded from before a call of verbs_set_ops(context, table).
class CallSites {
public:
    explicit CallSites(const elf::ElfImage &image) : image_(image) {
        for (const elf::ElfPointer &pointer : image.pointers()) {
            if (pointer.symbol == "verbs_set_ops") {
                slots_.insert(pointer.slot);
            }
        }
        if (slots_.empty()) {
            return;
        }
        for (const elf::ElfSegment &segment : image.segments()) {
            if (segment.executable) {
                find_stubs(segment.address, image.bytes_from(segment.address));
            }
        }
        for (const elf::ElfSegment &segment : image.segments()) {
            if (segment.executable) {
                find_calls(segment.address, image.bytes_from(segment.address));
            }
        }
    }

    [[nodiscard]] const std::set<std::uint64_t> &tables() const { return tables_; }

private:
    // Entries of the procedure linkage table: [endbr64] [bnd] jmp *slot(%rip)
    void find_stubs(std::uint64_t address, std::span<const std::byte> code) {
        for (std::size_t at = 0; at + 6 <= code.size(); ++at) {
            if (!matches(code, at, {0xff, 0x25}) || !is_slot(address, code, at)) {
                continue;
            }
            std::size_t begin = at;
            if (begin >= 1 && matches(code, begin - 1, {0xf2})) {
                begin -= 1;
            }
            stubs_.insert(address + begin);
            if (begin >= 4 && matches(code, begin - 4, {0xf3, 0x0f, 0x1e, 0xfa})) {
                stubs_.insert(address + begin - 4);
            }
        }
    }

    void find_calls(std::uint64_t address, std::span<const std::byte> code) {
        for (std::size_t at = 0; at + 7 <= code.size(); ++at) {
            if (!matches(code, at, {0x48, 0x8d, 0x35})) { // lea table(%rip),%rsi
                continue;
            }
            const std::uint64_t table =
                address + at + 7 + static_cast<std::uint64_t>(displacement_at(code, at + 3));
            if (table % SLOT_BYTES == 0 && is_data(table) && calls_soon(address, code, at + 7)) {
                tables_.insert(table);
            }
        }
    }

    [[nodiscard]] bool calls_soon(std::uint64_t address, std::span<const std::byte> code,
                                  std::size_t from) const {
        const std::size_t end = std::min(code.size(), from + CALL_WINDOW_BYTES);
        for (std::size_t at = from; at + 6 <= end; ++at) {
            if (matches(code, at, {0xe8}) || matches(code, at, {0xe9})) {
                const std::uint64_t callee =
                    address + at + 5 + static_cast<std::uint64_t>(displacement_at(code, at + 1));
                if (stubs_.contains(callee)) {
                    return true;
                }
            }
            if ((matches(code, at, {0xff, 0x15}) || matches(code, at, {0xff, 0x25})) &&
                is_slot(address, code, at)) {
                return true;
            }
        }
        return false;
    }

    [[nodiscard]] bool is_slot(std::uint64_t address, std::span<const std::byte> code,
                               std::size_t at) const {
        return slots_.contains(address + at + 6 +
                               static_cast<std::uint64_t>(displacement_at(code, at + 2)));
    }

    [[nodiscard]] bool is_data(std::uint64_t address) const {
        return std::ranges::any_of(image_.segments(), [address](const elf::ElfSegment &segment) {
            return segment.writable && address >= segment.address &&
                   address - segment.address < segment.memory_bytes;
        });
    }

    const elf::ElfImage &image_;
    std::set<std::uint64_t> slots_;
    std::set<std::uint64_t> stubs_;
    std::set<std::uint64_t> tables_;
};

// The slots that tables fill in, or nothing if one of them cannot be a table in this order.
class TableCheck {
public:
    TableCheck(const elf::ElfImage &image, const OpsLayout &layout)
        : image_(image), layout_(layout), filled_(layout.slots.size()) {}

    bool add(std::uint64_t base) {
        std::size_t n_filled = 0;
        for (std::size_t i = 0; i < layout_.slots.size(); ++i) {
            const std::uint64_t slot = base + i * SLOT_BYTES;
            const elf::ElfPointer *pointer = image_.pointer_at(slot);
            if (!pointer) {
                const auto content = image_.bytes_from(slot);
                if (std::ranges::any_of(content.first(std::min(content.size(), SLOT_BYTES)),
                                        [](std::byte byte) { return byte != std::byte{0}; })) {
                    return false;
                }
                continue;
            }
            if (!can_be(*pointer, layout_.slots[i])) {
                return false;
            }
            filled_[i] = true;
            ++n_filled;
            if (layout_.slots[i] == "post_send") {
                if (pointer->target == 0) {
                    return false;
                }
                post_send_.insert(pointer->target);
            }
        }
        // A table that continues without a gap after its last slot has a longer layout, unless
        // another object starts right there: compilers align large ones to 32 bytes.
        const std::uint64_t end = base + layout_.slots.size() * SLOT_BYTES;
        const elf::ElfPointer *after = image_.pointer_at(end);
        return n_filled != layout_.slots.size() || !after || !image_.is_code(after->target) ||
               end % OBJECT_ALIGNMENT_BYTES == 0;
    }

    [[nodiscard]] bool complete() const {
        const auto has = [this](std::string_view name) {
            const auto index = layout_.index(name);
            return index && filled_[*index];
        };
        return std::ranges::all_of(REQUIRED, has) && std::ranges::all_of(PAIRS, [&](auto &pair) {
                   return has(pair.first) == has(pair.second);
               });
    }

    [[nodiscard]] const std::set<std::uint64_t> &post_send() const { return post_send_; }

private:
    // libibverbs' own commands have the name of their slot.
    [[nodiscard]] bool can_be(const elf::ElfPointer &pointer, std::string_view slot) const {
        constexpr std::string_view COMMAND = "ibv_cmd_";
        if (pointer.symbol.starts_with(COMMAND)) {
            return pointer.symbol.substr(COMMAND.size()) == slot;
        }
        return pointer.target == 0 ? !pointer.symbol.empty() : image_.is_code(pointer.target);
    }

    const elf::ElfImage &image_;
    const OpsLayout &layout_;
    std::vector<bool> filled_;
    std::set<std::uint64_t> post_send_;
};

struct Answer {
    std::set<std::uint64_t> post_send;
    std::vector<std::string> releases;
};

void note(std::vector<Answer> &answers, const std::set<std::uint64_t> &post_send,
          const OpsLayout &layout) {
    for (Answer &answer : answers) {
        if (answer.post_send == post_send) {
            if (answer.releases.back() != layout.releases) {
                answer.releases.push_back(layout.releases);
            }
            return;
        }
    }
    answers.push_back({post_send, {layout.releases}});
}

void try_layout(const elf::ElfImage &image, const std::set<std::uint64_t> &tables,
                const OpsLayout &layout, std::vector<Answer> &answers) {
    TableCheck check{image, layout};
    std::optional<std::uint64_t> previous;
    for (const std::uint64_t base : tables) {
        if ((previous && base - *previous < layout.slots.size() * SLOT_BYTES) || !check.add(base)) {
            return;
        }
        previous = base;
    }
    if (check.complete()) {
        note(answers, check.post_send(), layout);
    }
}

// Without a call site: every place that could be a whole table.
void try_everywhere(const elf::ElfImage &image, const OpsLayout &layout,
                    std::vector<Answer> &answers) {
    const std::uint64_t first = *layout.index(REQUIRED[0]) * SLOT_BYTES;
    for (const elf::ElfPointer &pointer : image.pointers()) {
        if (pointer.slot < first || pointer.slot < image.relro_begin() ||
            pointer.slot >= image.relro_end()) {
            continue;
        }
        const std::uint64_t base = pointer.slot - first;
        const bool possible = std::ranges::all_of(REQUIRED, [&](std::string_view name) {
            return image.pointer_at(base + *layout.index(name) * SLOT_BYTES) != nullptr;
        });
        if (!possible) {
            continue;
        }
        TableCheck check{image, layout};
        if (check.add(base) && check.complete()) {
            note(answers, check.post_send(), layout);
        }
    }
}

} // namespace

Result<PostSendFunctions> find_post_send(const elf::ElfImage &image) {
    const CallSites sites{image};
    std::vector<Answer> answers;
    for (const OpsLayout &layout : ops_layouts()) {
        if (!layout.possible_in(image.private_abi())) {
            continue;
        }
        if (sites.tables().empty()) {
            try_everywhere(image, layout, answers);
        } else {
            try_layout(image, sites.tables(), layout, answers);
        }
    }
    if (answers.empty()) {
        return error(ErrorKind::Unsupported,
                     "no table of verbs functions in a known order; post_send will be found in a "
                     "process that uses the library");
    }
    if (answers.size() > 1) {
        return error(ErrorKind::Unsupported,
                     fmt::format("{} candidate tables of verbs functions; post_send will be found "
                                 "in a process that uses the library",
                                 answers.size()));
    }
    const Answer &answer = answers.front();
    PostSendFunctions found;
    found.addresses.assign(answer.post_send.begin(), answer.post_send.end());
    found.evidence = fmt::format("{}, order of rdma-core {}",
                                 sites.tables().empty() ? "table found by content"
                                                        : "table passed to verbs_set_ops()",
                                 fmt::join(answer.releases, " or "));
    return found;
}

} // namespace collwire::verbs
