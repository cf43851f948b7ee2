// SPDX-License-Identifier: Apache-2.0
// What proxies have to do, out of the memory of this process, laid out as no NCCL has it.
#include <array>
#include <cstddef>
#include <cstring>

#include <gtest/gtest.h>
#include <unistd.h>

#include "correlate/inspect/waits.h"
#include "userspace/inspect/proxy_reader.h"
#include "userspace/nccl/layout/bpf_layout.h"

namespace collwire::inspect {
namespace {

constexpr std::uint64_t BIAS = 0x1000;
constexpr std::uint64_t NET_IB = 0x500, NET_SOCKET = 0x600;
constexpr int STEPS = 8;

struct FifoEntry {
    std::int32_t mode = 0;
    std::int64_t size = -1;
};
struct RecvMem {
    std::uint64_t tail = 0;
    std::array<FifoEntry, STEPS> fifo{};
};
struct SendMem {
    std::uint64_t other = 0, head = 0;
};
struct MapMemory {
    char *gpu = nullptr;
    char *cpu = nullptr;
};
struct Credit {
    std::uint64_t other = 0, number = 0;
};
struct SendComm {
    std::uint64_t head = 0;
    std::array<std::array<Credit, 2>, 4> credits{};
};
struct Resources {
    std::array<MapMemory, 5> mems{};
    std::array<std::uint32_t, 3> buffs{};
    void *net_comm = nullptr;
    SendMem *send_mem = nullptr;
    RecvMem *recv_mem = nullptr;
    std::int32_t rank = 1, remote_rank = 2, channel = 0, conn_index = 0, use_gdr = 0;
    std::array<std::int32_t, 3> buff_sizes{1024, 8192, 8192};
};
struct Connection {
    std::int32_t send = 1, transport = 2;
    Resources *resources = nullptr;
};
struct Sub {
    Connection *connection = nullptr;
    std::int32_t channel = 3, nsteps = 48;
    std::int64_t nbytes = 4096;
    std::uint64_t base = 16, posted = 0, received = 0, transmitted = 0, done = 0;
    std::int32_t reg = 0;
};
struct Args {
    std::array<Sub, 4> subs{};
    std::int32_t n_subs = 1, state = 2, slice_steps = 2;
    std::uint64_t op_count = 34;
    std::uint8_t dtype = 7, red_op = 0, pattern = 0, coll = 4, protocol = 2, algorithm = 1;
    Args *next = nullptr, *next_peer = nullptr;
};
struct ProgressState {
    std::uint64_t other = 0;
    Args *active = nullptr;
};
struct ProxyState {
    std::int32_t rank = 1;
    std::uint64_t net = NET_IB + BIAS;
    ProgressState progress;
};

template <typename T> std::uint64_t address_of(const T &object) {
    return reinterpret_cast<std::uint64_t>(&object);
}

class ProxyReaderTest : public testing::Test {
protected:
    void SetUp() override {
        const auto put = [this](const char *name, std::size_t value, std::size_t bytes = 8,
                                std::size_t elements = 0) {
            layout_.offsets[name] = {value, bytes, elements, "test"};
        };
        layout_.version = "2.28.9";
        put("ncclProxyState.progressState", offsetof(ProxyState, progress));
        put("ncclProxyState.tpRank", offsetof(ProxyState, rank));
        put("ncclProxyState.ncclNet", offsetof(ProxyState, net));
        put("ncclProxyProgressState.active", offsetof(ProgressState, active));
        put("ncclProxyArgs.subs", offsetof(Args, subs));
        put("ncclProxyArgs.nsubs", offsetof(Args, n_subs));
        put("ncclProxyArgs.state", offsetof(Args, state));
        put("ncclProxyArgs.sliceSteps", offsetof(Args, slice_steps));
        put("ncclProxyArgs.opCount", offsetof(Args, op_count));
        put("ncclProxyArgs.dtype", offsetof(Args, dtype));
        put("ncclProxyArgs.redOp", offsetof(Args, red_op));
        put("ncclProxyArgs.pattern", offsetof(Args, pattern));
        put("ncclProxyArgs.coll", offsetof(Args, coll));
        put("ncclProxyArgs.protocol", offsetof(Args, protocol));
        put("ncclProxyArgs.algorithm", offsetof(Args, algorithm));
        put("ncclProxyArgs.next", offsetof(Args, next));
        put("ncclProxyArgs.nextPeer", offsetof(Args, next_peer));
        put("ncclProxySubArgs", sizeof(Sub));
        put("ncclProxySubArgs.connection", offsetof(Sub, connection));
        put("ncclProxySubArgs.channelId", offsetof(Sub, channel));
        put("ncclProxySubArgs.nsteps", offsetof(Sub, nsteps));
        put("ncclProxySubArgs.nbytes", offsetof(Sub, nbytes));
        put("ncclProxySubArgs.base", offsetof(Sub, base));
        put("ncclProxySubArgs.posted", offsetof(Sub, posted));
        put("ncclProxySubArgs.received", offsetof(Sub, received));
        put("ncclProxySubArgs.transmitted", offsetof(Sub, transmitted));
        put("ncclProxySubArgs.done", offsetof(Sub, done));
        put("ncclProxySubArgs.reg", offsetof(Sub, reg));
        put("ncclProxyConnection.send", offsetof(Connection, send));
        put("ncclProxyConnection.transport", offsetof(Connection, transport));
        put("ncclProxyConnection.transportResources", offsetof(Connection, resources));
        for (const std::string side : {"sendNetResources.", "recvNetResources."}) {
            put((side + "tpRank").c_str(), offsetof(Resources, rank));
            put((side + "tpRemoteRank").c_str(), offsetof(Resources, remote_rank));
            put((side + "connIndex").c_str(), offsetof(Resources, conn_index));
        }
        put("sendNetResources.netSendComm", offsetof(Resources, net_comm));
        put("sendNetResources.useGdr", offsetof(Resources, use_gdr));
        put("sendNetResources.recvMem", offsetof(Resources, recv_mem));
        put("recvNetResources.recvMem", offsetof(Resources, recv_mem));
        put("recvNetResources.sendMem", offsetof(Resources, send_mem));
        put("sendNetResources.buffSizes", offsetof(Resources, buff_sizes));
        put("sendNetResources.map.mems", offsetof(Resources, mems));
        put("sendNetResources.map.offsets.buffs", offsetof(Resources, buffs));
        put("connectMapMem", sizeof(MapMemory));
        put("connectMapMem.cpuPtr", offsetof(MapMemory, cpu));
        put("ncclRecvMem.tail", offsetof(RecvMem, tail));
        put("ncclRecvMem.connFifo", offsetof(RecvMem, fifo));
        put("ncclConnFifo", sizeof(FifoEntry));
        put("ncclConnFifo.size", offsetof(FifoEntry, size));
        put("ncclSendMem.head", offsetof(SendMem, head));
        put("ncclIbSendComm.ctsFifo", offsetof(SendComm, credits), sizeof(SendComm::credits), 4);
        put("ncclIbNetCommBase.fifoHead", offsetof(SendComm, head));
        put("ncclIbSendFifo.idx", offsetof(Credit, number));
        layout_.data = {{"ncclNetIb", NET_IB}, {"ncclNetSocket", NET_SOCKET}};
        layout_.enumerators = {{"ncclPatternRing", 0}, {"ncclPatternSend", 13}};
        const auto bpf_layout = nccl::bpf_layout_of(layout_, 1);
        ASSERT_TRUE(bpf_layout) << bpf_layout.failure().message;
        bpf_layout_ = *bpf_layout;
        resources_.recv_mem = &recv_mem_;
        resources_.send_mem = &send_mem_;
        resources_.net_comm = &send_comm_;
        connection_.resources = &resources_;
        args_.subs[0].connection = &connection_;
        state_.progress.active = &args_;
    }

    Proxy read(bool slots = true) {
        ProxyReader reader{process_, layout_, bpf_layout_, BIAS};
        return reader.read(address_of(state_), slots);
    }
    Transfer only() {
        const Proxy proxy = read();
        EXPECT_EQ(proxy.operations.size(), 1U);
        EXPECT_EQ(proxy.operations.at(0).transfers.size(), 1U);
        return proxy.operations.at(0).transfers.at(0);
    }
    Sub &sub() { return args_.subs[0]; }

    nccl::LibraryLayout layout_;
    cw_nccl_layout bpf_layout_{};
    process::ProcessView process_{getpid()};
    RecvMem recv_mem_;
    SendMem send_mem_;
    SendComm send_comm_;
    Resources resources_;
    Connection connection_;
    Args args_;
    ProxyState state_;
};

TEST_F(ProxyReaderTest, ReadsAnOperation) {
    sub().posted = 8;
    sub().transmitted = 2;
    const Proxy proxy = read();
    EXPECT_EQ(proxy.rank, 1);
    ASSERT_EQ(proxy.operations.size(), 1U);
    const Operation &operation = proxy.operations[0];
    EXPECT_EQ(operation.function, "AllReduce");
    EXPECT_EQ(operation.algorithm, "RING");
    EXPECT_EQ(operation.protocol, "SIMPLE");
    EXPECT_EQ(operation.datatype, "ncclFloat32");
    EXPECT_EQ(operation.pattern, "Ring");
    EXPECT_EQ(operation.op_count, 34U);
    EXPECT_EQ(operation.slice_steps, 2U);
    EXPECT_TRUE(operation.is_begun);
    const Transfer &transfer = operation.transfers.at(0);
    EXPECT_TRUE(transfer.is_send);
    EXPECT_EQ(transfer.peer, 2);
    EXPECT_EQ(transfer.channel, 3);
    EXPECT_EQ(transfer.nsteps, 48U);
    EXPECT_EQ(transfer.base, 16U);
    EXPECT_EQ(transfer.transport, "NET/IB");
    EXPECT_EQ(transfer.last, (Progress{8, 0, 2, 0}));
}

TEST_F(ProxyReaderTest, SlotOfASender) {
    sub().posted = 8;
    sub().transmitted = sub().done = 2;
    EXPECT_EQ(only().slot, Slot::Empty); // no size
    recv_mem_.fifo[(16 + 2) % STEPS].size = 100;
    EXPECT_EQ(only().slot, Slot::Empty); // the kernel has not moved its tail
    recv_mem_.tail = 16 + 2;
    EXPECT_EQ(only().slot, Slot::Empty); // only up to the step before
    recv_mem_.tail = 16 + 3;
    EXPECT_EQ(only().slot, Slot::Filled);
}

TEST_F(ProxyReaderTest, FlagsOfLl) {
    args_.protocol = 0;
    sub().posted = 8;
    sub().transmitted = sub().done = 2;
    std::array<std::uint32_t, 256> buffer{};
    resources_.mems[0].cpu = reinterpret_cast<char *>(buffer.data());
    resources_.buffs[0] = 0x20000000;           // used, in the host's memory, at 0
    recv_mem_.fifo[(16 + 2) % STEPS].size = 32; // two lines
    EXPECT_EQ(only().slot, Slot::Partial);
    constexpr std::size_t WORDS_A_SLOT = 1024 / STEPS / 4;
    for (const std::size_t word : {1U, 3U, 5U})
        buffer[2 * WORDS_A_SLOT + word] = 16 + 2 + 1;
    EXPECT_EQ(only().slot, Slot::Partial);
    buffer[2 * WORDS_A_SLOT + 7] = 16 + 2 + 1;
    EXPECT_EQ(only().slot, Slot::Filled);
}

TEST_F(ProxyReaderTest, FlagsOfLl128) {
    args_.protocol = 1;
    sub().posted = 8;
    sub().transmitted = sub().done = 2;
    constexpr std::size_t WORDS_A_LINE = 128 / 8, WORDS_A_SLOT = 8192 / STEPS / 8;
    std::array<std::uint64_t, 8192 / 8> buffer{};
    resources_.mems[0].cpu = reinterpret_cast<char *>(buffer.data());
    resources_.buffs[1] = 0x20000000;
    recv_mem_.tail = 16 + 3;
    recv_mem_.fifo[(16 + 2) % STEPS].size = 200; // two lines
    buffer[2 * WORDS_A_SLOT + WORDS_A_LINE - 1] = 16 + 2 + 1;
    EXPECT_EQ(only().slot, Slot::Partial);
    buffer[2 * WORDS_A_SLOT + 2 * WORDS_A_LINE - 1] = 16 + 2; // of the step before
    EXPECT_EQ(only().slot, Slot::Partial);
    buffer[2 * WORDS_A_SLOT + 2 * WORDS_A_LINE - 1] = 16 + 2 + 1;
    EXPECT_EQ(only().slot, Slot::Filled);
    buffer.fill(0);
    resources_.use_gdr = 1; // in the GPU's memory: the tail decides
    EXPECT_EQ(only().slot, Slot::Filled);
}

TEST_F(ProxyReaderTest, UnreadableFlagsAreUnknown) {
    args_.protocol = 0;
    sub().posted = 8;
    recv_mem_.fifo[0].size = 32;
    resources_.buffs[0] = 0x20000000;
    resources_.mems[0].cpu = reinterpret_cast<char *>(8);
    EXPECT_EQ(only().slot, Slot::Unknown);
}

TEST_F(ProxyReaderTest, Credit) {
    sub().posted = 8;
    send_comm_.head = 6;
    EXPECT_EQ(only().has_credit, false);
    send_comm_.credits[6 % 4][0].number = 7;
    EXPECT_EQ(only().has_credit, true);
    state_.net = NET_SOCKET + BIAS;
    EXPECT_EQ(only().has_credit, std::nullopt);
}

TEST_F(ProxyReaderTest, ReceiverReportsTakenSteps) {
    connection_.send = 0;
    sub().posted = sub().received = sub().transmitted = 8;
    send_mem_.head = 16 + 4;
    EXPECT_EQ(only().taken, 4U);
    send_mem_.head = 3; // of before
    EXPECT_EQ(only().taken, 0U);
}

// Into the user's memory: the kernel says in the slot of its first step that it is there.
TEST_F(ProxyReaderTest, KernelOfARegisteredReceiver) {
    connection_.send = 0;
    sub().reg = 1;
    EXPECT_EQ(only().is_kernel_there, false);
    recv_mem_.fifo[16 % STEPS].size = 0;
    EXPECT_EQ(only().is_kernel_there, true);
    sub().posted = 1;
    EXPECT_EQ(only().is_kernel_there, std::nullopt);
    sub().posted = sub().reg = 0;
    EXPECT_EQ(only().is_kernel_there, std::nullopt);
}

// Several connections of an operation share sixteen slots.
TEST_F(ProxyReaderTest, DepthOfSharedSlots) {
    EXPECT_EQ(only().max_depth, 8U);
    for (Sub &each : args_.subs)
        each.connection = &connection_;
    args_.n_subs = 4;
    const Proxy proxy = read();
    ASSERT_EQ(proxy.operations.at(0).transfers.size(), 4U);
    for (const Transfer &transfer : proxy.operations[0].transfers)
        EXPECT_EQ(transfer.max_depth, 4U);
}

TEST_F(ProxyReaderTest, OperationsAfterAnotherAreQueued) {
    Args second = args_;
    second.state = 1;
    args_.next_peer = &second;
    const Proxy proxy = read();
    ASSERT_EQ(proxy.operations.size(), 2U);
    EXPECT_FALSE(proxy.operations[0].is_queued);
    EXPECT_TRUE(proxy.operations[1].is_queued);
    EXPECT_FALSE(proxy.operations[1].is_begun);
    EXPECT_EQ(proxy.operations[1].transfers[0].last, Progress{});
}

TEST_F(ProxyReaderTest, CircularListsAreCut) {
    Args second = args_;
    args_.next = &second;
    args_.next_peer = &args_;
    second.next = &args_;
    second.next_peer = &second;
    EXPECT_EQ(read().operations.size(), 2U);
}

TEST_F(ProxyReaderTest, AbsurdCountsAreRejected) {
    args_.n_subs = 1'000'000;
    EXPECT_TRUE(read().operations.empty());
    args_.n_subs = -1;
    EXPECT_TRUE(read().operations.empty());
    args_.n_subs = 1;
    args_.state = 77;
    EXPECT_TRUE(read().operations.empty());
}

TEST_F(ProxyReaderTest, SecondSampleKeepsTheFirst) {
    sub().posted = 8;
    const Proxy first = read(false);
    sub().done = 1;
    Proxy second = read();
    merge_first_look(first, second);
    const Transfer &transfer = second.operations[0].transfers[0];
    EXPECT_TRUE(transfer.was_there);
    EXPECT_EQ(transfer.first.done, 0U);
    EXPECT_EQ(transfer.last.done, 1U);
    // Another operation at the same place.
    args_.op_count = 36;
    Proxy third = read();
    merge_first_look(second, third);
    EXPECT_FALSE(third.operations[0].transfers[0].was_there);
}

} // namespace
} // namespace collwire::inspect
