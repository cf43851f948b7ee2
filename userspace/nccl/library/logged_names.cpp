// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/library/logged_names.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace collwire::nccl {
namespace {

constexpr std::size_t MOST_BYTES_OF_TEXTS = 16UL << 20; // 2.32 has 0.3 MiB
constexpr std::size_t MOST_BYTES_OF_CODE = 64UL << 20;  // and 2 MiB

// Addresses of the texts that are one of these.
std::map<std::uint64_t, std::string_view> texts_of(const LibraryFile &file,
                                                   std::span<const std::string_view> names) {
    std::map<std::uint64_t, std::string_view> texts;
    const elf::CodeRange data = file.read_only_data();
    const auto bytes = file.code().bytes_from(data.begin);
    const std::string_view all{
        reinterpret_cast<const char *>(bytes.data()),
        std::min({bytes.size(), static_cast<std::size_t>(data.bytes), MOST_BYTES_OF_TEXTS})};
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = all.find('\0', at);
        if (end == std::string_view::npos)
            break;
        const auto name = std::ranges::lower_bound(names, all.substr(at, end - at));
        if (name != names.end() && *name == all.substr(at, end - at))
            texts.emplace(data.begin + at, *name);
        at = end + 1;
    }
    return texts;
}

// Calls `visit` with all code, a segment at a time, and its address.
template <typename Visit> void for_all_code(const elf::CodeView &code, Visit visit) {
    std::size_t left = MOST_BYTES_OF_CODE;
    for (const elf::ElfSegment &segment : code.segments()) {
        if (!segment.executable)
            continue;
        auto bytes = code.bytes_from(segment.address);
        bytes = bytes.first(std::min(bytes.size(), left));
        left -= bytes.size();
        visit(bytes, segment.address);
    }
}

// The target of an instruction that ends at `end`, by its last 4 bytes.
std::uint64_t relative(std::span<const std::byte> code, std::size_t at, std::uint64_t end) {
    std::int32_t distance = 0;
    std::memcpy(&distance, code.data() + at, sizeof distance);
    return end + static_cast<std::uint64_t>(std::int64_t{distance});
}

// "lea X(%rip), %reg": REX.W, 8d, mod 00 and r/m 101 ("Intel 64 and IA-32 Architectures Software
// Developer's Manual", volume 2, LEA).
constexpr std::size_t LEA_BYTES = 7;
bool is_lea(std::span<const std::byte> code, std::size_t at) {
    const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(code[at + i]); };
    return (byte(0) & 0xfbU) == 0x48U && byte(1) == 0x8dU && (byte(2) & 0xc7U) == 0x05U;
}

constexpr std::size_t CALL_BYTES = 5;
constexpr std::byte CALL{0xe8};

} // namespace

LoggedNames::LoggedNames(const LibraryFile &file, std::span<const std::string_view> names)
    : file_(file), starts_(file.function_starts()) {
    find_users(names);
    look_who_calls();
}

elf::CodeRange LoggedNames::function_at(std::uint64_t address) const {
    const auto next = std::ranges::upper_bound(starts_, address);
    if (next == starts_.begin() || next == starts_.end())
        return {};
    return {*std::prev(next), *next - *std::prev(next)};
}

void LoggedNames::find_users(std::span<const std::string_view> names) {
    const auto texts = texts_of(file_, names);
    std::set<std::pair<std::string_view, std::uint64_t>> known;
    for_all_code(file_.code(), [&](std::span<const std::byte> code, std::uint64_t begin) {
        for (std::size_t at = 0; at + LEA_BYTES <= code.size(); ++at) {
            if (!is_lea(code, at))
                continue;
            const auto text = texts.find(relative(code, at + 3, begin + at + LEA_BYTES));
            if (text == texts.end())
                continue;
            const elf::CodeRange function = function_at(begin + at);
            if (function.bytes != 0 && known.emplace(text->second, function.begin).second)
                functions_.emplace(text->second,
                                   LoggingFunction{function.begin, function.bytes, false});
        }
    });
}

void LoggedNames::look_who_calls() {
    std::set<std::uint64_t> wanted, called, taken;
    for (const auto &[name, function] : functions_)
        wanted.insert(function.begin);
    for (const auto &[at, to] : file_.pointers())
        if (wanted.contains(to))
            taken.insert(to);
    for_all_code(file_.code(), [&](std::span<const std::byte> code, std::uint64_t begin) {
        for (std::size_t at = 0; at + LEA_BYTES <= code.size(); ++at) {
            if (code[at] == CALL) {
                const std::uint64_t to = relative(code, at + 1, begin + at + CALL_BYTES);
                if (wanted.contains(to))
                    called.insert(to);
            } else if (is_lea(code, at)) {
                const std::uint64_t to = relative(code, at + 3, begin + at + LEA_BYTES);
                if (wanted.contains(to))
                    taken.insert(to);
            }
        }
    });
    for (auto &[name, function] : functions_) {
        function.is_called = called.contains(function.begin);
        function.is_entered = function.is_called || taken.contains(function.begin);
    }
}

const LoggingFunction *LoggedNames::find(std::string_view name) const {
    const auto [begin, end] = functions_.equal_range(name);
    const LoggingFunction *only = nullptr;
    for (auto at = begin; at != end; ++at) {
        const bool is_another = std::ranges::any_of(functions_, [&](const auto &other) {
            return other.first != name && other.second.begin == at->second.begin &&
                   functions_.count(other.first) == 1;
        });
        if (!at->second.is_entered || (std::next(begin) != end && is_another))
            continue;
        if (only != nullptr)
            return nullptr;
        only = &at->second;
    }
    return only;
}

} // namespace collwire::nccl
