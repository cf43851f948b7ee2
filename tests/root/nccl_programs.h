// SPDX-License-Identifier: Apache-2.0
#pragma once

// The programs on a launch, run by the kernel on a function of this process that stands for
// ncclProxyStart: memory laid out as no NCCL has it, with what neither the lab nor the test double
// of CUDA has: flush queue pairs, and an operation for the proxy of another rank.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "collwire/loss_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/nccl_layout.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
// After it: the skeleton names its type.
#include "nccl.skel.h"

#include "tests/root/bpf_here.h"
#include "userspace/loader/event_ring.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/loader/skeleton.h"

extern "C" int nccl_programs_test_start(void *comm);
extern "C" void nccl_programs_test_post();

namespace collwire::test {

constexpr std::uint64_t MAGIC = 0x0280028002800280;

struct Qp {
    std::uint64_t context = 0;
    std::uint32_t number = 0;
};
struct IbQp {
    const Qp *qp = nullptr;
    std::int32_t device = 0;
};
struct RecvDevice {
    std::uint64_t other = 0;
    IbQp flush;
};
struct IbComm {
    std::int32_t n_devices = 0, n_qps = 0;
    std::array<IbQp, 9> qps;
    std::array<RecvDevice, 2> devices;
};
struct Socket {
    std::uint64_t other = 0;
    std::int32_t fd = -1;
    std::uint32_t type = 0;
};
struct SocketComm {
    Socket control;
    std::int32_t n_sockets = 0;
    std::array<Socket, 9> sockets;
};
struct Resources {
    const void *net_comm = nullptr;
    std::int32_t rank = 0, remote_rank = 1, channel = 0, conn_index = 0, net_dev = 0;
};
struct Connection {
    std::int32_t send = 0, transport = 2;
    const Resources *resources = nullptr;
};
struct Op {
    std::uint64_t connection = 0, nbytes = 4096;
    std::int32_t next = -1, root = 0;
    std::uint32_t nsteps = 1, chunk_size = 4096;
    std::uint8_t channel = 0, pattern = 0, protocol = 2, slice_steps = 1, chunk_steps = 1,
                 dtype = 0, red_op = 0, coll = 0;
    std::array<std::uint8_t, CW_NCCL_OP_HEAD_BYTES> rest{};
};
struct ProxyOps { // as NCCL has them
    const Op *pool = nullptr;
    std::uint64_t reserved = 0;
    std::int32_t count = 0, free_op = -1, next_ops = -1, next_ops_end = -1;
};
struct ProxyState {
    const ProxyOps *ops = nullptr;
    const int *net = nullptr;
    std::int32_t n_lists = 0;
};
struct Comm {
    std::uint64_t magic = MAGIC, hash = 0xabcdef;
    std::int32_t rank = 0, n_ranks = 4, local_rank = 0, local_ranks = 2;
    const ProxyState *proxy_state = nullptr;
    std::array<std::uint64_t, 4> channels{};
    const std::int32_t *local_rank_to_rank = nullptr;
    const Comm *const *shared = nullptr; // its owner
    const std::int32_t *top_parent_local_ranks = nullptr, *top_parent_ranks = nullptr;
};

inline cw_nccl_layout layout_for(const int *net_ib, const int *net_socket) {
    cw_nccl_layout layout;
    std::memset(&layout, 0xff, sizeof(layout)); // nothing is known of it
    layout.comm_start_magic = offsetof(Comm, magic);
    layout.comm_hash = offsetof(Comm, hash);
    layout.comm_rank = offsetof(Comm, rank);
    layout.comm_n_ranks = offsetof(Comm, n_ranks);
    layout.comm_local_rank = offsetof(Comm, local_rank);
    layout.comm_local_ranks = offsetof(Comm, local_ranks);
    layout.comm_proxy_state = offsetof(Comm, proxy_state);
    layout.comm_channels = offsetof(Comm, channels);
    layout.channel_size = sizeof(std::uint64_t);
    layout.proxy_state_ops = offsetof(ProxyState, ops);
    layout.proxy_state_net = offsetof(ProxyState, net);
    layout.pool_ops = 0;
    layout.op_size = sizeof(Op);
    layout.op_connection = offsetof(Op, connection);
    layout.op_nbytes = offsetof(Op, nbytes);
    layout.op_next = offsetof(Op, next);
    layout.op_root = offsetof(Op, root);
    layout.op_nsteps = offsetof(Op, nsteps);
    layout.op_chunk_size = offsetof(Op, chunk_size);
    layout.op_channel = offsetof(Op, channel);
    layout.op_pattern = offsetof(Op, pattern);
    layout.op_protocol = offsetof(Op, protocol);
    layout.op_slice_steps = offsetof(Op, slice_steps);
    layout.op_chunk_steps = offsetof(Op, chunk_steps);
    layout.op_dtype = offsetof(Op, dtype);
    layout.op_red_op = offsetof(Op, red_op);
    layout.connection_send = offsetof(Connection, send);
    layout.connection_transport = offsetof(Connection, transport);
    layout.connection_resources = offsetof(Connection, resources);
    layout.send_net_comm = layout.recv_net_comm = offsetof(Resources, net_comm);
    layout.send_tp_rank = layout.recv_tp_rank = offsetof(Resources, rank);
    layout.send_tp_remote_rank = layout.recv_tp_remote_rank = offsetof(Resources, remote_rank);
    layout.send_channel = layout.recv_channel = offsetof(Resources, channel);
    layout.send_conn_index = layout.recv_conn_index = offsetof(Resources, conn_index);
    layout.send_net_dev = layout.recv_net_dev = offsetof(Resources, net_dev);
    layout.ib_send_n_qps = layout.ib_recv_n_qps = offsetof(IbComm, n_qps);
    layout.ib_send_qps = layout.ib_recv_qps = offsetof(IbComm, qps);
    layout.ib_qp_size = sizeof(IbQp);
    layout.ib_qp_qp = offsetof(IbQp, qp);
    layout.ib_qp_dev_index = offsetof(IbQp, device);
    layout.ib_n_devs = offsetof(IbComm, n_devices);
    layout.ib_recv_devs = offsetof(IbComm, devices);
    layout.ib_recv_dev_size = sizeof(RecvDevice);
    layout.ib_flush_qp = offsetof(RecvDevice, flush);
    layout.ibv_qp_num = offsetof(Qp, number);
    layout.socket_ctrl = offsetof(SocketComm, control);
    layout.socket_socks = offsetof(SocketComm, sockets);
    layout.socket_n_socks = offsetof(SocketComm, n_sockets);
    layout.socket_size = sizeof(Socket);
    layout.socket_fd = offsetof(Socket, fd);
    layout.image_id = 1;
    layout.plan_register = CW_NCCL_NOWHERE;
    layout.seq_numbers_count = 0;
    // The file is where its addresses say.
    layout.proxy_start = reinterpret_cast<std::uint64_t>(&nccl_programs_test_start);
    layout.net_ib = reinterpret_cast<std::uint64_t>(net_ib);
    layout.net_socket = reinterpret_cast<std::uint64_t>(net_socket);
    return layout;
}

// With the program for this kernel, and with the one for those before 5.17.
class NcclPrograms : public testing::TestWithParam<const char *> {
protected:
    void SetUp() override {
        if (const std::string reason = no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        const bool loops =
            libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, nullptr) == 1;
        if (!loops && std::string{GetParam()} == "proxy_start")
            GTEST_SKIP() << "this kernel has no bpf_loop";
        for (std::size_t i = 0; i < qps_.size(); ++i)
            qps_[i].number = static_cast<std::uint32_t>(100 + i);
        for (std::size_t i = 0; i < ib_comm_.qps.size(); ++i)
            ib_comm_.qps[i] = {&qps_[i], static_cast<std::int32_t>(i % 2)};
        ib_comm_.n_devices = 2;
        ib_comm_.n_qps = 9;
        ib_comm_.devices = {{{0, {&qps_[9], 0}}, {0, {&qps_[10], 0}}}};
        send_.send = 1;
        // Receives and sends by its own proxy; one operation is for that of the other local rank.
        own_ops_[0].connection = reinterpret_cast<std::uint64_t>(&receive_);
        own_ops_[0].next = 1;
        own_ops_[1].connection = reinterpret_cast<std::uint64_t>(&send_);
        other_ops_[0].connection = ELSEWHERE;
        proxies_[0] = {own_ops_.data(), 0, 2, -1, 0, 1};
        proxies_[1] = {other_ops_.data(), 0, 1, -1, 0, 0};
    }

    void TearDown() override {
        bpf_link__destroy(link_);
        bpf_link__destroy(post_link_);
    }

    void load(const loader::SharedMapOptions &options = {}) {
        auto maps = loader::SharedMaps::create(options);
        ASSERT_TRUE(maps) << maps.failure().message;
        maps_ = std::move(maps).value();
        auto ring = loader::EventRing::create(*maps_, [this](const cw_header &header) {
            const auto *begin = reinterpret_cast<const std::byte *>(&header);
            records_.emplace_back(begin, begin + header.length_bytes);
        });
        ASSERT_TRUE(ring) << ring.failure().message;
        ring_ = std::move(ring).value();
        const auto opened = programs_.open();
        ASSERT_TRUE(opened) << opened.failure().message;
        bpf_program *wanted = nullptr, *program = nullptr;
        bpf_object__for_each_program(program, programs_.object()) {
            const std::string name = bpf_program__name(program);
            bpf_program__set_autoload(program, name == GetParam() || name == "ops_posted_early");
            wanted = name == GetParam() ? program : wanted;
        }
        ASSERT_NE(wanted, nullptr);
        programs_->rodata->layout = layout_;
        const auto loaded = programs_.load(*maps_);
        ASSERT_TRUE(loaded) << loaded.failure().message;
        bpf_uprobe_opts where{};
        where.sz = sizeof(where);
        where.func_name = "nccl_programs_test_start";
        link_ = bpf_program__attach_uprobe_opts(wanted, -1, "/proc/self/exe", 0, &where);
        ASSERT_NE(link_, nullptr) << std::strerror(errno);
        where.func_name = "nccl_programs_test_post";
        post_link_ = bpf_program__attach_uprobe_opts(programs_->progs.ops_posted_early, -1,
                                                     "/proc/self/exe", 0, &where);
        ASSERT_NE(post_link_, nullptr) << std::strerror(errno);
    }

    // The records of one more launch.
    void launch() {
        if (link_ == nullptr) {
            ASSERT_NO_FATAL_FAILURE(load());
        }
        records_.clear();
        EXPECT_EQ(nccl_programs_test_start(&comm_), 0);
        (void)ring_->consume();
    }

    [[nodiscard]] std::uint64_t lost(cw_loss_class loss_class) const {
        std::uint64_t n = 0;
        for (const source::LossCount &count : maps_->losses())
            n += count.loss_class == loss_class ? count.records : 0;
        return n;
    }

    template <typename T> [[nodiscard]] std::vector<T> emitted(std::uint16_t kind) const {
        std::vector<T> all;
        for (const std::vector<std::byte> &bytes : records_) {
            T record{};
            std::memcpy(&record, bytes.data(), std::min(sizeof(record), bytes.size()));
            if (record.header.kind == kind)
                all.push_back(record);
        }
        return all;
    }
    // An operation in the list of another rank's proxy, then two in that of its own.
    void expect_other_then_own(std::uint32_t other, std::uint32_t own) const {
        const auto ops = emitted<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS);
        ASSERT_EQ(ops.size(), 3U);
        EXPECT_EQ(ops[0].proxy_indices[0], other);
        EXPECT_EQ(ops[0].ops[0].flags & CW_NCCL_OP_OTHER_PROXY, CW_NCCL_OP_OTHER_PROXY);
        EXPECT_EQ(ops[2].proxy_indices[0], own);
        EXPECT_EQ(ops[2].ops[0].flags & CW_NCCL_OP_OTHER_PROXY, 0);
    }
    [[nodiscard]] std::vector<cw_nccl_connection> connections() const {
        return emitted<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION);
    }

    [[nodiscard]] std::uint64_t shape() const {
        const auto launches = emitted<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH);
        return launches.size() == 1 ? launches[0].shape : 0;
    }

    static constexpr std::uint64_t ELSEWHERE = 0x7123456789a0;
    std::array<Qp, 11> qps_{};
    IbComm ib_comm_;
    Resources resources_{&ib_comm_};
    Connection receive_{0, 2, &resources_}, send_{1, 2, &resources_};
    std::array<Op, 2> own_ops_{};
    std::array<Op, 1> other_ops_{};
    std::array<ProxyOps, 2> proxies_{};
    int net_ib_ = 0, net_socket_ = 0;
    ProxyState proxy_state_{proxies_.data(), &net_ib_};
    Comm comm_{.proxy_state = &proxy_state_};
    cw_nccl_layout layout_ = layout_for(&net_ib_, &net_socket_);
    std::unique_ptr<loader::SharedMaps> maps_;
    std::unique_ptr<loader::EventRing> ring_;
    loader::Skeleton<::nccl> programs_{"NCCL programs"};
    bpf_link *link_ = nullptr, *post_link_ = nullptr;
    std::vector<std::vector<std::byte>> records_;
};

} // namespace collwire::test
