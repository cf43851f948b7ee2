// SPDX-License-Identifier: Apache-2.0
// Functions with the first instructions of post_send in several builds of rdma-core. They walk the
// chain, as a driver must, and do nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace collwire::calibrate {

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
    // Empty: probe where collwire would. A number: probe at this offset from the start, on an
    // instruction that the kernel single-steps.
    std::optional<std::size_t> single_stepped_offset;
};

std::span<const StandIn> stand_ins();

} // namespace collwire::calibrate
