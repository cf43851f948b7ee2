// SPDX-License-Identifier: Apache-2.0
// Which primitives a channel plays for its part of an operation, in which order.
#pragma once

#include "tests/cuda_double/device_state.h"
#include "tests/cuda_double/primitives.h"
#include "tests/cuda_double/work.h"

namespace collwire::cuda_double {

struct ChannelContext {
    const Communicator &communicator;
    const Channel &channel;
    KernelTruth &truth;
};

// Fatal for an algorithm that has no double.
Phase schedule_collective(const ChannelContext &context, const Collective &collective);
Phase schedule_transfers(const ChannelContext &context, const std::vector<Transfer> &transfers);
Phase schedule_broadcasts(const ChannelContext &context, const Function &function,
                          std::vector<GroupedBroadcast> broadcasts);

// What all schedules of collectives share.
PrimitivesSetup collective_setup(const ChannelContext &context, const Collective &collective);
[[noreturn]] void refuse_function(const Function &function);

// nvls.cpp
Phase schedule_nvls(const ChannelContext &context, const Collective &collective);

// pat.cpp
Phase schedule_pat(const ChannelContext &context, const Collective &collective);

} // namespace collwire::cuda_double
