// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/record/preamble.h"

namespace collwire::source {
namespace {

using Lines = std::vector<std::string>;

class TestSource : public Source {
public:
    explicit TestSource(std::string name) : name_(std::move(name)) {}
    [[nodiscard]] std::string_view name() const override { return name_; }
    Result<void> prepare() override { return {}; }
    [[nodiscard]] std::vector<PlannedProbe> probe_list() const override { return {}; }
    Result<void> attach() override { return {}; }
    [[nodiscard]] std::vector<SourceState> states() const override { return now; }
    void sample(RecordSink &, bool) override {}
    [[nodiscard]] bool has_read_all() const override { return read_all; }
    void detach() override {}
    bool read_all = true;
    std::vector<SourceState> now{{CW_SOURCE_ON, {}}};

private:
    std::string name_;
};

class Sink : public RecordSink {
public:
    void append(const cw_header &record) override {
        if (record.kind == CW_KIND_SOURCE)
            std::memcpy(&states.emplace_back(), &record, sizeof(cw_source));
        if (record.kind == CW_KIND_LOSS)
            std::memcpy(&losses.emplace_back(), &record, sizeof(cw_loss));
        if (record.kind == CW_KIND_SAMPLE_GAP)
            std::memcpy(&gaps.emplace_back(), &record, sizeof(cw_sample_gap));
    }
    std::vector<cw_source> states;
    std::vector<cw_loss> losses;
    std::vector<cw_sample_gap> gaps;
};

class States : public testing::Test {
protected:
    States() {
        sources_.push_back(std::make_unique<TestSource>("posts"));
        sources_.push_back(std::make_unique<TestSource>("counters"));
    }
    TestSource &source(std::size_t i) { return static_cast<TestSource &>(*sources_.at(i)); }
    std::vector<cw_source> append(bool everything) {
        Sink sink;
        table_.append(sink, sources_, everything);
        return sink.states;
    }
    record::Sources sources_;
    record::StateTable table_;
};

TEST_F(States, AChangeIsWrittenOnceAndSaid) {
    EXPECT_EQ(append(true).size(), 2U);
    EXPECT_TRUE(table_.take_news().empty());
    EXPECT_TRUE(append(false).empty());

    source(0).now = {{CW_SOURCE_DEGRADED, "no ibv_wr_* call is counted"}};
    const auto written = append(false);
    ASSERT_EQ(written.size(), 1U);
    EXPECT_STREQ(written[0].name, "posts");
    EXPECT_EQ(written[0].state, CW_SOURCE_DEGRADED);
    EXPECT_EQ(written[0].dev_index, ~0U);
    EXPECT_STREQ(written[0].reason, "no ibv_wr_* call is counted");
    EXPECT_EQ(table_.take_news(), Lines{"posts: no ibv_wr_* call is counted"});

    EXPECT_TRUE(append(false).empty());
    EXPECT_EQ(append(true).size(), 2U) << "a segment starts with all of them";
    EXPECT_TRUE(table_.take_news().empty());
}

TEST_F(States, WhatIsWrongFromTheStartIsSaid) {
    source(1).now = {{CW_SOURCE_UNAVAILABLE, "no port"}};
    append(true);
    EXPECT_EQ(table_.take_news(), Lines{"counters: no port"});
}

TEST_F(States, AReasonWithOtherNumbersIsWrittenAndNotSaidAgain) {
    source(0).now = {{CW_SOURCE_DEGRADED, "1 queue pairs came late"}};
    append(true);
    static_cast<void>(table_.take_news());
    source(0).now = {{CW_SOURCE_DEGRADED, "27 queue pairs came late"}};
    const auto written = append(false);
    ASSERT_EQ(written.size(), 1U);
    EXPECT_STREQ(written[0].reason, "27 queue pairs came late");
    EXPECT_TRUE(table_.take_news().empty());
}

TEST_F(States, StatesOfOneDeviceAreOneAndEndWithIt) {
    source(1).now = {{CW_SOURCE_DEGRADED, "a stands", 3},
                     {CW_SOURCE_UNAVAILABLE, "no bytes", 3},
                     {CW_SOURCE_DEGRADED, "b stands", 4}};
    auto written = append(true);
    ASSERT_EQ(written.size(), 3U);
    EXPECT_EQ(written[1].dev_index, 3U);
    EXPECT_EQ(written[1].state, CW_SOURCE_UNAVAILABLE);
    EXPECT_STREQ(written[1].reason, "a stands; no bytes");
    static_cast<void>(table_.take_news());

    source(1).now = {{CW_SOURCE_DEGRADED, "b stands", 4}};
    written = append(false);
    ASSERT_EQ(written.size(), 1U);
    EXPECT_EQ(written[0].dev_index, 3U);
    EXPECT_EQ(written[0].state, CW_SOURCE_ON);
    EXPECT_TRUE(append(false).empty());
    EXPECT_EQ(table_.take_news(), Lines{"counters: resolved: a stands; no bytes"});
}

TEST(Losses, OfOneClassAndCpuAreSummed) {
    record::LossTable table;
    Sink sink;
    std::vector<LossCount> now{{CW_LOSS_PROBE_MISSED, CW_CPU_USERSPACE, 5},
                               {CW_LOSS_PROBE_MISSED, 1, 7},
                               {CW_LOSS_PROBE_MISSED, CW_CPU_USERSPACE, 2}};
    table.append(sink, now, false);
    ASSERT_EQ(sink.losses.size(), 2U);
    EXPECT_EQ(sink.losses[0].header.cpu, 1U);
    EXPECT_EQ(sink.losses[0].records, 7U);
    EXPECT_EQ(sink.losses[1].header.cpu, CW_CPU_USERSPACE);
    EXPECT_EQ(sink.losses[1].records, 7U);
    EXPECT_EQ(table.total(), 14U);
    EXPECT_EQ(table.describe(), "14 calls missed by a probe");

    table.append(sink, now, false);
    EXPECT_EQ(sink.losses.size(), 2U) << "nothing grew";
    ++now[0].records;
    table.append(sink, now, false);
    ASSERT_EQ(sink.losses.size(), 3U);
    EXPECT_EQ(sink.losses[2].records, 8U);
    table.append(sink, now, true);
    EXPECT_EQ(sink.losses.size(), 5U) << "a segment starts with all of them";
}

TEST(SampleGaps, AreEmittedWhereSamplesComeLate) {
    record::SampleGaps gaps(1000);
    Sink sink;
    gaps.start(10'000);
    gaps.append(sink, {}, 11'000, 11'100);
    gaps.append(sink, {}, 12'300, 12'500);
    EXPECT_TRUE(sink.gaps.empty());
    gaps.append(sink, {}, 13'300, 13'900); // takes long
    gaps.append(sink, {}, 14'300, 14'400);
    gaps.append(sink, {}, 19'300, 19'400); // comes late
    gaps.append(sink, {}, 20'300, 20'400);
    ASSERT_EQ(sink.gaps.size(), 2U);
    EXPECT_EQ(sink.gaps[0].begin_ns, 12'300U);
    EXPECT_EQ(sink.gaps[0].header.time_ns, 13'900U);
    EXPECT_EQ(sink.gaps[1].begin_ns, 14'300U);
    EXPECT_EQ(sink.gaps[1].header.time_ns, 19'400U);
}

// What one of them did not read may have changed meanwhile.
TEST(SampleGaps, AreEmittedWhereASourceDidNotReadAll) {
    record::Sources sources;
    sources.push_back(std::make_unique<TestSource>("posts"));
    sources.push_back(std::make_unique<TestSource>("sockets"));
    bool &has_read_all = static_cast<TestSource &>(*sources[0]).read_all;
    record::SampleGaps gaps(1000);
    Sink sink;
    gaps.start(10'000);
    gaps.append(sink, sources, 11'000, 11'100);
    has_read_all = false;
    gaps.append(sink, sources, 12'000, 12'100);
    has_read_all = true;
    gaps.append(sink, sources, 13'000, 13'100);
    gaps.append(sink, sources, 14'000, 14'100);
    ASSERT_EQ(sink.gaps.size(), 1U);
    EXPECT_EQ(sink.gaps[0].begin_ns, 11'000U);
    EXPECT_EQ(sink.gaps[0].header.time_ns, 13'100U);
}

} // namespace
} // namespace collwire::source
