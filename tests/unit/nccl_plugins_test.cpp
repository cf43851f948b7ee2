// SPDX-License-Identifier: Apache-2.0
// The recorder's search for the queue pairs of network plugins, in this process.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collwire/nccl_connection_records.h"
#include "collwire/record_kinds.h"
#include "userspace/sources/nccl/plugins.h"

namespace collwire::sources {
namespace {

// As libibverbs has it.
struct IbvQp {
    void *context, *qp_context, *pd, *send_cq, *recv_cq, *srq;
    std::uint32_t handle, qp_num, state, qp_type;
};
struct Table {
    const char *name;
    void *init, *devices;
};

constexpr std::size_t OBJECT_BYTES = 1U << 16U;

class Plugins : public testing::Test {
protected:
    ~Plugins() override { munmap(object_, OBJECT_BYTES); }
    std::unique_ptr<std::array<std::uint64_t, 8>> device_ =
        std::make_unique<std::array<std::uint64_t, 8>>();
    std::unique_ptr<IbvQp> qp_ = std::make_unique<IbvQp>(IbvQp{
        device_.get(), nullptr, device_.get(), device_.get(), device_.get(), nullptr, 1, 71, 3, 2});
    // By itself: what lies around it is read, too.
    const void **object_ = static_cast<const void **>(
        mmap(nullptr, OBJECT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Table table_{"a-plugin", nullptr, dlsym(RTLD_DEFAULT, "getpid")};
    // Enough for anything, and none between two tries.
    static constexpr NcclPlugins::Times AMPLE{3600'000'000'000, 0};
    const std::uint32_t tgid_ = static_cast<std::uint32_t>(getpid());
    const NcclPlugins::Owner owner_{tgid_, 0xc0de};
    unsigned asked_ = 0;
    std::optional<std::unordered_set<std::uint32_t>> numbers_{{71}};
    NcclPlugins plugins_{[this] { return read(); }, AMPLE};

    std::optional<NcclPlugins::QpNumbers> read() {
        ++asked_;
        if (!numbers_)
            return std::nullopt;
        return NcclPlugins::QpNumbers{{tgid_, *numbers_}, {1, {71}}};
    }
    void note(std::uint32_t transport = CW_NCCL_TRANSPORT_PLUGIN) { note(plugins_, transport); }
    void note(NcclPlugins &plugins, std::uint32_t transport = CW_NCCL_TRANSPORT_PLUGIN) {
        cw_nccl_connection connection{};
        connection.header = {sizeof(connection), CW_KIND_NCCL_CONNECTION, 3, 1000};
        connection.tgid = tgid_;
        connection.connection = 0xc0;
        connection.net_comm = reinterpret_cast<std::uintptr_t>(object_);
        connection.transport = transport;
        connection.flags = CW_NCCL_CONNECTION_SEND;
        plugins.add(connection, owner_, 4, reinterpret_cast<std::uintptr_t>(&table_));
    }
};

TEST_F(Plugins, QueuePairsAndNetworkAreFoundOnce) {
    object_[9] = qp_.get();
    EXPECT_FALSE(plugins_.is_due());
    note();
    EXPECT_TRUE(plugins_.is_due());
    const auto found = plugins_.search();
    ASSERT_EQ(found.connections.size(), 1U);
    const auto &[owner, connection] = found.connections[0];
    EXPECT_EQ(owner, owner_);
    EXPECT_EQ(connection.flags, std::uint32_t{CW_NCCL_CONNECTION_SEND | CW_NCCL_CONNECTION_FOUND});
    EXPECT_EQ(connection.n_endpoints, 1U);
    EXPECT_EQ(connection.n, 1U);
    EXPECT_EQ(connection.endpoints[0].number, 71U);
    EXPECT_EQ(connection.endpoints[0].depth, 1);
    EXPECT_EQ(connection.endpoints[0].address, reinterpret_cast<std::uintptr_t>(qp_.get()));
    EXPECT_GT(connection.header.time_ns, 1000U);
    ASSERT_EQ(found.networks.size(), 1U);
    EXPECT_EQ(std::string(found.networks[0].name), "a-plugin");
    EXPECT_EQ(found.networks[0].image_id, 4U);
    EXPECT_NE(std::string(found.networks[0].path).find("libc.so"), std::string::npos);
    note();
    EXPECT_TRUE(plugins_.search().networks.empty());
    EXPECT_EQ(plugins_.networks().size(), 1U) << "for a new segment";
    plugins_.forget(tgid_);
    EXPECT_TRUE(plugins_.networks().empty());
    EXPECT_TRUE(plugins_.search().connections.empty());
}

TEST_F(Plugins, AConnectionWithoutQueuePairsIsTriedAFewTimes) {
    numbers_->clear();
    object_[9] = qp_.get();
    note();
    EXPECT_TRUE(plugins_.search().connections.empty());
    numbers_->insert(71); // the kernel has it since
    EXPECT_EQ(plugins_.search().connections.size(), 1U);
    object_[9] = nullptr;
    note();
    for (int i = 0; i < 10; ++i)
        EXPECT_TRUE(plugins_.search().connections.empty());
    EXPECT_EQ(asked_, 2U + 3U);
}

// Nor does it cost a try where the kernel does not say.
TEST_F(Plugins, UnreadableQpNumbersAreNoTry) {
    numbers_.reset();
    object_[9] = qp_.get();
    note();
    for (int i = 0; i < 10; ++i) {
        const auto found = plugins_.search();
        EXPECT_TRUE(found.connections.empty());
        EXPECT_EQ(found.networks.size(), i == 0 ? 1U : 0U);
    }
    numbers_.emplace({71U});
    EXPECT_EQ(plugins_.search().connections.size(), 1U);
}

// However little time there is.
TEST_F(Plugins, OneConnectionIsAlwaysSearched) {
    NcclPlugins hurried([this] { return read(); }, {0, 0});
    object_[9] = qp_.get();
    for (int i = 0; i < 3; ++i)
        note(hurried);
    for (std::size_t left = 3; left != 0; --left) {
        EXPECT_EQ(hurried.unsearched(), left);
        EXPECT_EQ(hurried.search().connections.size(), 1U);
    }
    EXPECT_EQ(hurried.unsearched(), 0U);
    EXPECT_EQ(hurried.dropped(), 0U);
    EXPECT_EQ(asked_, 3U) << "once a look";
}

// Its memory may be another connection's by then.
TEST_F(Plugins, EndedConnectionsAreNotSearched) {
    object_[9] = qp_.get();
    note();
    plugins_.forget(NcclPlugins::Owner{tgid_, 0xbeef});
    EXPECT_EQ(plugins_.unsearched(), 1U);
    EXPECT_EQ(plugins_.dropped(), 0U);
    plugins_.forget(owner_);
    EXPECT_EQ(plugins_.unsearched(), 0U);
    EXPECT_EQ(plugins_.dropped(), 1U) << "that is reported";
    EXPECT_TRUE(plugins_.search().connections.empty());
    note();
    plugins_.forget(tgid_);
    EXPECT_EQ(plugins_.dropped(), 2U);
}

// What led nowhere once is no matter of time.
TEST_F(Plugins, SearchedConnectionsAreNotCountedAsDropped) {
    NcclPlugins patient([this] { return read(); }, {AMPLE.search_ns, AMPLE.search_ns});
    note(patient);
    EXPECT_TRUE(patient.search().connections.empty());
    object_[9] = qp_.get();
    EXPECT_FALSE(patient.is_due());
    EXPECT_TRUE(patient.search().connections.empty()) << "not yet";
    EXPECT_EQ(patient.unsearched(), 0U);
    patient.forget(owner_);
    EXPECT_EQ(patient.dropped(), 0U);
}

TEST_F(Plugins, NcclsOwnNetworksAreIgnored) {
    note(CW_NCCL_TRANSPORT_IB);
    EXPECT_FALSE(plugins_.is_due());
    EXPECT_TRUE(plugins_.search().networks.empty());
    EXPECT_EQ(asked_, 0U);
}

} // namespace
} // namespace collwire::sources
