// SPDX-License-Identifier: Apache-2.0
// Which queue pairs that the kernel lists are a process's.
#include <latch>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "userspace/inspect/endpoints.h"

namespace collwire::test {
namespace {

using inspect::Endpoint;
using inspect::QueuePairs;

netlink::NetlinkQp made_by(std::optional<std::uint32_t> tid, std::uint32_t number) {
    netlink::NetlinkQp qp;
    qp.lqpn = number;
    qp.pid = tid;
    qp.state = 3; // RTS
    qp.port = 1;
    qp.rqpn = number + 100;
    return qp;
}

Endpoint described(const QueuePairs &queue_pairs, std::uint32_t number) {
    Endpoint endpoint;
    endpoint.number = number;
    queue_pairs.describe(static_cast<std::uint32_t>(getpid()), endpoint);
    return endpoint;
}

constexpr std::uint32_t SOMEBODY_ELSE = 1;

// RDMA netlink names the thread, not its process.
TEST(QueuePairs, QueuePairsOfAThreadAreFound) {
    std::latch known{1}, done{1};
    pid_t tid = 0;
    std::thread other{[&] {
        tid = gettid();
        known.count_down();
        done.wait();
    }};
    known.wait();
    QueuePairs queue_pairs;
    queue_pairs.add("mlx5_0", made_by(static_cast<std::uint32_t>(tid), 30));
    queue_pairs.add("mlx5_1", made_by(SOMEBODY_ELSE, 30));
    queue_pairs.add("mlx5_1", made_by(SOMEBODY_ELSE, 31));
    const Endpoint own = described(queue_pairs, 30), none = described(queue_pairs, 31);
    done.count_down();
    other.join();
    EXPECT_EQ(own.device, "mlx5_0");
    EXPECT_EQ(own.state, "RTS");
    EXPECT_EQ(own.port, 1U);
    EXPECT_EQ(own.remote_qpn, 130U);
    EXPECT_EQ(none.device, "");
}

TEST(QueuePairs, QueuePairWithoutACreatorMatchesUnlessAmbiguous) {
    QueuePairs queue_pairs;
    queue_pairs.add("mlx5_0", made_by(std::nullopt, 30));
    EXPECT_EQ(described(queue_pairs, 30).device, "mlx5_0");
    // Or it is that one.
    queue_pairs.add("mlx5_1", made_by(static_cast<std::uint32_t>(getpid()), 30));
    EXPECT_EQ(described(queue_pairs, 30).device, "");
}

TEST(QueuePairs, OfTheKernel) {
    QueuePairs queue_pairs;
    netlink::NetlinkQp qp = made_by(std::nullopt, 1);
    qp.kernel_name = "ib_core";
    queue_pairs.add("mlx5_0", qp);
    EXPECT_EQ(described(queue_pairs, 1).device, "");
}

} // namespace
} // namespace collwire::test
