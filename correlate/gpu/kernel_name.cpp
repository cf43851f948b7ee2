// SPDX-License-Identifier: Apache-2.0
#include "correlate/gpu/kernel_name.h"

#include <array>
#include <utility>

#include "collwire/nccl_launch_records.h"

namespace collwire::gpu {

namespace {

// Longer names first: one is the beginning of another.
constexpr std::array<std::pair<std::string_view, std::uint8_t>, 8> FUNCTIONS = {{
    {"AllGatherV", CW_NCCL_ALL_GATHER_V},
    {"AllGather", CW_NCCL_ALL_GATHER},
    {"AllReduce", CW_NCCL_ALL_REDUCE},
    {"AlltoAll", CW_NCCL_ALL_TO_ALL},
    {"Broadcast", CW_NCCL_BROADCAST},
    {"ReduceScatter", CW_NCCL_REDUCE_SCATTER},
    {"Reduce", CW_NCCL_REDUCE},
    {"SendRecv", CW_NCCL_SEND_RECV},
}};

constexpr std::array<std::string_view, 4> PREFIXES = {"ncclDevKernel_", "ncclSymkDevKernel_",
                                                      "ncclSymDevKernel_", "ncclKernel_"};

std::string_view without_mangling(std::string_view name) {
    if (!name.starts_with("_Z"))
        return name;
    name.remove_prefix(2);
    while (!name.empty() && name.front() >= '0' && name.front() <= '9')
        name.remove_prefix(1);
    return name;
}

} // namespace

KernelName kernel_name_of(std::string_view name) {
    name = without_mangling(name);
    for (const std::string_view prefix : PREFIXES) {
        if (!name.starts_with(prefix))
            continue;
        name.remove_prefix(prefix.size());
        for (const auto &[function, func] : FUNCTIONS)
            if (name.starts_with(function))
                return {func, true};
        return {CW_NCCL_FUNC_UNKNOWN, name.starts_with("Generic")};
    }
    return {};
}

} // namespace collwire::gpu
