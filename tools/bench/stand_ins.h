// SPDX-License-Identifier: Apache-2.0
// Functions that begin as post_send does in builds of rdma-core. They walk the chain, as a driver
// must, and do nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace collwire::bench {

struct Sge {
    std::uint64_t addr;
    std::uint32_t length;
    std::uint32_t lkey;
};
struct WorkRequest { // struct ibv_send_wr
    std::uint64_t wr_id;
    WorkRequest *next;
    Sge *sg_list;
    std::int32_t num_sge;
    std::uint32_t opcode;
    std::uint64_t rest[12];
};
static_assert(sizeof(WorkRequest) == 128);

using PostSend = int (*)(void *qp, WorkRequest *wr, WorkRequest **bad_wr);

struct StandIn {
    const char *begins_with;
    const char *seen_in;
    PostSend function;
    std::size_t probe_offset; // from its start
    const char *probed;       // the instruction there
    bool emulated;            // by the kernel
};

std::span<const StandIn> stand_ins();

} // namespace collwire::bench
