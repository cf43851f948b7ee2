// SPDX-License-Identifier: Apache-2.0
// Posts the requests of a round, by ibv_post_send or by ibv_wr_*, and counts what it posted: the
// truth a tracer is held to.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tests/lab/programs/traffic_plan.h"

namespace collwire::lab {

struct ClassCount {
    uint64_t wrs = 0;
    uint64_t bytes = 0; // 8 for each atomic
    uint64_t zero_length_wrs = 0;
};

struct PostCounts {
    std::map<std::string, ClassCount> classes; // by class_name()
    uint64_t post_calls = 0;                   // ibv_post_send, or ibv_wr_start ... ibv_wr_complete
    uint64_t aborted_wrs = 0;                  // built, then given up by ibv_wr_abort: never posted
    uint64_t refused_wrs = 0; // the last of a chain that the provider refused: never posted

    void add(const PostCounts &other);
};
void to_json(nlohmann::json &json, const PostCounts &counts);

// Slot i of a queue pair's buffer holds what request i reads or writes. The room before the data
// takes a UD message's GRH.
struct SlotLayout {
    static constexpr uint32_t headroom_bytes = 64;
    uint32_t stride_bytes = 0;

    static SlotLayout for_messages(uint32_t max_length_bytes);
    [[nodiscard]] uint64_t data_at(uint64_t base, uint32_t slot) const {
        return base + uint64_t{slot} * stride_bytes + headroom_bytes;
    }
};

struct PostTarget {
    ibv_qp *qp = nullptr;
    uint64_t local_base = 0;
    uint32_t lkey = 0;
    uint64_t remote_base = 0;
    uint32_t rkey = 0;
    SlotLayout layout;
    ibv_ah *address = nullptr; // UD only, like the next
    uint32_t remote_qpn = 0;
};

struct PostStyle {
    bool extended = false; // ibv_wr_*
    uint32_t chain = 8;    // work requests a call
    uint32_t abort_every =
        0; // ibv_wr_*: before every n-th call, build the same requests and give them up; 0: never
    uint32_t refuse_every =
        0; // ibv_post_send: end every n-th chain with a request that the provider refuses; 0: never
};

// Posts all requests; the last one alone is signaled, with `wr_id` = its slot.
Result<void> post_round(const PostTarget &target, std::span<const Request> requests,
                        const PostStyle &style, PostCounts &counts);

} // namespace collwire::lab
