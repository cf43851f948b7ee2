// SPDX-License-Identifier: Apache-2.0
// What operations wait for, by NCCL's counters and buffers.
#include <gtest/gtest.h>

#include "correlate/inspect/waits.h"
#include "tests/support/inspection_builder.h"

namespace collwire::test {
namespace {

using inspect::Endpoint;
using inspect::Progress;
using inspect::Slot;
using inspect::Standing;
using inspect::Transfer;
using inspect::Wait;
using inspect::wait_of;

constexpr Progress ALL_OUT{16, 0, 8, 8}; // a sender's: eight slots given to the GPU

TEST(Waits, NameEveryWait) {
    for (const Wait wait : {Wait::Done, Wait::Queued, Wait::Moving, Wait::Gpu, Wait::Credit,
                            Wait::Sender, Wait::Network, Wait::Flush, Wait::Proxy, Wait::Unknown})
        EXPECT_EQ(inspect::wait_of_name(inspect::wait_name(wait)), wait);
}

TEST(Waits, SenderWaitsForItsKernel) {
    EXPECT_EQ(wait_of(send_to(0, 1, ALL_OUT, Slot::Empty)), Wait::Gpu);
    EXPECT_EQ(wait_of(send_to(0, 1, ALL_OUT, Slot::Partial)), Wait::Gpu);
}

TEST(Waits, SenderWaitsForCredit) {
    EXPECT_EQ(wait_of(send_to(0, 1, ALL_OUT, Slot::Filled)), Wait::Credit);
    Transfer has_credit = send_to(0, 1, ALL_OUT, Slot::Filled);
    has_credit.has_credit = true;
    EXPECT_EQ(wait_of(has_credit), Wait::Proxy);
}

TEST(Waits, SenderWaitsForTheNetwork) {
    EXPECT_EQ(wait_of(send_to(0, 1, {16, 0, 12, 8}, Slot::Filled)), Wait::Network);
}

TEST(Waits, SenderWithFreeSlotsWaitsForItsProxy) {
    EXPECT_EQ(wait_of(send_to(0, 1, {12, 0, 8, 8}, Slot::Empty)), Wait::Proxy);
}

TEST(Waits, UnreadableStateIsUnknown) {
    EXPECT_EQ(wait_of(send_to(0, 1, ALL_OUT, Slot::Unknown)), Wait::Unknown);
    Transfer receive = receive_from(0, 1, {16, 16, 16, 8});
    receive.taken.reset();
    EXPECT_EQ(wait_of(receive), Wait::Unknown);
}

TEST(Waits, PeerThatDoesNotReadIsAWaitForCredit) {
    Transfer transfer = send_to(0, 1, {16, 0, 12, 8}, Slot::Filled);
    Endpoint socket;
    socket.is_socket = true;
    socket.unsent_bytes = 100'000;
    socket.unacked_segments = 0;
    socket.acked_bytes = 0;
    transfer.endpoints = {socket};
    EXPECT_EQ(wait_of(transfer), Wait::Credit);
    transfer.endpoints[0].unacked_segments = 3;
    EXPECT_EQ(wait_of(transfer), Wait::Network);
    transfer.endpoints[0].acked_bytes = 1000;
    EXPECT_EQ(wait_of(transfer), Wait::Moving);
}

// NCCL takes a step for done that TCP has taken, and waits for the next.
TEST(Waits, UnacknowledgedTcpDataIsANetworkWait) {
    Transfer transfer = send_to(0, 1, ALL_OUT, Slot::Empty);
    Endpoint socket;
    socket.is_socket = true;
    socket.unsent_bytes = 180'000;
    Endpoint other = socket;
    other.unacked_segments = 0;
    other.acked_bytes = 70'000;
    transfer.endpoints = {other, socket};
    Endpoint &lost = transfer.endpoints[1];
    EXPECT_EQ(wait_of(transfer), Wait::Gpu) << "it could not be read";
    lost.unacked_segments = 11;
    lost.acked_bytes = 0;
    lost.timeouts = 0;
    EXPECT_EQ(wait_of(transfer), Wait::Gpu) << "perhaps it is only late";
    lost.timeouts = 1;
    EXPECT_EQ(wait_of(transfer), Wait::Network) << "whatever becomes of the other socket";
    lost.acked_bytes = 1;
    EXPECT_EQ(wait_of(transfer), Wait::Gpu) << "it gets on";
    lost.acked_bytes.reset();
    EXPECT_EQ(wait_of(transfer), Wait::Gpu) << "it is not known";
    lost.acked_bytes = 0;
    lost.unacked_segments = 0;
    EXPECT_EQ(wait_of(transfer), Wait::Gpu) << "the peer does not read";
}

TEST(Waits, UnreadableSocketsAreUnknown) {
    Transfer transfer = send_to(0, 1, {16, 0, 12, 8}, Slot::Filled);
    transfer.endpoints.emplace_back();
    transfer.endpoints[0].is_socket = true;
    EXPECT_EQ(wait_of(transfer), Wait::Unknown);
}

TEST(Waits, ReceiverIntoUserMemoryWaitsForItsKernel) {
    Transfer receive = receive_from(0, 1, {});
    EXPECT_EQ(wait_of(receive), Wait::Proxy);
    receive.is_kernel_there = false;
    EXPECT_EQ(wait_of(receive), Wait::Gpu);
}

TEST(Waits, ReceiverWaits) {
    EXPECT_EQ(wait_of(receive_from(0, 1, {16, 8, 8, 8}, 8)), Wait::Sender);
    EXPECT_EQ(wait_of(receive_from(0, 1, {16, 16, 8, 8}, 8)), Wait::Flush);
    EXPECT_EQ(wait_of(receive_from(0, 1, {16, 16, 16, 8}, 8)), Wait::Gpu);
    EXPECT_EQ(wait_of(receive_from(0, 1, {16, 16, 16, 8}, 12)), Wait::Proxy);
    EXPECT_EQ(wait_of(receive_from(0, 1, {16, 12, 12, 8}, 8)), Wait::Gpu); // whatever is to come
    Transfer unread = receive_from(0, 1, {16, 8, 8, 8}, 8);
    Endpoint socket;
    socket.is_socket = true;
    socket.unread_bytes = 4;
    unread.endpoints = {socket};
    EXPECT_EQ(wait_of(unread), Wait::Proxy);
}

TEST(Waits, ChangedCountersMeanMoving) {
    Transfer moved = send_to(0, 1, ALL_OUT);
    moved.first.done = 4;
    EXPECT_EQ(wait_of(moved), Wait::Moving);
    Transfer begun = send_to(0, 1, ALL_OUT);
    begun.was_there = false;
    EXPECT_EQ(wait_of(begun), Wait::Moving);
    Transfer done = send_to(0, 1, {48, 0, 48, 48});
    EXPECT_EQ(wait_of(done), Wait::Done);
}

inspect::ProxyStanding standing_of(const inspect::Inspection &inspection) {
    const inspect::Process &process = inspection.processes.front();
    return inspect::standing_of(process.proxies.front(), process);
}

TEST(Standing, KernelThatWaitsForAPeerIsNotTheCause) {
    const auto standing = standing_of(one_rank(
        1, 4, 17, {all_reduce({send_to(1, 2, ALL_OUT), receive_from(1, 0, {16, 8, 8, 8}, 8)})}));
    EXPECT_EQ(standing.standing, Standing::Peers);
    ASSERT_EQ(standing.waits_for.size(), 1U);
    EXPECT_EQ(standing.waits_for[0].peer, 0);
    EXPECT_EQ(standing.waits_for[0].wait, Wait::Sender);
    EXPECT_EQ(inspect::sentence_of(standing),
              "waits for rank 0: no data arrives from it (channel 0)");
}

TEST(Standing, KernelWithAllDataIsTheCause) {
    const auto standing = standing_of(one_rank(
        1, 4, 17, {all_reduce({send_to(1, 2, ALL_OUT), receive_from(1, 0, {16, 16, 16, 8}, 8)})}));
    EXPECT_EQ(standing.standing, Standing::Kernel);
    EXPECT_EQ(standing.channels, std::vector<std::int32_t>{0});
}

TEST(Standing, StoppedProcess) {
    auto inspection = one_rank(1, 4, 17, {all_reduce({send_to(1, 2, ALL_OUT)})});
    inspection.processes[0].threads[0].state = 'T';
    EXPECT_EQ(standing_of(inspection).standing, Standing::Stopped);
}

TEST(Standing, QueuedOperationsHoldUpNoOther) {
    auto queued = all_reduce({send_to(1, 2, {})});
    queued.is_begun = false;
    queued.is_queued = true;
    const auto inspection = one_rank(1, 4, 17, {queued});
    EXPECT_EQ(inspection.processes[0].proxies[0].operations[0].transfers[0].wait, Wait::Queued);
    EXPECT_EQ(standing_of(inspection).standing, Standing::Idle);
}

TEST(Standing, OperationThatTheProxyDoesNotStart) {
    auto waiting = all_reduce({send_to(1, 2, {})});
    waiting.is_begun = false;
    EXPECT_EQ(standing_of(one_rank(1, 4, 17, {waiting})).standing, Standing::Proxy);
}

} // namespace
} // namespace collwire::test
