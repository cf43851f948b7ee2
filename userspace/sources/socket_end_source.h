// SPDX-License-Identifier: Apache-2.0
// Tells the source "sockets" of the last counters of NCCL's TCP sockets (bpf/socket_ends.bpf.c).
#pragma once

#include <cstdint>

#include "userspace/sources/probed_source.h"

struct socket_ends; // the skeleton of bpf/socket_ends.bpf.c

namespace collwire::sources {

class SocketEndSource : public ProbedSource<socket_ends> {
public:
    explicit SocketEndSource(const loader::SharedMaps &maps);
    ~SocketEndSource() override;

protected:
    // A change of state that the program missed is no loss by itself: most are of other sockets,
    // and the source "sockets" counts those that end without their last counters.
    [[nodiscard]] std::uint64_t missed() const override { return 0; }

private:
    bool applicable() override { return true; }
    bool configure() override;
};

} // namespace collwire::sources
