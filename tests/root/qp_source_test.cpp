// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <bpf/bpf.h>

#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/tables.h"
#include "tests/root/bpf_here.h"
#include "userspace/sources/qp_source.h"

namespace collwire {
namespace {

class ExistingQps : public source::RecordSink {
public:
    void append(const cw_header &record) override {
        cw_qp_event event;
        std::memcpy(&event, &record, sizeof(event));
        EXPECT_EQ(event.header.kind, CW_KIND_QP_EXISTING);
        qpns.insert(event.key.qpn);
        last = event;
    }
    std::set<std::uint32_t> qpns;
    cw_qp_event last{};
};

class KnownQps : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = test::no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        loader::SharedMapOptions options;
        options.ring_bytes = 4096;
        auto created = loader::SharedMaps::create(options);
        ASSERT_TRUE(created) << created.failure().message;
        maps = std::move(*created);
        source = std::make_unique<sources::QpSource>(*maps, sources::QpSourceOptions{});
    }
    void create(std::uint32_t qpn, std::uint32_t flags = 0) {
        cw_qp_event event{};
        event.header = {sizeof(event), CW_KIND_QP_CREATE, 0, 1};
        event.key = {0, qpn, 1};
        event.flags = flags;
        source->on_record(event.header);
    }
    // As the kernel's side has it.
    void live(std::uint32_t qpn) {
        const std::uint64_t address = 0xffff888000000000 + qpn;
        cw_live_qp qp{};
        qp.key = {0, qpn, 1};
        ASSERT_EQ(bpf_map_update_elem(maps->live_qps_fd(), &address, &qp, BPF_ANY), 0);
    }
    std::set<std::uint32_t> written() {
        ExistingQps sink;
        source->sample(sink, true);
        return sink.qpns;
    }
    std::unique_ptr<loader::SharedMaps> maps;
    std::unique_ptr<sources::QpSource> source;
};

TEST_F(KnownQps, AreThoseThatLiveThoughTheEndOfOneWasLost) {
    for (const std::uint32_t qpn : {17u, 18u, 19u})
        create(qpn);
    create(20, CW_QP_DEVX);
    live(17);
    live(19);
    EXPECT_EQ(written(), (std::set<std::uint32_t>{17, 19, 20})) << "18 is gone; 20 is mlx5's";
}

// A later segment starts with what all events together said.
TEST_F(KnownQps, KeepWhatALaterEventDoesNotSay) {
    cw_qp_event event{};
    event.header = {sizeof(event), CW_KIND_QP_STATE, 0, 1};
    event.key = {0, 17, 1};
    event.flags = CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_DEST | CW_QP_PATH_MTU |
                  CW_QP_PSN_RQ | CW_QP_PSN_SQ | CW_QP_UDP_SPORT;
    event.new_state = 2;
    event.dgid[15] = event.sgid[15] = 3;
    event.dlid = event.dest_qpn = 4;
    event.rq_psn = event.sq_psn = 5;
    event.user_handle = 6;
    event.udp_sport = 0xc007;
    event.path_mtu = event.port = event.timeout = 1;
    source->on_record(event.header);
    cw_qp_event later{};
    later.header = event.header;
    later.key = event.key;
    later.flags = CW_QP_PSN_SQ;
    later.new_state = 3;
    later.sq_psn = 8;
    source->on_record(later.header);
    live(17);
    ExistingQps sink;
    source->sample(sink, true);
    event.new_state = 3;
    event.sq_psn = 8;
    event.header = sink.last.header;
    EXPECT_EQ(std::memcmp(&sink.last, &event, sizeof(event)), 0);
}

} // namespace
} // namespace collwire
