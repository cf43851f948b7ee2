// SPDX-License-Identifier: Apache-2.0
// What operations wait for, by what was seen of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "correlate/inspect/inspection.h"

namespace collwire::inspect {

// Of one connection. The order in which NCCL's proxy works on steps (sendProxyProgress,
// recvProxyProgress of transport/net.cc, 2.18 to 2.30) decides: a sender's step is posted to the
// GPU, transmitted, done; a receiver's posted to the network, received, transmitted to the GPU,
// done.
[[nodiscard]] Wait wait_of(const Transfer &transfer);

// Fills in `wait` of every transfer.
void judge(Inspection &inspection);

// "gpu", "credit", ...
[[nodiscard]] std::string_view wait_name(Wait wait);
// Nothing of the name: Unknown.
[[nodiscard]] Wait wait_of_name(std::string_view name);

enum class Standing {
    Idle,     // nothing is under way
    Moving,   // something is, and gets on
    Starting, // what is under way was not begun at the first look
    Stopped,  // a thread that NCCL needs is stopped, or the process is
    Proxy,    // the proxy thread could go on, and does not
    Kernel,   // this rank's kernel does not take what is there, or does not give what there is room
              // for
    Peers,    // it waits for others, or for the network between
    Network,  // what it sent is not acknowledged
    Unknown,
};
[[nodiscard]] std::string_view standing_name(Standing standing);

// Others that a proxy's operations wait for.
struct WaitsFor {
    std::int32_t peer = -1;
    std::int32_t channel = -1;
    bool is_send = false;
    Wait wait = Wait::Unknown;
    std::uint64_t connection = 0;
    friend bool operator==(const WaitsFor &, const WaitsFor &) = default;
};

// What a proxy's operations as a whole wait for. A kernel that waits for one peer does not take
// what another one sent: only where nothing in its channel waits for others is it the kernel.
struct ProxyStanding {
    Standing standing = Standing::Idle;
    std::vector<WaitsFor> waits_for;    // of Peers and Network; sorted
    std::vector<std::int32_t> channels; // of Kernel and Proxy; sorted
};
[[nodiscard]] ProxyStanding standing_of(const Proxy &proxy, const Process &process);

// A sentence for people, without an end: "waits for rank 3 (channels 0, 1): nothing arrives".
[[nodiscard]] std::string sentence_of(const ProxyStanding &standing);

} // namespace collwire::inspect
