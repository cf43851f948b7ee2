// SPDX-License-Identifier: Apache-2.0
// What collwire needs to know of an NCCL to have a capability, and what it does without.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "userspace/elf/disassembler.h"

namespace collwire::nccl {

enum class Need {
    Exact,    // without it the capability is not `exact`
    Optional, // told as missing, lowers nothing: not every version keeps it
};

// Names of one thing in different versions, '|' between them, the first that is there counts.
struct FieldRecipe {
    std::string_view names; // "type.field|type.field"
    Need need = Need::Exact;
};
struct FunctionRecipe {
    std::string_view names;
    Need need = Need::Exact;
    unsigned registers = ARGUMENT_1; // that its probe's program reads
    bool part_will_do = false;       // where only the split-off part is a function
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

// Without any of them it is not known what happens when: nothing is recorded.
inline constexpr std::array<std::string_view, 4> NEEDED_FUNCTIONS{
    "ncclCommInitRankFunc", "commCleanup", "ncclEnqueueCheck", "ncclProxyStart"};

// Ends of the names of the units that define the types. Every type of a recipe is complete in one
// of them in 2.18 to 2.32; coll_net.cc, which has types of the same names, is none of them.
std::span<const std::string_view> units_of_types();

// The enumerations that are part of a layout, by how their enumerators begin.
std::span<const std::string_view> enumerator_prefixes();

} // namespace collwire::nccl
