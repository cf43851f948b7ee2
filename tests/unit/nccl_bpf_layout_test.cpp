// SPDX-License-Identifier: Apache-2.0
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
// The layout for the BPF programs, which files are NCCL, and channels in memory.
#include "tests/unit/nccl_fixture.h"

#include <array>
#include <cstring>
#include <fstream>

#include <unistd.h>

#include "tests/unit/fake_nccl/fake_nccl.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/find_nccl.h"
#include "userspace/nccl/memory/channels.h"

namespace collwire::nccl::test {
namespace {

LibraryLayout layout_with(std::initializer_list<std::pair<const char *, std::uint64_t>> offsets) {
    LibraryLayout layout;
    layout.version = "2.28.9";
    for (const auto &[name, value] : offsets)
        layout.offsets.emplace(name, FieldOffset{value, 8, 0, "test"});
    return layout;
}

TEST(BpfLayout, VersionNumber) {
    EXPECT_EQ(version_number("2.28.9"), 22809u);
    EXPECT_EQ(version_number("2.32.3"), 23203u);
    for (const char *text : {"", "2", "2.28", "2.x.9", "2.100.1", "2.28."})
        EXPECT_EQ(version_number(text), 0u) << text;
}

TEST(BpfLayout, MissingFieldsHaveNoOffset) {
    auto layout = layout_with({{"ncclComm.commHash", 1066184}, {"ncclTaskColl.op", 48}});
    layout.enumerators = {{"ncclPatternRing", 0}, {"ncclPatternSend", 13}};
    ProbedFunction start;
    start.function = "ncclProxyStart";
    start.address = 0x97090;
    start.registers = {{"argument_1", "rdi"}, {"plan", "rbp"}};
    layout.probes.push_back(start);
    layout.data = {{"ncclNetIb", 0x1000}};
    const auto bpf_layout = bpf_layout_of(layout, 7);
    ASSERT_TRUE(bpf_layout.ok()) << bpf_layout.failure().message;
    EXPECT_EQ(bpf_layout->comm_hash, 1066184u);
    EXPECT_EQ(bpf_layout->coll_op, 48u); // the second of two names
    EXPECT_EQ(bpf_layout->comm_rank, CW_NCCL_NO_FIELD);
    EXPECT_EQ(bpf_layout->image_id, 7u);
    EXPECT_EQ(bpf_layout->proxy_start, 0x97090u);
    EXPECT_EQ(bpf_layout->plan_register, static_cast<unsigned>(CW_NCCL_RBP));
    EXPECT_EQ(bpf_layout->patterns[0], CW_NCCL_PATTERN_RING);
    EXPECT_EQ(bpf_layout->patterns[13], CW_NCCL_PATTERN_SEND);
    EXPECT_EQ(bpf_layout->patterns[1], CW_NCCL_PATTERN_UNKNOWN);
    EXPECT_EQ(bpf_layout->net_ib, 0x1000u);
    EXPECT_EQ(bpf_layout->net_socket, ~0ULL); // equals no address
    EXPECT_EQ(bpf_layout->seq_numbers_count, 1u);
    layout.version = "2.24.3"; // counts with a profiler only
    EXPECT_EQ(bpf_layout_of(layout, 7)->seq_numbers_count, 0u);
}

// By the file's own numbers, as far as there is room for them.
TEST(BpfLayout, SocketTypes) {
    auto layout = layout_with({{"ncclSocket.socketDescriptor", 0}, {"ncclSocket.type", 72}});
    layout.enumerators = {{"ncclSocketTypeUnknown", 0},   {"ncclSocketTypeBootstrap", 2},
                          {"ncclSocketTypeNetSocket", 3}, {"ncclSocketTypeNetIb", 15},
                          {"ncclSocketTypeProxy", 16},    {"ncclSocketTypeRasNetwork", -1}};
    const auto bpf_layout = bpf_layout_of(layout, 1);
    ASSERT_TRUE(bpf_layout.ok()) << bpf_layout.failure().message;
    EXPECT_EQ(bpf_layout->socket_fd, 0u);
    EXPECT_EQ(bpf_layout->socket_type, 72u);
    std::array<unsigned, CW_NCCL_SOCKET_TYPE_NUMBERS> expected{};
    expected[2] = CW_NCCL_SOCKET_BOOTSTRAP;
    expected[15] = CW_NCCL_SOCKET_NETWORK_SETUP;
    for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(bpf_layout->socket_types[i], expected[i]) << i;
    EXPECT_EQ(bpf_layout_of(layout_with({}), 1)->socket_type, CW_NCCL_NO_FIELD);
}

// As 2.23 has it.
TEST(BpfLayout, ATaskWithoutBytes) {
    auto layout = layout_with({{"ncclProxyOp.task", 104}, {"ncclProxyOp.chunkSize", 36}});
    EXPECT_EQ(bpf_layout_of(layout, 1)->op_task, CW_NCCL_NO_FIELD);
    layout.offsets["ncclProxyOp.channelSize"] = {80, 8, 0, "test"};
    EXPECT_EQ(bpf_layout_of(layout, 1)->op_task, 104U);
}

TEST(BpfLayout, RefusesWhatTheProgramsWouldMisread) {
    const auto far_field = layout_with({{"ncclProxyOp.reg", CW_NCCL_OP_HEAD_BYTES}});
    const auto far_task = layout_with(
        {{"ncclProxyOp.task", 160}, {"ncclProxyOp.channelSize", 80}, {"ncclTaskP2p.bytes", 56}});
    auto renumbered = layout_with({});
    renumbered.enumerators = {{"ncclFuncAllReduce", 3}};
    for (const LibraryLayout &layout : {far_field, far_task, renumbered}) {
        const auto bpf_layout = bpf_layout_of(layout, 1);
        ASSERT_FALSE(bpf_layout.ok());
        EXPECT_EQ(bpf_layout.failure().kind, ErrorKind::BadInput);
    }
    // Before 2.24 an operation has no task, and nothing of one is read.
    EXPECT_TRUE(bpf_layout_of(layout_with({{"ncclTaskP2p.bytes", 56}}), 1).ok());
}

TEST(BpfLayout, HashOfACallIsThatOfItsTask) {
    // NCCL makes bytes of what an AllGather counts: 100 floats are 400 of int8.
    EXPECT_EQ(cw_nccl_type_bytes(7) * 100, cw_nccl_type_bytes(0) * 400);
    const std::array<std::uint64_t, 12> bytes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    for (std::uint32_t type = 0; type < bytes.size(); ++type)
        EXPECT_EQ(cw_nccl_type_bytes(type), bytes[type]) << type;
    const auto hash = cw_nccl_arguments_hash(2, 0x7000, 0x8000, 400, 0);
    EXPECT_EQ(hash, cw_nccl_arguments_hash(2, 0x7000, 0x8000, 400, 0));
    EXPECT_NE(hash, cw_nccl_arguments_hash(2, 0x7004, 0x8000, 400, 0));
    EXPECT_NE(hash, cw_nccl_arguments_hash(2, 0x7000, 0x8000, 400, 1));
}

TEST_F(FakeNccl, FilesThatDefineNcclAreFound) {
    const std::string large = testing::TempDir() + "collwire-large-nccl";
    {
        // The double is smaller than any NCCL.
        std::ifstream in{FAKE_NCCL, std::ios::binary};
        std::ofstream out{large, std::ios::binary};
        out << in.rdbuf() << std::string(LEAST_FILE_BYTES, '\0');
    }
    const std::string torn = testing::TempDir() + "collwire-torn-nccl";
    std::ofstream{torn, std::ios::binary} << "\x7f"
                                             "ELF"
                                          << std::string(LEAST_FILE_BYTES, '\xff');
    const std::array<std::string, 5> paths{"/nonexistent", torn, large, "/proc/self/exe",
                                           FAKE_NCCL};
    const auto looks = check_for_nccl(paths);
    using enum FileCheck::Verdict;
    const std::array expected{Unopened, Other, Nccl, Other, Other};
    ASSERT_EQ(looks.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(looks[i].verdict, expected[i]) << paths[i];
    EXPECT_EQ(looks[2].build_id, library_->build_id());
    EXPECT_TRUE(check_for_nccl({}).empty());
    unlink(large.c_str());
    unlink(torn.c_str());
}

// Two channels of a communicator in this process's own memory.
class Channels : public testing::Test {
protected:
    struct Channel {
        std::int32_t prev, next;
        const std::int32_t *user_ranks;
        std::int32_t index, up;
        std::array<std::int32_t, 3> down;
    };
    struct Comm {
        std::int32_t n_channels = 2;
        std::array<Channel, 2> channels{};
    };

    void SetUp() override {
        layout_ = layout_with({{"ncclComm.nChannels", offsetof(Comm, n_channels)},
                               {"ncclComm.channels", offsetof(Comm, channels)},
                               {"ncclChannel", sizeof(Channel)},
                               {"ncclChannel.ring.prev", offsetof(Channel, prev)},
                               {"ncclChannel.ring.next", offsetof(Channel, next)},
                               {"ncclChannel.ring.index", offsetof(Channel, index)},
                               {"ncclChannel.ring.userRanks", offsetof(Channel, user_ranks)},
                               {"ncclChannel.tree.up", offsetof(Channel, up)},
                               {"ncclChannel.tree.down", offsetof(Channel, down)}});
        comm_.channels[0] = {2, 1, order_.data(), 0, -1, {1, 2, -1}};
        comm_.channels[1] = {1, 2, order_.data(), 0, 1, {-1, -1, -1}};
        record_.tgid = static_cast<std::uint32_t>(getpid());
        record_.comm = reinterpret_cast<std::uint64_t>(&comm_);
        record_.n_ranks = 3;
    }

    [[nodiscard]] auto read(std::size_t bytes_left = 1024) {
        is_cut_ = false;
        return read_channels(process::ProcessView{getpid()}, layout_, record_, bytes_left,
                             &is_cut_);
    }

    bool is_cut_ = false;
    LibraryLayout layout_;
    std::array<std::int32_t, 3> order_{0, 1, 2};
    Comm comm_;
    cw_nccl_comm record_{};
};

TEST_F(Channels, OrdersBeyondTheBoundAreLeftOut) {
    const auto records = read(2 * sizeof(cw_nccl_channel) + 16 + 8); // for one of two
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].size(), sizeof(cw_nccl_channel) + 16);
    EXPECT_EQ(records[1].size(), sizeof(cw_nccl_channel));
    EXPECT_TRUE(is_cut_);
}

TEST_F(Channels, RecordsBeyondTheBoundAreLeftOut) {
    EXPECT_EQ(read(2 * sizeof(cw_nccl_channel) - 1).size(), 1u);
    EXPECT_TRUE(is_cut_);
    EXPECT_TRUE(read(0).empty());
    EXPECT_TRUE(is_cut_);
    EXPECT_EQ(read(2 * (sizeof(cw_nccl_channel) + 16)).size(), 2u);
    EXPECT_FALSE(is_cut_);
}

TEST_F(Channels, HaveTheRingAndTheTree) {
    const auto records = read();
    ASSERT_EQ(records.size(), 2u);
    cw_nccl_channel first;
    std::memcpy(&first, records[0].data(), sizeof(first));
    EXPECT_EQ(first.header.kind, CW_KIND_NCCL_CHANNEL);
    EXPECT_EQ(first.header.length_bytes, records[0].size());
    EXPECT_EQ(records[0].size(), sizeof(first) + 16); // three ranks and one to fill
    EXPECT_EQ(first.ring_prev, 2);
    EXPECT_EQ(first.tree_up, -1);
    EXPECT_EQ(first.tree_down[1], 2);
    EXPECT_EQ(first.n_order, 3u);
    std::array<std::int32_t, 3> order{};
    std::memcpy(order.data(), records[0].data() + sizeof(first), sizeof(order));
    EXPECT_EQ(order, order_);
}

TEST_F(Channels, ReadsOfBadMemoryAreBounded) {
    comm_.n_channels = 1 << 30; // the third is not readable, or is some other memory of ours
    EXPECT_LE(read().size(), 64u);
    comm_.n_channels = -5;
    EXPECT_TRUE(read().empty());
    comm_.n_channels = 2;
    comm_.channels[0].user_ranks = nullptr;
    ASSERT_EQ(read().size(), 2u);
    EXPECT_EQ(read()[0].size(), sizeof(cw_nccl_channel));
    record_.n_ranks = 1 << 30;
    EXPECT_EQ(read()[1].size(), sizeof(cw_nccl_channel));
    record_.comm = 8;
    EXPECT_TRUE(read().empty());
}

TEST_F(Channels, AreReadOnlyWhereTheLayoutHasThem) {
    layout_.offsets.erase("ncclChannel.ring.index");
    EXPECT_TRUE(read().empty());
}

} // namespace
} // namespace collwire::nccl::test
