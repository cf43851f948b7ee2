// SPDX-License-Identifier: Apache-2.0
// What operations wait for, concluded from the two samples of an inspection.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "correlate/inspect/inspection.h"

namespace collwire::inspect {

// For one connection. Follows the order in which NCCL's proxy works on steps (sendProxyProgress,
// recvProxyProgress of transport/net.cc, 2.18 to 2.30): a sender's step is posted to the GPU,
// transmitted, done; a receiver's is posted to the network, received, transmitted to the GPU, done.
[[nodiscard]] Wait wait_of(const Transfer &transfer);

// Fills in `wait` of every transfer.
void judge(Inspection &inspection);

// "gpu", "credit", ...
[[nodiscard]] std::string_view wait_name(Wait wait);
// Unknown for an unknown name.
[[nodiscard]] Wait wait_of_name(std::string_view name);

// "start", "root", ...
[[nodiscard]] std::string_view phase_name(Phase phase);
// Unknown for an unknown name.
[[nodiscard]] Phase phase_of_name(std::string_view name);
// "waits for rank 3, which has not reported to the bootstrap": what the making of a communicator
// waits for, without a full stop.
[[nodiscard]] std::string sentence_of(const UnreadyComm &comm);

enum class Standing {
    Idle,     // no operation is in flight
    Moving,   // operations make progress
    Starting, // the operations in flight had not started at the first sample
    Stopped,  // a thread that NCCL needs is stopped, or the process is
    Proxy,    // the proxy thread has work to do and does not do it
    Kernel,   // this rank's kernel does not take received data, or does not fill a free buffer
    Peers,    // waits for other ranks, or for the network between
    Network,  // sent data is not acknowledged
    Unknown,
};
[[nodiscard]] std::string_view standing_name(Standing standing);

// A rank that a proxy's operations wait for.
struct WaitsFor {
    std::int32_t peer = -1;
    std::int32_t channel = -1;
    bool is_send = false;
    Wait wait = Wait::Unknown;
    std::uint64_t connection = 0;
    friend bool operator==(const WaitsFor &, const WaitsFor &) = default;
};

// What a proxy's operations as a whole wait for. A kernel that waits for one peer does not take
// another one's data: the kernel is the cause only if nothing on its channel waits for others.
struct ProxyStanding {
    Standing standing = Standing::Idle;
    std::vector<WaitsFor> waits_for;    // for Peers and Network; sorted
    std::vector<std::int32_t> channels; // for Kernel and Proxy; sorted
};
[[nodiscard]] ProxyStanding standing_of(const Proxy &proxy, const Process &process);

// A sentence for people, without a full stop: "waits for rank 3: no data arrives from it (channels
// 0, 1)".
[[nodiscard]] std::string sentence_of(const ProxyStanding &standing);

} // namespace collwire::inspect
