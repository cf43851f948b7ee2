// SPDX-License-Identifier: Apache-2.0
// A job of two ranks on two nodes, given to the stream record by record.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record_kinds.h"
#include "correlate/stream/world.h"
#include "tests/support/capture_builder.h"

namespace collwire::test {

inline constexpr std::uint64_t S = 1'000'000'000;
inline constexpr std::uint64_t COMM = 0x1000;

inline cw_node node_of(std::uint64_t session, std::uint32_t segment, std::uint64_t time_ns) {
    auto node = make_record<cw_node>(CW_KIND_NODE, time_ns);
    node.session_id = session;
    node.segment = segment;
    node.realtime_ns = time_ns + 1000 * S;
    set_text(node.boot_id, "boot" + std::to_string(session));
    return node;
}

class StreamWorld : public testing::Test {
protected:
    StreamWorld()
        : world_([this](const stream::Communicator &, const stream::Operation &operation) {
              operations_.push_back(operation);
          }) {
        for (std::uint32_t node = 0; node < 2; ++node)
            add(node, node_of(node, 0, S));
    }

    template <typename T> void add(std::size_t node, const T &record) {
        world_.add(node, record.header,
                   std::as_bytes(std::span(&record, 1)).first(record.header.length_bytes));
    }

    void add_comm(std::uint32_t node, std::uint64_t time_ns, std::uint64_t hash = 7) {
        auto comm = make_record<cw_nccl_comm>(CW_KIND_NCCL_COMM, time_ns);
        comm.tgid = node;
        comm.comm = COMM;
        comm.comm_hash = hash;
        comm.rank = static_cast<std::int32_t>(node);
        comm.n_ranks = comm.n_nodes = 2;
        comm.flags = CW_NCCL_COMM_CREATED;
        add(node, comm);
    }
    void end_comm(std::uint32_t node, std::uint64_t time_ns) {
        auto end = make_record<cw_nccl_comm_end>(CW_KIND_NCCL_COMM_END, time_ns);
        end.tgid = node;
        end.comm = COMM;
        add(node, end);
    }
    // The hash of the arguments is the count.
    void call(std::uint32_t node, std::uint64_t time_ns, std::uint32_t count) {
        auto one = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, time_ns);
        one.tgid = one.tid = node;
        one.comm = COMM;
        one.func = CW_NCCL_ALL_REDUCE;
        one.datatype = 7;
        one.count = one.arguments_hash = count;
        add(node, one);
    }
    void launch(std::uint32_t node, std::uint64_t time_ns, std::vector<std::uint32_t> counts,
                std::uint8_t flags = 0, std::uint64_t plan = 1) {
        auto one = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, time_ns);
        one.tgid = one.tid = node;
        one.comm = COMM;
        one.plan = plan;
        one.flags = flags;
        one.n_tasks = static_cast<std::uint16_t>(counts.size());
        for (std::size_t i = 0; i < counts.size(); ++i)
            one.tasks[i] = {counts[i], static_cast<std::uint32_t>(i + 1)};
        add(node, one);
    }
    // By number, of collectives: their calls and launches.
    [[nodiscard]] std::vector<std::pair<std::uint32_t, std::uint32_t>> seen() {
        world_.flush();
        std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
        for (const stream::Operation &operation : operations_) {
            EXPECT_EQ(operation.number, all.size());
            all.emplace_back(operation.calls, operation.launches);
        }
        return all;
    }
    using Seen = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

    std::vector<stream::Operation> operations_;
    stream::World world_;
};

} // namespace collwire::test
