// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/parameters.h"

#include <limits>

namespace collwire::nccl {
namespace {

constexpr std::int64_t NOT_READ_YET = std::numeric_limits<std::int64_t>::min(); // param.h

} // namespace

std::map<std::string, std::int64_t> read_parameters(const process::ProcessView &process,
                                                    const LibraryLayout &layout,
                                                    std::uint64_t bias) {
    std::map<std::string, std::int64_t> values;
    for (const auto &[name, address] : layout.parameters)
        if (const auto value = process.read<std::int64_t>(address + bias);
            value && *value != NOT_READ_YET)
            values.emplace(name, *value);
    return values;
}

} // namespace collwire::nccl
