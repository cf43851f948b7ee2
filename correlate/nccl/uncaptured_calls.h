// SPDX-License-Identifier: Apache-2.0
// Calls that were not captured into a CUDA graph, since some rank launched them by themselves. If a
// collective of a group has no network part on a rank, the rank's launch does not name it, and from
// NCCL 2.27 on a launch without any network part is not recorded. The call then looks as one that
// waits for its graph, and only the launch of another rank tells them apart.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

// Whether a call without a launch may be one that was launched, and no other rank's launch says so:
// not each rank of its node was recorded from the creation of the communicator on.
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
