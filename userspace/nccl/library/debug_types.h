// SPDX-License-Identifier: Apache-2.0
// Reads DWARF: the fields of types, enumerators, and the registers that hold parameters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <elfutils/libdw.h>

namespace collwire::nccl {

struct FieldLayout {
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0; // 0: unknown
    std::uint64_t elements = 0;   // of an array; 0: not one, or of unknown length

    friend bool operator==(const FieldLayout &, const FieldLayout &) = default;
};

// "type.field" or "type.field.field", and "type" for its size (offset 0). Fields of anonymous
// members and of base classes are fields of the type itself.
using Layouts = std::map<std::string, FieldLayout, std::less<>>;

struct DebugTypes {
    Layouts layouts;
    std::map<std::string, std::int64_t, std::less<>> enumerators;
    // Types that differ between two units: `layouts` has none of them.
    std::set<std::string, std::less<>> ambiguous;
};

class DebugInfo {
public:
    // Empty if the file has no readable DWARF. `elf` must live longer.
    static std::optional<DebugInfo> open(Elf *elf);

    // `fields`: sorted "type.field...". Only units whose name ends in one of `units` are opened.
    // Enumerators: all of every enumeration whose enumerators begin with one of `prefixes`.
    [[nodiscard]] DebugTypes types(std::span<const std::string> fields,
                                   std::span<const std::string_view> units,
                                   std::span<const std::string_view> prefixes) const;

    // The DWARF register number that holds a parameter of the function at `entry` at its first
    // instruction.
    [[nodiscard]] std::optional<unsigned> parameter_at_entry(std::uint64_t entry,
                                                             std::string_view parameter) const;

    // The register where the function at `caller` keeps its parameter while it calls `callee`.
    // Empty if there is no such call, if the parameter is in memory, or if two calls differ.
    [[nodiscard]] std::optional<unsigned> parameter_at_call(std::uint64_t caller,
                                                            std::string_view callee,
                                                            std::string_view parameter) const;

    // In the unit of the function at `callee`: where other functions enter an inlined copy of it,
    // or return from a call of it.
    struct Passing {
        std::string_view function; // that it is in
        std::uint64_t entry = 0;   // of that
        std::uint64_t bytes = 0;   // of its code; 0: it is in several parts
        std::uint64_t address = 0;
    };
    [[nodiscard]] std::vector<Passing> passings_of(std::uint64_t callee) const;

private:
    struct Closer {
        void operator()(Dwarf *dwarf) const { dwarf_end(dwarf); }
    };
    explicit DebugInfo(Dwarf *dwarf) : dwarf_(dwarf) {}

    std::unique_ptr<Dwarf, Closer> dwarf_;
};

} // namespace collwire::nccl
