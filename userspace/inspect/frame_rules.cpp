// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/frame_rules.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include <elf.h>

namespace collwire::inspect {
namespace {

constexpr std::uint32_t MAX_ENTRIES = 1U << 18U;
constexpr std::uint32_t MAX_RECORD_BYTES = 1U << 16U;
constexpr std::size_t MAX_REMEMBERED = 16;
constexpr unsigned RBP = 6, RSP = 7; // DWARF's numbers of the x86-64 psABI
// Encodings (LSB core, DWARF Exception Header Encoding).
constexpr std::uint8_t PC_RELATIVE_4 = 0x1b, TABLE_RELATIVE_4 = 0x3b, UNSIGNED_4 = 0x03;

template <typename T> std::optional<T> read_as(const ReadMemory &read, std::uint64_t address) {
    T value;
    if (!read(address, std::as_writable_bytes(std::span{&value, 1})))
        return std::nullopt;
    return value;
}

// Reads past the end give 0 and clear is_good.
class Bytes {
public:
    explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
    [[nodiscard]] bool is_good() const { return is_good_; }
    [[nodiscard]] bool at_end() const { return at_ >= bytes_.size() || !is_good_; }
    [[nodiscard]] std::size_t at() const { return at_; }

    template <typename T> T number() {
        T value{};
        if (skip(sizeof(T)))
            std::memcpy(&value, &bytes_[at_ - sizeof(T)], sizeof(T));
        return value;
    }
    std::uint64_t uleb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; is_good_; shift += 7) {
            const auto byte = number<std::uint8_t>();
            if (shift < 64)
                value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
            if ((byte & 0x80U) == 0)
                break;
        }
        return value;
    }
    std::int64_t sleb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; is_good_;) {
            const auto byte = number<std::uint8_t>();
            if (shift < 64)
                value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
            shift += 7;
            if ((byte & 0x80U) == 0) {
                if ((byte & 0x40U) != 0 && shift < 64)
                    value |= ~std::uint64_t{0} << shift;
                break;
            }
        }
        return static_cast<std::int64_t>(value);
    }
    std::string text() {
        std::string value;
        for (auto letter = number<char>(); is_good_ && letter != '\0'; letter = number<char>())
            value += letter;
        return value;
    }
    bool skip(std::uint64_t n) {
        if (!is_good_ || n > bytes_.size() - at_) {
            is_good_ = false;
            return false;
        }
        at_ += n;
        return true;
    }

private:
    std::span<const std::byte> bytes_;
    std::size_t at_ = 0;
    bool is_good_ = true;
};

struct State {
    std::uint64_t cfa_register = RSP;
    std::int64_t cfa_offset = 8;
    bool is_known = true; // else CFA is an expression
    std::optional<std::int64_t> saved_rbp;
    bool is_rbp_known = true;
};

// Runs call frame instructions up to the one for `pc`.
class Machine {
public:
    Machine(std::uint64_t code_unit, std::int64_t data_unit)
        : code_unit_(code_unit), data_unit_(data_unit) {}

    bool run(std::span<const std::byte> program, std::uint64_t begin, std::uint64_t pc) {
        Bytes bytes{program};
        std::uint64_t location = begin;
        while (!bytes.at_end()) {
            const auto opcode = bytes.number<std::uint8_t>();
            const std::uint64_t low = opcode & 0x3fU;
            std::uint64_t advance = 0;
            switch (opcode >> 6U) {
            case 1:
                advance = low;
                break;
            case 2:
                save(low, offset(bytes.uleb()));
                continue;
            case 3:
                restore(low);
                continue;
            default:
                if (!extended(opcode, bytes, advance))
                    return false;
            }
            location += advance * code_unit_;
            if (location > pc)
                return bytes.is_good();
        }
        return bytes.is_good();
    }

    void keep_initial() { initial_ = state_; }
    [[nodiscard]] const State &state() const { return state_; }

private:
    [[nodiscard]] std::int64_t offset(std::uint64_t factor) const {
        return static_cast<std::int64_t>(factor * static_cast<std::uint64_t>(data_unit_));
    }
    [[nodiscard]] std::int64_t signed_offset(std::int64_t factor) const {
        return offset(static_cast<std::uint64_t>(factor));
    }
    void save(std::uint64_t number, std::optional<std::int64_t> at) {
        if (number == RBP) {
            state_.saved_rbp = at;
            state_.is_rbp_known = true;
        }
    }
    void lose(std::uint64_t number) {
        if (number == RBP)
            state_.is_rbp_known = false;
    }
    void restore(std::uint64_t number) {
        if (number == RBP) {
            state_.saved_rbp = initial_.saved_rbp;
            state_.is_rbp_known = initial_.is_rbp_known;
        }
    }
    void define(std::uint64_t number, std::int64_t by) {
        state_.cfa_register = number;
        state_.cfa_offset = by;
        state_.is_known = true;
    }

    // False: an unknown instruction.
    bool extended(std::uint8_t opcode, Bytes &bytes, std::uint64_t &advance) {
        std::uint64_t number = 0;
        switch (opcode) {
        case 0x00: // nop
            break;
        case 0x02:
            advance = bytes.number<std::uint8_t>();
            break;
        case 0x03:
            advance = bytes.number<std::uint16_t>();
            break;
        case 0x04:
            advance = bytes.number<std::uint32_t>();
            break;
        case 0x05: // offset_extended
            number = bytes.uleb();
            save(number, offset(bytes.uleb()));
            break;
        case 0x06: // restore_extended
            restore(bytes.uleb());
            break;
        case 0x07: // undefined
            lose(bytes.uleb());
            break;
        case 0x08: // same_value
            save(bytes.uleb(), std::nullopt);
            break;
        case 0x09: // register
            lose(bytes.uleb());
            bytes.uleb();
            break;
        case 0x0a: // remember_state
            if (remembered_.size() >= MAX_REMEMBERED)
                return false;
            remembered_.push_back(state_);
            break;
        case 0x0b: // restore_state
            if (remembered_.empty())
                return false;
            state_ = remembered_.back();
            remembered_.pop_back();
            break;
        case 0x0c: // def_cfa
            number = bytes.uleb();
            define(number, static_cast<std::int64_t>(bytes.uleb()));
            break;
        case 0x0d: // def_cfa_register
            define(bytes.uleb(), state_.cfa_offset);
            break;
        case 0x0e: // def_cfa_offset
            state_.cfa_offset = static_cast<std::int64_t>(bytes.uleb());
            break;
        case 0x0f: // def_cfa_expression
            state_.is_known = false;
            return bytes.skip(bytes.uleb());
        case 0x10: // expression
        case 0x16: // val_expression
            lose(bytes.uleb());
            return bytes.skip(bytes.uleb());
        case 0x11: // offset_extended_sf
            number = bytes.uleb();
            save(number, signed_offset(bytes.sleb()));
            break;
        case 0x12: // def_cfa_sf
            number = bytes.uleb();
            define(number, signed_offset(bytes.sleb()));
            break;
        case 0x13: // def_cfa_offset_sf
            state_.cfa_offset = signed_offset(bytes.sleb());
            break;
        case 0x2e: // GNU_args_size
            bytes.uleb();
            break;
        default:
            return false;
        }
        return true;
    }

    std::uint64_t code_unit_;
    std::int64_t data_unit_;
    State state_, initial_;
    std::vector<State> remembered_;
};

} // namespace

std::optional<FrameRule> frame_rule(std::span<const std::byte> common,
                                    std::span<const std::byte> frame, std::uint64_t at,
                                    std::uint64_t pc) {
    Bytes shared{common};
    shared.skip(4); // marks a common description
    const auto version = shared.number<std::uint8_t>();
    const std::string augmentation = shared.text();
    if ((version != 1 && version != 3) || !augmentation.starts_with('z'))
        return std::nullopt;
    const std::uint64_t code_unit = shared.uleb();
    const std::int64_t data_unit = shared.sleb();
    if (version == 1)
        shared.skip(1); // the return address's register
    else
        shared.uleb();
    const std::uint64_t augmented_bytes = shared.uleb();
    const std::size_t augmented_at = shared.at();
    if (!shared.is_good() || augmented_bytes > common.size() - augmented_at)
        return std::nullopt;
    Bytes augmented{common.subspan(augmented_at, augmented_bytes)};
    std::uint8_t encoding = 0;
    for (const char letter : augmentation.substr(1)) {
        if (letter == 'R') {
            encoding = augmented.number<std::uint8_t>();
            break;
        }
        if (letter == 'L') {
            augmented.skip(1);
        } else if (letter == 'P') {
            // Its pointer has 4 bytes where it is relative, as in all shared libraries of GCC.
            if ((augmented.number<std::uint8_t>() & 0x0fU) != 0x0bU)
                return std::nullopt;
            augmented.skip(4);
        } else {
            return std::nullopt; // a signal frame, or unknown
        }
    }
    if (!augmented.is_good() || encoding != PC_RELATIVE_4)
        return std::nullopt;
    Bytes own{frame};
    own.skip(4); // where the common description is
    const std::uint64_t field = at + own.at();
    const std::uint64_t begin =
        field + static_cast<std::uint64_t>(std::int64_t{own.number<std::int32_t>()});
    const auto bytes = own.number<std::uint32_t>();
    own.skip(own.uleb());
    if (!own.is_good() || pc < begin || pc - begin >= bytes)
        return std::nullopt;
    Machine machine{code_unit, data_unit};
    if (!machine.run(common.subspan(augmented_at + augmented_bytes), 0, UINT64_MAX))
        return std::nullopt;
    machine.keep_initial();
    if (!machine.run(frame.subspan(own.at()), begin, pc))
        return std::nullopt;
    const State &state = machine.state();
    if (!state.is_known || !state.is_rbp_known ||
        (state.cfa_register != RSP && state.cfa_register != RBP))
        return std::nullopt;
    return FrameRule{state.cfa_register == RBP, state.cfa_offset, state.saved_rbp};
}

FrameRules::FrameRules(ReadMemory read, std::uint64_t header_at) : read_(std::move(read)) {
    const auto header = read_as<Elf64_Ehdr>(read_, header_at);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phentsize != sizeof(Elf64_Phdr))
        return;
    std::optional<std::uint64_t> first, table; // addresses in the file
    for (unsigned i = 0; i < header->e_phnum; ++i) {
        const auto segment =
            read_as<Elf64_Phdr>(read_, header_at + header->e_phoff + i * sizeof(Elf64_Phdr));
        if (segment && segment->p_type == PT_GNU_EH_FRAME)
            table = segment->p_vaddr;
        if (segment && segment->p_type == PT_LOAD && segment->p_offset == 0)
            first = segment->p_vaddr;
    }
    if (first && table)
        table_ = header_at - *first + *table;
    // Version, then the encodings of: the frames' address, the number of entries, the entries.
    const auto head =
        table_ == 0 ? std::nullopt : read_as<std::array<std::uint8_t, 4>>(read_, table_);
    const auto n = read_as<std::uint32_t>(read_, table_ + 8);
    if (!head || !n || (*head)[0] != 1 || (*head)[1] != PC_RELATIVE_4 || (*head)[2] != UNSIGNED_4 ||
        (*head)[3] != TABLE_RELATIVE_4 || *n > MAX_ENTRIES)
        return;
    entries_.resize(*n);
    if (!read_(table_ + 12, std::as_writable_bytes(std::span{entries_})))
        entries_.clear();
}

std::optional<std::vector<std::byte>> FrameRules::record_at(std::uint64_t address) const {
    const auto bytes = read_as<std::uint32_t>(read_, address);
    if (!bytes || *bytes < 8 || *bytes > MAX_RECORD_BYTES)
        return std::nullopt;
    std::vector<std::byte> record(*bytes);
    if (!read_(address + 4, record))
        return std::nullopt;
    return record;
}

std::optional<FrameRule> FrameRules::at(std::uint64_t pc) const {
    const auto relative = static_cast<std::int64_t>(pc - table_);
    const auto after = std::ranges::upper_bound(
        entries_, relative, {}, [](const Entry &entry) { return std::int64_t{entry.function}; });
    if (after == entries_.begin())
        return std::nullopt;
    const std::uint64_t at =
        table_ + static_cast<std::uint64_t>(std::int64_t{std::prev(after)->description});
    const auto frame = record_at(at);
    if (!frame)
        return std::nullopt;
    // How far back its common description is from here.
    std::uint32_t back = 0;
    std::memcpy(&back, frame->data(), sizeof(back));
    const auto common = back == 0 ? std::nullopt : record_at(at + 4 - back);
    return common ? frame_rule(*common, *frame, at + 4, pc) : std::nullopt;
}

} // namespace collwire::inspect
