// SPDX-License-Identifier: Apache-2.0
// What each capability needs from an NCCL library, and what is optional.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "userspace/elf/disassembler.h"

namespace collwire::nccl {

enum class Need {
    Exact,    // without it the capability is not `exact`
    Optional, // reported as missing, and lowers nothing: not every version has it
};

// Names of one thing in different versions, separated by '|'. The first one that exists counts.
struct FieldRecipe {
    std::string_view names; // "type.field|type.field"
    Need need = Need::Exact;
};
struct FunctionRecipe {
    std::string_view names;
    Need need = Need::Exact;
    unsigned registers = elf::ARGUMENT_1; // which its BPF program reads
    bool part_will_do = false;            // if only the split-off part is a function
};
struct DataRecipe {
    std::string_view names;
    Need need = Need::Exact;
};

struct CapabilityRecipe {
    std::string_view name;
    std::span<const FunctionRecipe> functions;
    std::span<const DataRecipe> data;
    std::span<const FieldRecipe> fields;
};

// communicators, operations, connections, bytes, graphs, errors, inspect, times: in this order.
std::span<const CapabilityRecipe> capability_recipes();

// Nothing is recorded if one of them is missing.
inline constexpr std::array<std::string_view, 4> NEEDED_FUNCTIONS{
    "ncclCommInitRankFunc", "commCleanup", "ncclEnqueueCheck", "ncclProxyStart"};

// Functions that a thread may wait in for long, found by return addresses on its stack.
std::span<const std::string_view> host_functions();

// Ends of the names of the units that define the types. In 2.18 to 2.32 each type of a recipe is
// complete in one of them. coll_net.cc is left out: it has other types with the same names.
std::span<const std::string_view> units_of_types();

// The enumerations that are part of a layout, by the common prefix of their enumerators.
std::span<const std::string_view> enumerator_prefixes();

} // namespace collwire::nccl
