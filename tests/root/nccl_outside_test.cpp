// SPDX-License-Identifier: Apache-2.0
// Communicators that the recorder reads from a process while the programs meet them: here this
// process, with a test double of NCCL.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/recorder_records.h"
#include "tests/root/bpf_here.h"
#include "tests/root/nccl_state.h"
#include "userspace/loader/event_ring.h"
#include "userspace/loader/return_probes.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/sources/nccl/source.h"

namespace collwire::sources {
namespace {

// As tests/root/nccl_double/init.cc has them.
struct Resources {
    void *net_comm = nullptr;
    std::int32_t rank = 0, remote_rank = 1, net_dev = 0, channel = 0, conn_index = 0;
};
struct Connection {
    std::int32_t send = 0, transport = 2;
    const Resources *resources = nullptr;
};
struct Connector {
    std::int32_t same_process = 1;
    const Connection *connection = nullptr;
    std::int32_t connected = 0;
};
struct Peer {
    std::array<Connector, 2> send, recv;
};
struct Op {
    const Connection *connection = nullptr;
    std::uint64_t nbytes = 4096;
    std::int32_t next = -1, root = 0, nsteps = 1, chunk_size = 4096;
    std::array<std::uint8_t, 8> rest{};
};
struct ProxyOps {
    const Op *pool = nullptr;
    std::uint64_t reserved = 0;
    std::int32_t count = 1, free_op = -1, next_ops = 0, next_ops_end = 0;
};
struct ProxyState {
    const ProxyOps *ops = nullptr;
    const void *net = nullptr;
};
struct Comm {
    std::uint64_t magic = 0x0280028002800280, hash = 0xabc;
    std::int32_t rank = 0, n_ranks = 2, local_rank = 0, local_ranks = 1, state = 0;
    const ProxyState *proxy_state = nullptr;
    std::array<const Peer *const *, 64> channels{};
};

class NcclOutside : public testing::Test, public source::RecordSink {
protected:
    using AllReduce = int (*)(const void *, void *, std::size_t, int, int, Comm *, void *);

    void SetUp() override {
        if (const std::string reason = test::no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        peer_.send[0] = {1, &send_, 1};
        peer_.recv[0] = {1, &receive_, 1};
        comm_.channels[0] = peers_.data();
        comm_.proxy_state = &proxy_state_;
        other_peer_.send[0] = {1, &other_send_, 1};
        other_.hash = 0xdef;
        other_.channels[0] = other_peers_.data();
        other_.proxy_state = &proxy_state_;
        op_.connection = &send_;
        library_ = open(NCCL_DOUBLE);
        ASSERT_NO_FATAL_FAILURE(use(library_));
        auto maps = loader::SharedMaps::create({});
        ASSERT_TRUE(maps) << maps.failure().message;
        maps_ = std::move(maps).value();
        NcclOptions options;
        options.on_connection = [this](const cw_header &) {
            if (meanwhile_)
                std::exchange(meanwhile_, nullptr)();
        };
        source_ = std::make_unique<NcclSource>(*maps_, std::move(options));
        auto ring = loader::EventRing::create(*maps_, [this](const cw_header &header) {
            append(header);
            source_->on_record(header);
        });
        ASSERT_TRUE(ring) << ring.failure().message;
        ring_ = std::move(ring).value();
    }
    void TearDown() override {
        if (count_ != nullptr)
            *count_ = 0;
        for (void *library : libraries_)
            dlclose(library);
        for (const std::string &copy : copies_)
            std::filesystem::remove(copy);
    }
    void start() {
        ASSERT_TRUE(source_->prepare());
        ASSERT_TRUE(source_->attach());
        const auto sample = [this] { source_->sample(*this, false); };
        ASSERT_EQ(test::problem_once_placed(*source_, NCCL_DOUBLE, sample), "");
    }
    void *open(const std::string &file) {
        void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library != nullptr)
            libraries_.push_back(library);
        return library;
    }
    // Its functions are called, and it has the communicators.
    void use(void *library) {
        ASSERT_NE(library, nullptr) << dlerror();
        call_ = reinterpret_cast<AllReduce>(dlsym(library, "ncclAllReduce"));
        table_ = static_cast<Comm ***>(dlsym(library, "ncclComms"));
        count_ = static_cast<int *>(dlsym(library, "nNcclComms"));
        ASSERT_TRUE(call_ != nullptr && table_ != nullptr && count_ != nullptr);
    }
    void call() { (void)call_(nullptr, nullptr, 8, 0, 0, &comm_, nullptr); }
    // The process has mapped another copy of NCCL, with communicators, and somebody looks into it.
    // `meanwhile` comes when they were read and the first is emitted: the probes are in their
    // places by then.
    void look(std::function<void()> meanwhile = nullptr) {
        const std::string copy = std::string{NCCL_DOUBLE} + "." + std::to_string(copies_.size());
        std::filesystem::copy_file(NCCL_DOUBLE, copy,
                                   std::filesystem::copy_options::overwrite_existing);
        copies_.push_back(copy);
        ASSERT_NO_FATAL_FAILURE(use(open(copy)));
        *table_ = comms_.data();
        *count_ = static_cast<int>(comms_.size());
        meanwhile_ = std::move(meanwhile);
        struct stat status {};
        ASSERT_EQ(stat(copy.c_str(), &status), 0);
        cw_file_mapped mapped{};
        mapped.header = {sizeof(mapped), CW_KIND_FILE_MAPPED, 0, 1};
        mapped.tgid = static_cast<std::uint32_t>(getpid());
        mapped.inode = status.st_ino;
        source_->on_record(mapped.header);
        EXPECT_TRUE(meanwhile_ == nullptr) << "no connection was emitted";
    }
    // The connections so far, with their addresses.
    [[nodiscard]] std::vector<std::uint64_t> take_connections() {
        (void)ring_->consume();
        source_->sample(*this, false);
        std::vector<std::uint64_t> all;
        for (const auto &record : connections())
            all.push_back(record.connection);
        records_.clear();
        std::sort(all.begin(), all.end());
        return all;
    }
    [[nodiscard]] std::vector<cw_nccl_connection> connections() const {
        return of_comm<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION);
    }
    // Of comm_.
    template <typename T> [[nodiscard]] std::vector<T> of_comm(std::uint16_t kind) const {
        std::vector<T> found = of<T>(kind);
        std::erase_if(found, [this](const T &record) {
            return record.comm != reinterpret_cast<std::uint64_t>(&comm_);
        });
        return found;
    }
    // Others may run NCCL, too.
    template <typename T> [[nodiscard]] std::vector<T> of(std::uint16_t kind) const {
        std::vector<T> found;
        for (const auto &bytes : records_) {
            T record{};
            std::memcpy(&record, bytes.data(), std::min(sizeof(record), bytes.size()));
            if (record.header.kind == kind && record.tgid == static_cast<std::uint32_t>(getpid()))
                found.push_back(record);
        }
        return found;
    }
    void append(const cw_header &record) override {
        const auto *begin = reinterpret_cast<const std::byte *>(&record);
        records_.emplace_back(begin, begin + record.length_bytes);
    }
    [[nodiscard]] std::vector<std::uint64_t> both() const {
        std::vector<std::uint64_t> all{reinterpret_cast<std::uint64_t>(&send_),
                                       reinterpret_cast<std::uint64_t>(&receive_)};
        std::sort(all.begin(), all.end());
        return all;
    }

    int net_comm_ = 0, net_ = 0;
    Resources resources_{&net_comm_};
    Connection send_{1, 2, &resources_}, receive_{0, 2, &resources_};
    Peer peer_{};
    std::array<const Peer *, 2> peers_{nullptr, &peer_};
    Op op_{};
    ProxyOps ops_{&op_};
    ProxyState proxy_state_{&ops_, nullptr};
    Comm comm_{};
    Connection other_send_{1, 2, &resources_};
    Peer other_peer_{};
    std::array<const Peer *, 2> other_peers_{nullptr, &other_peer_};
    Comm other_{};
    std::array<Comm *, 2> comms_{&other_, &comm_};
    std::function<void()> meanwhile_;
    std::vector<void *> libraries_;
    std::vector<std::string> copies_;
    void *library_ = nullptr;
    AllReduce call_ = nullptr;
    Comm ***table_ = nullptr;
    int *count_ = nullptr;
    std::unique_ptr<loader::SharedMaps> maps_;
    std::unique_ptr<NcclSource> source_;
    std::unique_ptr<loader::EventRing> ring_;
    std::vector<std::vector<std::byte>> records_;
};

// The probes are placed first: a call before the scan emits its communicator.
TEST_F(NcclOutside, ConnectionsAreAddedToACommunicatorOfACall) {
    start();
    ops_.next_ops = -1;
    look([this] { call(); });
    source_->sample(*this, false);
    EXPECT_TRUE(connections().empty()) << "before what they are of";
    EXPECT_EQ(take_connections(), both());
    ops_.next_ops = 0;
    call();
    EXPECT_TRUE(take_connections().empty()) << "they are emitted";
    source_->sample(*this, true);
    EXPECT_EQ(of_comm<cw_nccl_comm>(CW_KIND_NCCL_COMM).size(), 1U);
    EXPECT_EQ(connections().size(), 2U);
}

TEST_F(NcclOutside, EmittedConnectionsAreNotAddedTwice) {
    start();
    look([this] { call(); });
    EXPECT_EQ(take_connections(), both());
}

TEST_F(NcclOutside, CommunicatorsWithoutCallsAreDiscovered) {
    start();
    look();
    EXPECT_EQ(take_connections(), both());
    call();
    EXPECT_TRUE(take_connections().empty());
}

// While the probes of a recording are placed one after the other.
TEST_F(NcclOutside, CallsBeforeTheRecordingAreNotEmitted) {
    const struct { Comm *comm = nullptr, *parent = nullptr; } job{&comm_, nullptr};
    auto *create =
        reinterpret_cast<int (*)(const void *)>(dlsym(library_, "_Z20ncclCommInitRankFuncPv"));
    ASSERT_NE(create, nullptr);
    ASSERT_TRUE(maps_->hold(CW_HELD));
    start();
    EXPECT_EQ(create(&job), 0);
    call();
    (void)ring_->consume();
    if (!loader::may_refuse_return_probes()) {
        ASSERT_EQ(of<cw_nccl_comm>(CW_KIND_NCCL_COMM).size(), 1U);
        EXPECT_EQ(of<cw_nccl_comm>(CW_KIND_NCCL_COMM)[0].flags, 0U) << "calls may be missing";
    }
    EXPECT_TRUE(of<cw_nccl_call>(CW_KIND_NCCL_CALL).empty());
    EXPECT_TRUE(of<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH).empty());
    ASSERT_TRUE(maps_->hold(CW_NOT_HELD));
    source_->begin();
    call();
    (void)ring_->consume();
    EXPECT_EQ(of<cw_nccl_comm>(CW_KIND_NCCL_COMM).size(), 1U);
    EXPECT_EQ(of<cw_nccl_call>(CW_KIND_NCCL_CALL).size(), 1U);
    EXPECT_EQ(of<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH).size(), 1U);
}

// While they are taken off one after the other.
TEST_F(NcclOutside, NothingIsEmittedAfterTheEnd) {
    if (loader::may_refuse_return_probes())
        GTEST_SKIP() << "no return probes here";
    const struct { Comm *comm = nullptr, *parent = nullptr; } job{&comm_, nullptr};
    auto *create =
        reinterpret_cast<int (*)(const void *)>(dlsym(library_, "_Z20ncclCommInitRankFuncPv"));
    ASSERT_NE(create, nullptr);
    start();
    ASSERT_TRUE(maps_->hold(CW_OVER));
    EXPECT_EQ(create(&job), 0);
    call();
    (void)ring_->consume();
    EXPECT_TRUE(of<cw_nccl_comm>(CW_KIND_NCCL_COMM).empty());
    EXPECT_TRUE(of<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH).empty());
    EXPECT_TRUE(maps_->losses().empty()) << "what is not emitted is not lost";
}

} // namespace
} // namespace collwire::sources
