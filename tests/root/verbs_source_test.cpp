// SPDX-License-Identifier: Apache-2.0
// The probes on libibverbs' control path, in this process, which calls a test double of the
// library.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "collwire/tables.h"
#include "tests/root/bpf_here.h"
#include "userspace/loader/event_ring.h"
#include "userspace/sources/verbs_qp_source.h"

namespace collwire {
namespace {

constexpr std::uint32_t DEVICE = 5;

class EventsOnly : public source::RecordSink {
public:
    void append(const cw_header &record) override {
        if (record.kind < CW_KIND_QP_CREATE || record.kind > CW_KIND_QP_ERROR)
            return;
        cw_qp_event event;
        std::memcpy(&event, &record, sizeof(event));
        events.push_back(event);
    }
    std::vector<cw_qp_event> events;
};

class Verbs : public testing::Test {
protected:
    using Create = int (*)(void *, ibv_qp *, void *);
    using Modify = int (*)(ibv_qp *, ibv_qp_attr *, int);
    using Destroy = int (*)(ibv_qp *);
    using Ack = void (*)(ibv_async_event *);

    void SetUp() override {
        if (const std::string reason = test::no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        inventory::RdmaDevice device;
        device.name = "fake0";
        device.indexed = true;
        device.record.dev_index = DEVICE;
        std::strcpy(device.record.driver, "mlx5_core");
        device.ports.resize(1);
        device.ports[0].record.port = 1;
        device.ports[0].record.link_layer = CW_LINK_ETHERNET;
        cw_gid gid = {};
        gid.gid_index = 3;
        gid.type = CW_GID_ROCE_V2;
        gid.gid[15] = 77;
        device.ports[0].gids.push_back(gid);
        devices_.push_back(device);
        std::strcpy(ibv_device_.name, "fake0");
        context_.device = &ibv_device_;
    }
    void TearDown() override {
        if (source_)
            source_->detach();
        if (library_ != nullptr)
            dlclose(library_);
    }
    template <typename T> T function(const char *name) {
        T found = nullptr;
        void *symbol = dlsym(library_, name);
        EXPECT_NE(symbol, nullptr) << name;
        std::memcpy(&found, &symbol, sizeof(found));
        return found;
    }
    void open(const char *path) {
        library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library_, nullptr) << dlerror();
    }
    void set_result(int result) { *static_cast<int *>(dlsym(library_, "fake_result")) = result; }
    void record(bool compare_only = false) {
        auto created = loader::SharedMaps::create({});
        ASSERT_TRUE(created) << created.failure().message;
        maps_ = std::move(*created);
        sources::VerbsQpOptions options;
        options.pids = {static_cast<std::uint32_t>(getpid())};
        options.compare_only = compare_only;
        options.devices = [this]() -> const std::vector<inventory::RdmaDevice> & {
            return devices_;
        };
        options.emit = [](const cw_header &) {};
        options.has_mapping_records = [] { return true; };
        ASSERT_TRUE(maps_->want_tgid(static_cast<std::uint32_t>(getpid())));
        source_ = std::make_unique<sources::VerbsQpSource>(*maps_, std::move(options));
        auto ring = loader::EventRing::create(*maps_, [this](const cw_header &header) {
            cw_qp_event event;
            std::memcpy(&event, &header, sizeof(event));
            events_.push_back(event);
            source_->on_record(header);
        });
        ASSERT_TRUE(ring) << ring.failure().message;
        ring_ = std::move(*ring);
        ASSERT_TRUE(source_->prepare());
        ASSERT_TRUE(source_->attach());
    }
    std::vector<cw_qp_event> events() {
        EXPECT_TRUE(ring_->consume());
        return std::exchange(events_, {});
    }
    ibv_qp new_qp() {
        ibv_qp qp = {};
        qp.context = &context_;
        qp.qp_type = IBV_QPT_RC;
        return qp;
    }
    static ibv_qp_attr to_rtr() {
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = 200;
        attr.rq_psn = 1234;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.dlid = 9;
        attr.ah_attr.grh.sgid_index = 3;
        attr.ah_attr.grh.dgid.raw[15] = 88;
        return attr;
    }
    static constexpr int RTR_MASK =
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

    ibv_device ibv_device_ = {};
    ibv_context context_ = {};
    std::vector<inventory::RdmaDevice> devices_;
    void *library_ = nullptr;
    std::unique_ptr<loader::SharedMaps> maps_;
    std::unique_ptr<sources::VerbsQpSource> source_;
    std::unique_ptr<loader::EventRing> ring_;
    std::vector<cw_qp_event> events_;
};

TEST_F(Verbs, EachCallIsARecord) {
    open(FAKE_IBVERBS);
    record();
    ibv_qp qp = new_qp();
    ASSERT_EQ(function<Create>("ibv_cmd_create_qp_ex2")(&context_, &qp, nullptr), 0);
    ibv_qp_attr init = {};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    ASSERT_EQ(function<Modify>("ibv_cmd_modify_qp")(&qp, &init, IBV_QP_STATE | IBV_QP_PORT), 0);
    ibv_qp_attr rtr = to_rtr();
    ASSERT_EQ(function<Modify>("ibv_cmd_modify_qp")(&qp, &rtr, RTR_MASK), 0);
    ASSERT_EQ(function<Destroy>("ibv_cmd_destroy_qp")(&qp), 0);
    const auto all = events();
    ASSERT_EQ(all.size(), 4U);
    const cw_qp_event &created = all[0];
    EXPECT_EQ(created.header.kind, CW_KIND_QP_CREATE);
    EXPECT_EQ(created.key.dev_index, DEVICE);
    EXPECT_EQ(created.key.qpn, qp.qp_num);
    EXPECT_EQ(created.tgid, static_cast<std::uint32_t>(getpid()));
    EXPECT_EQ(created.user_handle, reinterpret_cast<std::uint64_t>(&qp));
    EXPECT_EQ(created.qp_type, 2);
    EXPECT_STREQ(created.device, "fake0");
    EXPECT_EQ(created.flags, std::uint32_t{CW_QP_FROM_VERBS});
    EXPECT_NE(created.start_boottime_ns, 0U);
    EXPECT_EQ(all[1].header.kind, CW_KIND_QP_STATE);
    EXPECT_EQ(all[1].old_state, 0);
    EXPECT_EQ(all[1].new_state, 1);
    EXPECT_EQ(all[1].port, 1);
    const cw_qp_event &connected = all[2];
    EXPECT_EQ(connected.old_state, 1);
    EXPECT_EQ(connected.new_state, 2);
    EXPECT_EQ(connected.key.generation_ns, created.key.generation_ns);
    EXPECT_EQ(connected.dest_qpn, 200U);
    EXPECT_EQ(connected.path_mtu, 3);
    EXPECT_EQ(connected.rq_psn, 1234U);
    EXPECT_EQ(connected.dgid[15], 88);
    EXPECT_EQ(connected.sgid[15], 77);
    EXPECT_EQ(connected.gid_type, CW_GID_ROCE_V2);
    EXPECT_EQ(connected.dlid, 0U) << "Ethernet has no LIDs";
    EXPECT_EQ(connected.flags & (CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_UDP_SPORT),
              std::uint32_t{CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_UDP_SPORT});
    EXPECT_EQ(all[3].header.kind, CW_KIND_QP_DESTROY);
    EXPECT_EQ(all[3].old_state, 2);
    const cw_epoch_key key = {static_cast<std::uint32_t>(getpid()), qp.qp_num};
    std::uint32_t epoch = 0;
    EXPECT_EQ(bpf_map_lookup_elem(maps_->post_epochs_fd(), &key, &epoch), 0);
    EXPECT_EQ(epoch, 1U);
    EXPECT_TRUE(maps_->live_qps()->empty());
}

TEST_F(Verbs, ACallThatFailedChangesNothing) {
    open(FAKE_IBVERBS);
    record();
    ibv_qp qp = new_qp();
    set_result(EINVAL);
    EXPECT_NE(function<Create>("ibv_cmd_create_qp")(&context_, &qp, nullptr), 0);
    EXPECT_TRUE(events().empty());
    set_result(0);
    ASSERT_EQ(function<Create>("ibv_cmd_create_qp")(&context_, &qp, nullptr), 0);
    set_result(EINVAL);
    ibv_qp_attr rtr = to_rtr();
    EXPECT_NE(function<Modify>("ibv_cmd_modify_qp")(&qp, &rtr, RTR_MASK), 0);
    EXPECT_NE(function<Destroy>("ibv_cmd_destroy_qp")(&qp), 0);
    const auto all = events();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[1].result, -EINVAL);
    EXPECT_EQ(all[1].flags & CW_QP_SGID, 0U);
    ASSERT_EQ(maps_->live_qps()->size(), 1U);
    EXPECT_EQ(maps_->live_qps()->front().state, 0);
}

TEST_F(Verbs, AQueuePairFromBeforeIsDiscovered) {
    open(FAKE_IBVERBS);
    ibv_qp qp = new_qp();
    ASSERT_EQ(function<Create>("ibv_cmd_create_qp")(&context_, &qp, nullptr), 0);
    record();
    ibv_qp_attr rtr = to_rtr();
    ASSERT_EQ(function<Modify>("ibv_cmd_modify_qp")(&qp, &rtr, RTR_MASK), 0);
    const auto all = events();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].header.kind, CW_KIND_QP_EXISTING);
    EXPECT_NE(all[0].flags & CW_QP_PREEXISTING, 0U);
    EXPECT_EQ(all[1].header.kind, CW_KIND_QP_STATE);
    EXPECT_EQ(all[1].dest_qpn, 200U);
}

TEST_F(Verbs, AnErrorIsRecordedWhenItIsAcknowledged) {
    open(FAKE_IBVERBS);
    record();
    ibv_qp qp = new_qp();
    ASSERT_EQ(function<Create>("ibv_cmd_create_qp")(&context_, &qp, nullptr), 0);
    ibv_async_event event = {};
    event.event_type = IBV_EVENT_PORT_ACTIVE;
    function<Ack>("ibv_ack_async_event")(&event);
    event.event_type = IBV_EVENT_QP_FATAL;
    event.element.qp = &qp;
    function<Ack>("ibv_ack_async_event")(&event);
    const auto all = events();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[1].header.kind, CW_KIND_QP_ERROR);
    EXPECT_EQ(all[1].event, std::uint32_t{IBV_EVENT_QP_FATAL});
    EXPECT_EQ(all[1].key.qpn, qp.qp_num);
}

TEST_F(Verbs, PublicFunctionsStandInForPrivateOnes) {
    open(FAKE_PUBLIC_IBVERBS);
    record();
    ibv_pd pd = {};
    pd.context = &context_;
    ibv_qp_init_attr init = {};
    init.qp_type = IBV_QPT_UC;
    using PublicCreate = ibv_qp *(*)(ibv_pd *, ibv_qp_init_attr *);
    ibv_qp *qp = function<PublicCreate>("ibv_create_qp")(&pd, &init);
    ibv_qp_attr rtr = to_rtr();
    ASSERT_EQ(function<Modify>("ibv_modify_qp")(qp, &rtr, RTR_MASK), 0);
    ASSERT_EQ(function<Destroy>("ibv_destroy_qp")(qp), 0);
    const auto all = events();
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0].header.kind, CW_KIND_QP_CREATE);
    EXPECT_EQ(all[0].qp_type, 3);
    EXPECT_EQ(all[1].dest_qpn, 200U);
    EXPECT_EQ(all[2].header.kind, CW_KIND_QP_DESTROY);
    ASSERT_EQ(source_->states().size(), 1U);
    EXPECT_EQ(source_->states()[0].state, CW_SOURCE_DEGRADED);
}

TEST_F(Verbs, AFileIsProbedWhenItIsMappedLater) {
    record();
    open(FAKE_IBVERBS);
    cw_file_mapped mapped = {};
    mapped.header = {sizeof(mapped), CW_KIND_FILE_MAPPED, 0, 1};
    mapped.tgid = static_cast<std::uint32_t>(getpid());
    source_->on_record(mapped.header);
    ibv_qp qp = new_qp();
    ASSERT_EQ(function<Create>("ibv_cmd_create_qp")(&context_, &qp, nullptr), 0);
    EXPECT_EQ(events().size(), 1U);
}

TEST_F(Verbs, ForComparisonNothingReachesTheCaptureOrTheTables) {
    open(FAKE_IBVERBS);
    record(true);
    ibv_qp qp = new_qp();
    ASSERT_EQ(function<Create>("ibv_cmd_create_qp")(&context_, &qp, nullptr), 0);
    const auto all = events();
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].header.kind, CW_KIND_COMPARED + CW_KIND_QP_CREATE);
    EXPECT_GE(all[0].header.kind, CW_KIND_RECORDER);
    EXPECT_TRUE(maps_->live_qps()->empty());
    EventsOnly sink;
    source_->sample(sink, true);
    EXPECT_TRUE(sink.events.empty());
    EXPECT_NE(source_->states()[0].reason.find("1 in libibverbs only"), std::string::npos)
        << source_->states()[0].reason;
}

// Of a process that exits no function of libibverbs' destroys the queue pairs.
TEST_F(Verbs, AnExitedOwnersQueuePairsAreDestroyed) {
    record();
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    cw_qp_event event = {};
    event.header = {sizeof(event), CW_KIND_QP_CREATE, 0, 1};
    event.key = {DEVICE, 300, 1};
    event.tgid = static_cast<std::uint32_t>(child);
    event.start_boottime_ns = 1'000'000'000;
    event.flags = CW_QP_FROM_VERBS;
    source_->on_record(event.header);
    EventsOnly first;
    source_->sample(first, false);
    EXPECT_TRUE(first.events.empty()) << "its last calls may be on their way";
    EventsOnly second;
    source_->sample(second, false);
    ASSERT_EQ(second.events.size(), 1U);
    EXPECT_EQ(second.events[0].header.kind, CW_KIND_QP_DESTROY);
    EXPECT_EQ(second.events[0].key.qpn, 300U);
}

} // namespace
} // namespace collwire
