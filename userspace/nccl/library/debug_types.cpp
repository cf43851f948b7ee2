// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/library/debug_types.h"

#include <algorithm>

#include <dwarf.h>

namespace collwire::nccl {
namespace {

// Against files that are made to be read without end.
constexpr unsigned MAX_DEPTH = 16;
constexpr std::size_t MAX_MEMBERS = 1u << 20;

std::string_view name_of(Dwarf_Die &die) {
    const char *name = dwarf_diename(&die);
    return name == nullptr ? std::string_view{} : std::string_view{name};
}

bool is_record(int tag) {
    return tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
}

// The type without typedefs and qualifiers.
std::optional<Dwarf_Die> type_of(Dwarf_Die &die) {
    Dwarf_Attribute attribute;
    Dwarf_Die type;
    Dwarf_Die peeled;
    if (dwarf_attr_integrate(&die, DW_AT_type, &attribute) == nullptr ||
        dwarf_formref_die(&attribute, &type) == nullptr || dwarf_peel_type(&type, &peeled) != 0)
        return std::nullopt;
    return peeled;
}

std::optional<std::uint64_t> offset_of_member(Dwarf_Die &member) {
    Dwarf_Attribute attribute;
    Dwarf_Word offset = 0;
    if (dwarf_attr(&member, DW_AT_data_member_location, &attribute) == nullptr)
        return 0; // of a union, or a bit field without a place of its own
    if (dwarf_formudata(&attribute, &offset) != 0)
        return std::nullopt;
    return offset;
}

std::optional<std::uint64_t> number_of(Dwarf_Die &die, unsigned name) {
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (dwarf_attr(&die, name, &attribute) == nullptr || dwarf_formudata(&attribute, &value) != 0)
        return std::nullopt;
    return value;
}

bool is_bit_field(Dwarf_Die &member) {
    return dwarf_hasattr(&member, DW_AT_bit_size) != 0;
}

// Of a bit field, if it is whole bytes of its record.
std::optional<FieldLayout> bytes_of_bit_field(Dwarf_Die &member, std::uint64_t type_bytes) {
    const auto n_bits = number_of(member, DW_AT_bit_size);
    auto first_bit = number_of(member, DW_AT_data_bit_offset);
    // Until DWARF 4 it counts from the most significant bit of the storage unit.
    const auto from_above = number_of(member, DW_AT_bit_offset);
    const auto offset = offset_of_member(member);
    if (!first_bit && from_above && offset && n_bits) {
        const std::uint64_t shared_bits =
            8 * number_of(member, DW_AT_byte_size).value_or(type_bytes);
        if (*from_above + *n_bits > shared_bits)
            return std::nullopt;
        first_bit = *offset * 8 + shared_bits - *from_above - *n_bits;
    }
    if (!first_bit || !n_bits || *n_bits == 0 || *first_bit % 8 != 0 || *n_bits % 8 != 0)
        return std::nullopt;
    return FieldLayout{*first_bit / 8, *n_bits / 8, 0};
}

std::uint64_t elements_of(Dwarf_Die &type) {
    Dwarf_Die child;
    if (dwarf_tag(&type) != DW_TAG_array_type || dwarf_child(&type, &child) != 0)
        return 0;
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (dwarf_tag(&child) != DW_TAG_subrange_type)
        return 0;
    if (dwarf_attr(&child, DW_AT_count, &attribute) != nullptr)
        return dwarf_formudata(&attribute, &value) == 0 ? value : 0;
    if (dwarf_attr(&child, DW_AT_upper_bound, &attribute) == nullptr ||
        dwarf_formudata(&attribute, &value) != 0)
        return 0;
    return value + 1; // 0 of ~0: an array without bounds
}

std::uint64_t size_of(Dwarf_Die &type) {
    Dwarf_Word bytes = 0;
    return dwarf_aggregate_size(&type, &bytes) == 0 ? bytes : 0;
}

// Reads the wanted fields of one record.
class RecordReader {
public:
    RecordReader(std::span<const std::string> fields, std::size_t &budget)
        : fields_(fields), budget_(budget) {}

    Layouts read(Dwarf_Die &record, std::string_view type) {
        Layouts found;
        found.emplace(type, FieldLayout{0, size_of(record), 0});
        members(record, std::string{type} + '.', 0, MAX_DEPTH, found);
        return found;
    }

private:
    // Fields below `prefix`, which ends with a dot.
    void members(Dwarf_Die &record, const std::string &prefix, std::uint64_t at, unsigned depth,
                 Layouts &found) {
        Dwarf_Die member;
        if (depth == 0 || dwarf_child(&record, &member) != 0)
            return;
        do {
            const int tag = dwarf_tag(&member);
            if (tag != DW_TAG_member && tag != DW_TAG_inheritance)
                continue;
            if (budget_ == 0)
                return;
            --budget_;
            const std::string_view name = name_of(member);
            const bool transparent = name.empty() || tag == DW_TAG_inheritance;
            const std::string full = transparent ? prefix : prefix + std::string{name};
            const auto wanted = transparent ? Wanted{false, true} : look_up(full);
            if (!wanted.itself && !wanted.inside)
                continue;
            auto type = type_of(member);
            if (type && is_bit_field(member)) {
                if (auto bytes = bytes_of_bit_field(member, size_of(*type));
                    bytes && wanted.itself) {
                    bytes->offset_bytes += at;
                    found.emplace(full, *bytes);
                }
                continue;
            }
            const auto offset = offset_of_member(member);
            if (!type || !offset)
                continue;
            if (wanted.itself)
                found.emplace(full, FieldLayout{at + *offset, size_of(*type), elements_of(*type)});
            if (wanted.inside && is_record(dwarf_tag(&*type)))
                members(*type, transparent ? prefix : full + '.', at + *offset, depth - 1, found);
        } while (dwarf_siblingof(&member, &member) == 0);
    }

    struct Wanted {
        bool itself = false;
        bool inside = false;
    };
    [[nodiscard]] Wanted look_up(const std::string &full) const {
        const auto at = std::ranges::lower_bound(fields_, full);
        Wanted wanted;
        wanted.itself = at != fields_.end() && *at == full;
        const std::string dotted = full + '.';
        const auto inside = std::ranges::lower_bound(fields_, dotted);
        wanted.inside = inside != fields_.end() && inside->starts_with(dotted);
        return wanted;
    }

    std::span<const std::string> fields_;
    std::size_t &budget_;
};

void add_enumerators(Dwarf_Die &enumeration, std::span<const std::string_view> prefixes,
                     DebugTypes &types) {
    Dwarf_Die child;
    if (dwarf_child(&enumeration, &child) != 0)
        return;
    const std::string_view first = name_of(child);
    if (std::ranges::none_of(prefixes,
                             [&](std::string_view prefix) { return first.starts_with(prefix); }))
        return;
    do {
        Dwarf_Attribute attribute;
        Dwarf_Sword value = 0;
        if (dwarf_tag(&child) == DW_TAG_enumerator &&
            dwarf_attr(&child, DW_AT_const_value, &attribute) != nullptr &&
            dwarf_formsdata(&attribute, &value) == 0)
            types.enumerators.emplace(name_of(child), value);
    } while (dwarf_siblingof(&child, &child) == 0);
}

// The DIE of the function whose code begins at `entry`, and that of its unit.
struct Function {
    Dwarf_Die unit;
    Dwarf_Die die;
};
std::optional<Function> function_at(Dwarf *dwarf, std::uint64_t entry) {
    Function found;
    if (dwarf_addrdie(dwarf, entry, &found.unit) == nullptr ||
        dwarf_child(&found.unit, &found.die) != 0)
        return std::nullopt;
    do {
        Dwarf_Addr low = 0;
        if (dwarf_tag(&found.die) == DW_TAG_subprogram && dwarf_lowpc(&found.die, &low) == 0 &&
            low == entry)
            return found;
    } while (dwarf_siblingof(&found.die, &found.die) == 0);
    return std::nullopt;
}

std::optional<unsigned> register_at(Dwarf_Die &variable, std::uint64_t pc) {
    Dwarf_Attribute attribute;
    Dwarf_Op *operations = nullptr;
    std::size_t n = 0;
    if (dwarf_attr_integrate(&variable, DW_AT_location, &attribute) == nullptr ||
        dwarf_getlocation_addr(&attribute, pc, &operations, &n, 1) != 1 || n != 1)
        return std::nullopt;
    if (operations[0].atom >= DW_OP_reg0 && operations[0].atom <= DW_OP_reg31)
        return operations[0].atom - DW_OP_reg0;
    return std::nullopt;
}

std::optional<unsigned> parameter_of(Dwarf_Die &scope, std::string_view parameter,
                                     std::uint64_t pc) {
    Dwarf_Die child;
    if (dwarf_child(&scope, &child) != 0)
        return std::nullopt;
    do {
        if (dwarf_tag(&child) == DW_TAG_formal_parameter && name_of(child) == parameter)
            return register_at(child, pc);
    } while (dwarf_siblingof(&child, &child) == 0);
    return std::nullopt;
}

bool calls(Dwarf_Die &site, std::string_view callee) {
    Dwarf_Attribute attribute;
    Dwarf_Die origin;
    for (const unsigned name : {unsigned{DW_AT_abstract_origin}, unsigned{DW_AT_call_origin}})
        if (dwarf_attr(&site, name, &attribute) != nullptr &&
            dwarf_formref_die(&attribute, &origin) != nullptr)
            return name_of(origin) == callee;
    return false;
}

// Return addresses of the calls of `callee` in a function; and, if asked for, the starts of its
// inlined copies.
enum class Copies { Left, Taken };
void add_return_addresses(Dwarf_Die &parent, std::string_view callee, unsigned depth,
                          std::vector<std::uint64_t> &addresses, Copies copies = Copies::Left) {
    Dwarf_Die child;
    if (depth == 0 || dwarf_child(&parent, &child) != 0)
        return;
    do {
        const int tag = dwarf_tag(&child);
        if (tag == DW_TAG_GNU_call_site || tag == DW_TAG_call_site) {
            Dwarf_Addr after = 0;
            Dwarf_Attribute attribute;
            const bool placed = dwarf_lowpc(&child, &after) == 0 ||
                                (dwarf_attr(&child, DW_AT_call_return_pc, &attribute) != nullptr &&
                                 dwarf_formaddr(&attribute, &after) == 0);
            if (placed && calls(child, callee))
                addresses.push_back(after);
        } else if (Dwarf_Addr entry = 0;
                   copies == Copies::Taken && tag == DW_TAG_inlined_subroutine &&
                   name_of(child) == callee && dwarf_entrypc(&child, &entry) == 0) {
            addresses.push_back(entry);
        } else if (tag == DW_TAG_lexical_block || tag == DW_TAG_inlined_subroutine) {
            add_return_addresses(child, callee, depth - 1, addresses, copies);
        }
    } while (dwarf_siblingof(&child, &child) == 0);
}

// From the innermost scope outwards: the compiler may have inlined the function into itself.
std::optional<unsigned> parameter_in_scopes(Dwarf_Die &unit, std::string_view parameter,
                                            std::uint64_t pc) {
    Dwarf_Die *scopes = nullptr;
    const int n = dwarf_getscopes(&unit, pc - 1, &scopes);
    std::optional<unsigned> found;
    for (int i = 0; i < n && !found; ++i)
        found = parameter_of(scopes[i], parameter, pc);
    free(scopes);
    return found;
}

} // namespace

std::optional<DebugInfo> DebugInfo::open(Elf *elf) {
    Dwarf *dwarf = dwarf_begin_elf(elf, DWARF_C_READ, nullptr);
    if (dwarf == nullptr)
        return std::nullopt;
    return DebugInfo{dwarf};
}

DebugTypes DebugInfo::types(std::span<const std::string> fields,
                            std::span<const std::string_view> units,
                            std::span<const std::string_view> prefixes) const {
    std::set<std::string_view> wanted;
    for (const std::string &field : fields)
        wanted.insert(std::string_view{field}.substr(0, field.find('.')));
    DebugTypes types;
    std::size_t budget = MAX_MEMBERS;
    std::map<std::string_view, Layouts> by_type;
    Dwarf_CU *cu = nullptr;
    Dwarf_Die unit;
    while (dwarf_get_units(dwarf_.get(), cu, &cu, nullptr, nullptr, &unit, nullptr) == 0) {
        const std::string_view unit_name = name_of(unit);
        Dwarf_Die die;
        if (std::ranges::none_of(units,
                                 [&](std::string_view end) { return unit_name.ends_with(end); }) ||
            dwarf_child(&unit, &die) != 0)
            continue;
        do {
            const int tag = dwarf_tag(&die);
            if (tag == DW_TAG_enumeration_type) {
                add_enumerators(die, prefixes, types);
                continue;
            }
            if (!is_record(tag) || dwarf_hasattr(&die, DW_AT_declaration))
                continue;
            const auto type = wanted.find(name_of(die));
            if (type == wanted.end() || types.ambiguous.contains(*type))
                continue;
            Layouts layouts = RecordReader{fields, budget}.read(die, *type);
            const auto [known, is_new] = by_type.try_emplace(*type, layouts);
            if (!is_new && known->second != layouts)
                types.ambiguous.emplace(*type);
        } while (dwarf_siblingof(&die, &die) == 0);
    }
    for (auto &[type, layouts] : by_type)
        if (!types.ambiguous.contains(type))
            types.layouts.merge(layouts);
    return types;
}

std::optional<unsigned> DebugInfo::parameter_at_entry(std::uint64_t entry,
                                                      std::string_view parameter) const {
    auto function = function_at(dwarf_.get(), entry);
    if (!function)
        return std::nullopt;
    return parameter_of(function->die, parameter, entry);
}

std::optional<unsigned> DebugInfo::parameter_at_call(std::uint64_t caller, std::string_view callee,
                                                     std::string_view parameter) const {
    auto function = function_at(dwarf_.get(), caller);
    if (!function)
        return std::nullopt;
    std::vector<std::uint64_t> addresses;
    add_return_addresses(function->die, callee, MAX_DEPTH, addresses);
    std::optional<unsigned> common;
    for (const std::uint64_t pc : addresses) {
        const auto here = parameter_in_scopes(function->unit, parameter, pc);
        if (!here || (common && *common != *here))
            return std::nullopt;
        common = here;
    }
    return common;
}

std::vector<DebugInfo::Passing> DebugInfo::passings_of(std::uint64_t callee) const {
    std::vector<Passing> all;
    auto function = function_at(dwarf_.get(), callee);
    if (!function)
        return all;
    const std::string_view name = name_of(function->die);
    Dwarf_Die &die = function->die;
    if (dwarf_child(&function->unit, &die) != 0)
        return all;
    do {
        Passing passing;
        Dwarf_Addr entry = 0;
        if (dwarf_tag(&die) != DW_TAG_subprogram || dwarf_entrypc(&die, &entry) != 0)
            continue;
        passing.function = name_of(die);
        passing.entry = entry;
        if (Dwarf_Addr end = 0; dwarf_highpc(&die, &end) == 0 && end > entry)
            passing.bytes = end - entry;
        std::vector<std::uint64_t> addresses;
        add_return_addresses(die, name, MAX_DEPTH, addresses, Copies::Taken);
        for (const std::uint64_t address : addresses) {
            passing.address = address;
            all.push_back(passing);
        }
    } while (dwarf_siblingof(&die, &die) == 0);
    return all;
}

} // namespace collwire::nccl
