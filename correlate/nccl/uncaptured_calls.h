// SPDX-License-Identifier: Apache-2.0
// Calls that were not captured into a CUDA graph, since some rank launched them by themselves. From
// NCCL 2.27 on a launch without a network part is not recorded. The call then looks as one that
// waits for its graph, and only the launch of another rank tells them apart.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// From this version on.
constexpr std::uint32_t FIRST_WITHOUT_LOCAL_LAUNCHES = 22700;

// Whether a call without a launch may be one that was launched, and no other rank's launch says so:
// launches without a network part are not recorded, and neither is each rank of its node from the
// creation of the communicator on.
[[nodiscard]] bool may_lack_launches(const NcclFacts &nccl, const Instance &instance);

class UncapturedCalls {
public:
    // `call`: in the stream of that index.
    void note(const NcclFacts &nccl, Index stream, std::uint32_t call);
    // What is noted of a collective's call holds for all ranks that were recorded from the creation
    // of the communicator: their calls are in the same order.
    void share(const NcclFacts &nccl, const Communicator &comm);
    [[nodiscard]] bool contains(Index stream, std::uint32_t call) const;

private:
    std::unordered_map<Index, std::vector<bool>> calls_; // by stream; empty: none
};

} // namespace collwire::nccl
