// SPDX-License-Identifier: Apache-2.0
// Communicators of which calls alone were recorded: whose queue pairs are, and which of their bytes
// are of which operation.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"
#include "tests/support/nccl_model.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

// Of each pair of queue pairs; in no sum where it is known which end sends.
constexpr std::uint64_t CONTROL_BYTES = 40;

constexpr std::array<std::uint64_t, 2> HASHES{0x1111, 0x2222};
constexpr std::array<std::uint32_t, 2> SERVICE_TIDS{1001, 1002}; // of each communicator

// Three ranks, each on a node: all are in the first communicator, ranks 0 and 1 in the second, too.
// In the first rank i sends to i + 1, in the second 0 to 1.
struct CallsOnly {
    std::vector<NodeBuilder> nodes;
    std::vector<NcclBuilder> first, second;
    bool were_there = false;
    bool is_one_thread = false;
    bool has_rival = false;   // what rank 1 sends in the first is made by another thread
    bool are_callers = false; // the threads that make them
    bool are_alike = false;   // both communicators have ranks 0 and 1 alone
    bool are_seen_made = false;

    CallsOnly() {
        nodes.reserve(3);
        for (std::uint32_t i = 0; i < 3; ++i) {
            nodes.emplace_back(NodeOptions{.hostname = "node" + std::to_string(i),
                                           .session_id = i + 1,
                                           .flags = NCCL_NODE_FLAGS});
            nodes[i].usual(static_cast<std::uint8_t>(i + 1));
        }
    }

    [[nodiscard]] RankOptions rank(std::uint32_t i, std::size_t comm) const {
        return {.pid = 100 + i,
                .comm = 0xc0de0000 + 0x1000 * comm,
                .hash = HASHES[comm],
                .rank = static_cast<std::int32_t>(i),
                .n_ranks = comm == 0 && !are_alike ? 3 : 2,
                .created = 11.5 + static_cast<double>(comm),
                .flags = CW_NCCL_COMM_CALLS_ONLY |
                         (are_seen_made ? std::uint32_t{CW_NCCL_COMM_CREATED} : 0U),
                .parent = is_one_thread && comm == 1 ? std::uint64_t{0xc0de0000} : 0U};
    }
    [[nodiscard]] QpOptions qp(std::uint32_t from, std::uint32_t to, std::size_t comm,
                               bool send) const {
        const std::uint32_t number =
            20 + 8 * (3 * from + to) + 2 * static_cast<std::uint32_t>(comm);
        const std::uint32_t own = send ? from : to;
        return {.qpn = number + (send ? 0 : 1),
                .created = 11 + static_cast<double>(comm),
                .local = static_cast<std::uint8_t>(own + 1),
                .remote = static_cast<std::uint8_t>((send ? to : from) + 1),
                .remote_qpn = number + (send ? 1 : 0),
                .pid = 100 + own,
                .tid = tid_of(own, send, comm)};
    }
    [[nodiscard]] std::uint32_t tid_of(std::uint32_t own, bool send, std::size_t comm) const {
        if (are_callers)
            return CallOptions{}.tid;
        if (has_rival && own == 1 && send)
            return 1003;
        return is_one_thread ? 1000 : SERVICE_TIDS[comm];
    }
    using Pair = std::tuple<std::uint32_t, std::uint32_t, std::size_t>; // from, to, communicator
    static constexpr std::array<Pair, 4> PAIRS{{{0, 1, 0}, {1, 2, 0}, {2, 0, 0}, {0, 1, 1}}};

    void build() {
        for (std::uint32_t i = 0; i < 3; ++i)
            for (std::size_t comm = i == 2 && are_alike ? 1 : 0; comm < (i == 2 ? 1U : 2U);
                 ++comm) {
                std::vector<NcclBuilder> &all = comm == 0 ? first : second;
                all.emplace_back(nodes[i], rank(i, comm));
                all.back().comm();
            }
        for (const auto &[from, to, comm] : PAIRS)
            for (const bool send : {true, false}) {
                if (are_alike && (from == 2 || to == 2))
                    continue;
                const QpOptions options = qp(from, to, comm, send);
                NodeBuilder &node = nodes[send ? from : to];
                if (!were_there) {
                    node.qp(options);
                    continue;
                }
                cw_qp_event event =
                    NodeBuilder::connect_event(options, CW_KIND_QP_EXISTING, options.created);
                event.flags |= CW_QP_PREEXISTING;
                node.add(event);
            }
    }
    // What each connection had sent by then.
    void sample(double time, const std::array<std::uint64_t, 4> &bytes) {
        for (std::size_t i = 0; i < PAIRS.size(); ++i) {
            const auto &[from, to, comm] = PAIRS[i];
            if (are_alike && (from == 2 || to == 2))
                continue;
            const Frames data{.requests = 1 + bytes[i] / 1000, .request_payload = bytes[i]};
            const Frames control{.requests = 1, .request_payload = CONTROL_BYTES};
            nodes[from].wire(qp(from, to, comm, true), time, data, control);
            nodes[to].wire(qp(from, to, comm, false), time, control, data);
        }
    }
    void call(double time, std::size_t comm, const CallOptions &call) {
        for (NcclBuilder &rank : comm == 0 ? first : second)
            rank.call(time, call);
    }
    model::Model run() {
        // What is still there at the end has something on its way.
        for (std::vector<NcclBuilder> *all : {&first, &second})
            for (NcclBuilder &rank : *all)
                rank.end(29);
        std::vector<std::vector<std::byte>> captures;
        for (NodeBuilder &node : nodes)
            captures.push_back(node.clock(30).end().bytes());
        return model_of(std::move(captures));
    }
};

const CallOptions GATHER{.func = CW_NCCL_ALL_GATHER, .count = 1000};
const CallOptions REDUCE{.func = CW_NCCL_ALL_REDUCE, .count = 500};
const CallOptions SEND{.func = CW_NCCL_SEND, .count = 250, .root = 1};
const CallOptions RECEIVE{.func = CW_NCCL_RECV, .count = 250, .root = 0};

// Bytes of each communicator, by sender and receiver.
std::map<std::tuple<std::uint64_t, int, int>, std::uint64_t> matrix_of(const model::Model &model) {
    std::map<std::tuple<std::uint64_t, int, int>, std::uint64_t> bytes;
    for (const auto &[key, cell] : model.nccl.matrix)
        bytes[{model.nccl.communicators[key.comm].hash, key.source, key.destination}] +=
            cell.payload_bytes;
    return bytes;
}

// Two of each, one after the other, each at rest before the next.
void run_twice(CallsOnly &job) {
    job.build();
    std::array<std::uint64_t, 4> sent{};
    double time = 14;
    for (int i = 0; i < 2; ++i)
        for (const int what : {0, 1, 2}) {
            job.call(time, what == 1 ? 1 : 0, what == 2 ? REDUCE : GATHER);
            for (std::size_t pair = 0; pair < sent.size(); ++pair)
                if ((what == 1) == (pair == 3))
                    sent[pair] += what == 0 ? 4000 + 1000 * pair : what == 1 ? 700 : 100;
            job.sample(time + 1, sent);
            time += 2.5;
        }
}

TEST(NcclCallsOnly, EachThreadCreatesOneCommunicatorsQueuePairs) {
    CallsOnly job;
    run_twice(job);
    const model::Model model = job.run();
    EXPECT_EQ(matrix_of(model), (std::map<std::tuple<std::uint64_t, int, int>, std::uint64_t>{
                                    {{HASHES[0], 0, 1}, 8200},
                                    {{HASHES[0], 1, 2}, 10200},
                                    {{HASHES[0], 2, 0}, 12200},
                                    {{HASHES[1], 0, 1}, 1400}}));
    EXPECT_EQ(of_rung(model, Rung::Inferred), 32000U);
    EXPECT_EQ(of_rung(model, Rung::Exact), 0U);
    EXPECT_EQ(of_rung(model, Rung::Process), 0U);
    EXPECT_EQ(model.nccl.totals.confirmed_bytes, 32000U);
    ASSERT_EQ(model.nccl.collectives.size(), 6U);
    for (const Operation &operation : model.nccl.collectives) {
        const bool is_second = model.nccl.communicators[operation.comm].hash == HASHES[1];
        EXPECT_EQ(operation.payload_bytes, is_second                              ? 700U
                                           : operation.func == CW_NCCL_ALL_REDUCE ? 300U
                                                                                  : 15000U);
        EXPECT_EQ(operation.rung, Rung::Inferred);
        EXPECT_EQ(operation.has(OPERATION_PARTIAL), is_second)
            << "where rank 1 sends to in the second one is not known";
        EXPECT_FALSE(operation.has(OPERATION_LAUNCHED)) << "that was not recorded";
        EXPECT_EQ(operation.begin_realtime_ns, 0U);
        EXPECT_EQ(operation.n_channels, 0U);
        EXPECT_EQ(operation.algorithm, CW_NCCL_ALGORITHM_UNKNOWN);
    }
    expect_same_in_parts(model);
}

// Of calls that always come together no more is known than their communicator.
TEST(NcclCallsOnly, AmbiguousBytesBelongToNoOperation) {
    CallsOnly job;
    job.build();
    for (int i = 1; i <= 2; ++i) {
        job.call(11 + 3 * i, 0, GATHER);
        job.call(11.1 + 3 * i, 0, REDUCE);
        const auto n = static_cast<std::uint64_t>(i);
        job.sample(12.5 + 3 * i, {4000 * n, 5000 * n, 6000 * n, 0});
    }
    const model::Model model = job.run();
    EXPECT_EQ(of_rung(model, Rung::Process), 30000U + CONTROL_BYTES);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
    EXPECT_EQ(matrix_of(model).at({HASHES[0], 1, 2}), 10000U);
    for (const Operation &operation : model.nccl.collectives) {
        EXPECT_FALSE(operation.has(OPERATION_PAYLOAD_KNOWN)) << "not measured is never 0";
        EXPECT_EQ(operation.rung, Rung::Process);
    }
}

// Where the making was not seen only the other end shows it, and ranks 0 and 1 have two
// communicators in common. What had been called before may come late: no operation has bytes.
TEST(NcclCallsOnly, PreexistingQueuePairsFollowTheirOtherEnd) {
    CallsOnly job;
    job.were_there = true;
    run_twice(job);
    const model::Model model = job.run();
    const auto matrix = matrix_of(model);
    EXPECT_FALSE(matrix.contains({HASHES[0], 0, 1}));
    EXPECT_FALSE(matrix.contains({HASHES[1], 0, 1}));
    EXPECT_EQ(matrix.at({HASHES[0], 1, 2}), 10200U);
    EXPECT_EQ(matrix.at({HASHES[0], 2, 0}), 12200U);
    EXPECT_EQ(of_rung(model, Rung::Process), 32000U + 2 * CONTROL_BYTES);
    for (const Operation &operation : model.nccl.collectives)
        EXPECT_FALSE(operation.has(OPERATION_PAYLOAD_KNOWN));
}

// As one that was split off and shares its parent's connections.
TEST(NcclCallsOnly, CommunicatorWithoutQueuePairsSharesOthers) {
    CallsOnly job;
    job.is_one_thread = true;
    run_twice(job);
    const model::Model model = job.run();
    const auto matrix = matrix_of(model);
    EXPECT_EQ(matrix.at({HASHES[0], 0, 1}), 8200U);
    EXPECT_EQ(matrix.at({HASHES[1], 0, 1}), 1400U);
    EXPECT_EQ(of_rung(model, Rung::Inferred), 32000U);
}

// Of the same ranks, whose queue pairs were made while each of them was.
TEST(NcclCallsOnly, OrderSeparatesEqualCommunicators) {
    for (const bool are_seen : {true, false}) {
        CallsOnly job;
        job.are_alike = true;
        job.are_seen_made = are_seen;
        run_twice(job);
        const model::Model model = job.run();
        const auto matrix = matrix_of(model);
        if (!are_seen) {
            EXPECT_TRUE(matrix.empty()) << "the order is not known";
            continue;
        }
        EXPECT_EQ(matrix.at({HASHES[0], 0, 1}), 8200U);
        EXPECT_EQ(matrix.at({HASHES[1], 0, 1}), 1400U);
        EXPECT_EQ(of_rung(model, Rung::Inferred), 9600U);
    }
}

// Two threads that may be one communicator's proxy: one of them is something else's.
TEST(NcclCallsOnly, RivalsAreLeftOut) {
    CallsOnly job;
    job.has_rival = true;
    run_twice(job);
    const model::Model model = job.run();
    EXPECT_FALSE(matrix_of(model).contains({HASHES[0], 1, 2}));
    for (const Operation &operation : model.nccl.collectives)
        if (model.nccl.communicators[operation.comm].hash == HASHES[0]) {
            EXPECT_TRUE(operation.has(OPERATION_PARTIAL));
        }
}

// What a thread made that calls NCCL is no proxy's.
TEST(NcclCallsOnly, QueuePairsOfCallingThreadsBelongToTheApplication) {
    CallsOnly job;
    job.are_callers = true;
    run_twice(job);
    const model::Model model = job.run();
    EXPECT_TRUE(matrix_of(model).empty());
    EXPECT_EQ(of_rung(model, Rung::Process), 32000U + 4 * CONTROL_BYTES);
}

// As much as a clear-to-send has: which end sends is not known.
TEST(NcclCallsOnly, SmallMessagesHaveNoDirection) {
    CallsOnly job;
    job.build();
    job.call(14, 0, GATHER);
    job.sample(16, {200, 200, 200, 0}); // in four frames
    const model::Model model = job.run();
    EXPECT_TRUE(matrix_of(model).empty());
    for (const Operation &operation : model.nccl.collectives)
        EXPECT_FALSE(operation.has(OPERATION_PAYLOAD_KNOWN));
}

TEST(NcclCallsOnly, ASendGoesToItsPeer) {
    CallsOnly job;
    job.build();
    for (int i = 1; i <= 2; ++i) {
        job.second[0].call(11 + 3 * i, SEND);
        job.second[1].call(11 + 3 * i, RECEIVE);
        job.sample(12.5 + 3 * i, {0, 0, 0, 1000 * static_cast<std::uint64_t>(i)});
    }
    const model::Model model = job.run();
    ASSERT_EQ(model.nccl.p2p.size(), 2U);
    for (const Operation &send : model.nccl.p2p) {
        EXPECT_EQ(send.payload_bytes, 1000U);
        EXPECT_EQ(send.rung, Rung::Inferred);
        EXPECT_FALSE(send.has(OPERATION_PARTIAL));
    }
}

// Other ranks' sends go over this one's proxy, too (PXN): one's, or seven's.
TEST(NcclCallsOnly, SendsOfOthersMakeThisRanksSendsUnknown) {
    for (const std::uint64_t ranks : {2U, 8U}) {
        CallsOnly job;
        job.build();
        const CallOptions send{.func = CW_NCCL_SEND, .count = 5000, .root = 1};
        const CallOptions receive{.func = CW_NCCL_RECV, .count = 5000, .root = 0};
        for (int i = 1; i <= 2; ++i) {
            job.second[0].call(11 + 3 * i, send);
            job.second[1].call(11 + 3 * i, receive);
            job.sample(12.5 + 3 * i, {0, 0, 0, 20'000 * ranks * static_cast<std::uint64_t>(i)});
        }
        const model::Model model = job.run();
        for (const Operation &operation : model.nccl.p2p)
            EXPECT_FALSE(operation.has(OPERATION_PAYLOAD_KNOWN));
        EXPECT_EQ(of_rung(model, Rung::Process), 40'000 * ranks + 3 * CONTROL_BYTES);
    }
}

// A graph is played after each call: what it sends was not called for, at another time or at the
// same one.
TEST(NcclCallsOnly, GraphReplaysAreNotCalls) {
    for (const bool is_at_once : {true, false}) {
        CallsOnly job;
        job.build();
        std::uint64_t sent = 0;
        double time = 13;
        const auto rest = [&](std::uint64_t bytes) {
            sent += bytes;
            job.sample(time + 0.5, {sent, sent, sent, 0});
            time += 2;
        };
        // Eager steps, then one call and a replay of the other one each.
        for (int i = 0; i < 2; ++i) {
            job.call(time, 0, GATHER);
            job.call(time + 0.1, 0, REDUCE);
            rest(8000 + 2000);
        }
        for (int i = 0; i < 3; ++i) {
            job.call(time, 0, REDUCE);
            if (!is_at_once)
                rest(2000);
            rest(is_at_once ? 8000 + 2000 : 8000);
        }
        const model::Model model = job.run();
        EXPECT_EQ(of_rung(model, Rung::Inferred), 0U);
        EXPECT_EQ(of_rung(model, Rung::Process), 3 * sent + CONTROL_BYTES);
    }
}

} // namespace
} // namespace collwire::nccl
