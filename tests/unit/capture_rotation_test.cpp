// SPDX-License-Identifier: Apache-2.0
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "tests/unit/capture_writer_fixture.h"

namespace collwire::capture {
namespace {

using test::has;
using test::read_file_content;
using test::SECOND_NS;

class Rotation : public test::WriterFixture {};

struct Bounds {
    std::uint64_t max_bytes;
    std::uint32_t devices; // in the preamble
    std::uint32_t records_a_tick;
};

class MaxBytes : public Rotation, public testing::WithParamInterface<Bounds> {};

TEST_P(MaxBytes, AreNeverExceededAndTheNewestIsKept) {
    const Bounds bounds = GetParam();
    n_preamble_devices = bounds.devices;
    auto with = options();
    with.max_bytes = bounds.max_bytes;
    make(std::move(with));
    writer->begin(now_ns);
    const std::uint64_t total_bytes = 3 * bounds.max_bytes;
    for (std::uint64_t sent_bytes = 0; sent_bytes < total_bytes;) {
        for (std::uint32_t i = 0; i < bounds.records_a_tick; i++, sent_bytes += 70)
            append_qp();
        writer->flush(now_ns += SECOND_NS);
    }
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_LE(storage->most_bytes, bounds.max_bytes);
    EXPECT_GT(storage->most_bytes, bounds.max_bytes * 8 / 10);
    EXPECT_GT(writer->deleted_segments(), 4U);
    EXPECT_EQ(writer->lost_records(), 0U);
    EXPECT_FALSE(writer->take_failure());

    // What is left is the newest, without a gap, and at least half of the limit is filled.
    const auto qpns = all_qpns();
    ASSERT_FALSE(qpns.empty());
    EXPECT_EQ(qpns.back(), n_appended - 1);
    EXPECT_EQ(qpns.back() - qpns.front() + 1, qpns.size());
    EXPECT_GT(writer->bytes_on_disk(), bounds.max_bytes / 2);
    std::uint32_t expected_segment = writer->segment();
    for (auto name = storage->order.rbegin(); name != storage->order.rend(); ++name) {
        const auto content = read_file_content(storage->files.at(*name).bytes);
        EXPECT_TRUE(content.summary.complete());
        EXPECT_EQ(content.segments, std::vector<std::uint32_t>{expected_segment});
        EXPECT_EQ(content.kinds.front(), CW_KIND_NODE);
        EXPECT_EQ(content.summary.end->reason, expected_segment == writer->segment() ? 0U : 2U);
        EXPECT_FALSE(storage->files.at(*name).open);
        expected_segment--;
    }
}
INSTANTIATE_TEST_SUITE_P(Sizes, MaxBytes,
                         testing::Values(Bounds{MIN_MAX_BYTES, 2, 1}, Bounds{MIN_MAX_BYTES, 2, 40},
                                         Bounds{100'000, 20, 7}, Bounds{131'071, 100, 100},
                                         Bounds{1 << 20, 2, 1000}, Bounds{1 << 20, 1000, 50},
                                         Bounds{3'333'333, 10, 333}));

TEST_F(Rotation, ABurstWithinOneTickStaysInTheLimitWithRotateIfDue) {
    auto with = options();
    with.max_bytes = 1 << 20;
    make(std::move(with));
    writer->begin(now_ns);
    for (int i = 0; i < 50'000; i++) {
        append_qp();
        if (i % 64 == 0)
            writer->rotate_if_due(now_ns);
    }
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_LE(storage->most_bytes, 1U << 20);
    EXPECT_EQ(writer->lost_records(), 0U);
    EXPECT_EQ(all_qpns().back(), n_appended - 1);
}

TEST_F(Rotation, ABurstWithoutAnyTickIsCutAtTheLimitAndCounted) {
    auto with = options();
    with.max_bytes = 256 << 10;
    make(std::move(with));
    writer->begin(now_ns);
    for (int i = 0; i < 20'000; i++)
        append_qp();
    EXPECT_GT(writer->lost_records(), 0U);
    ASSERT_TRUE(writer->take_failure());
    writer->flush(now_ns += SECOND_NS);
    append_qp();
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_LE(storage->most_bytes, 256U << 10);
    EXPECT_EQ(all_qpns().back(), n_appended - 1);
}

TEST_F(Rotation, TheEndFitsIntoAFileThatIsFullToTheLimit) {
    auto with = options();
    with.max_bytes = MIN_MAX_BYTES;
    with.block_bytes = 1; // a block for each record: as near to the limit as can be
    make(std::move(with));
    writer->begin(now_ns);
    while (writer->lost_records() == 0)
        writer->append(test::make_record<cw_end>(CW_KIND_CLOCK, now_ns).header);
    EXPECT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_GT(storage->most_bytes, MIN_MAX_BYTES - 4096);
    EXPECT_LE(storage->most_bytes, MIN_MAX_BYTES);
    EXPECT_TRUE(read_file_content(storage->files.at(writer->file_name()).bytes).summary.complete());
}

TEST_F(Rotation, ALargePreambleDoesNotMakeASegmentOfEveryTick) {
    n_preamble_devices = 3000;
    auto with = options();
    with.max_bytes = 1 << 20;
    make(std::move(with));
    writer->begin(now_ns);
    ASSERT_GT(writer->bytes_on_disk(), (1U << 20) / 8);
    for (int tick = 0; tick < 90; tick++) {
        for (int i = 0; i < 30; i++)
            append_qp();
        writer->flush(now_ns += SECOND_NS);
    }
    EXPECT_EQ(writer->segment(), 1U);
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
}

TEST_F(Rotation, APreambleBeyondTheLimitNeverExceedsIt) {
    n_preamble_devices = 2000;
    auto with = options();
    with.max_bytes = MIN_MAX_BYTES;
    make(std::move(with));
    writer->begin(now_ns);
    append_qp();
    writer->flush(now_ns);
    EXPECT_LE(storage->most_bytes, MIN_MAX_BYTES);
    EXPECT_PRED2(has, writer->take_failure().value_or(Error{}).message, "--max");
    EXPECT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(writer->lost_records(), 1U);
}

TEST_F(Rotation, DiskFullWhileRotatingLosesNothingThatIsNotCounted) {
    auto with = options();
    with.max_bytes = 1 << 20;
    make(std::move(with));
    writer->begin(now_ns);
    storage->capacity_bytes = 500'000;
    for (int tick = 0; tick < 400; tick++) {
        for (int i = 0; i < 30; i++)
            append_qp();
        writer->flush(now_ns += SECOND_NS);
        if (tick == 300)
            storage->capacity_bytes = ~0ULL;
    }
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(writer->deleted_segments(), 0U);
    EXPECT_EQ(all_qpns().size() + writer->lost_records(), n_appended);
    for (const auto &[name, content] : storage->files)
        EXPECT_FALSE(read_file_content(content.bytes).summary.cut);
}

TEST_F(Rotation, KeepsRecordingIntoTheOldSegmentWhenNoNewOneCanBeMade) {
    auto with = options();
    with.keep_ns = 80 * SECOND_NS;
    make(std::move(with));
    writer->begin(now_ns);
    storage->create_error = -ENOSPC;
    for (int tick = 0; tick < 30; tick++) {
        append_qp();
        writer->flush(now_ns += SECOND_NS);
    }
    EXPECT_EQ(writer->segment(), 0U);
    storage->create_error = 0;
    append_qp();
    writer->flush(now_ns += SECOND_NS);
    EXPECT_EQ(writer->segment(), 1U);
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(all_qpns().size(), n_appended);
    EXPECT_EQ(writer->lost_records(), 0U);
}

// A segment that starts after the end would start with later records.
TEST_F(Rotation, NoSegmentStartsAfterTheEnd) {
    auto with = options();
    with.keep_ns = 80 * SECOND_NS;
    make(std::move(with));
    writer->begin(now_ns);
    writer->stop_rotating();
    for (int tick = 0; tick < 30; tick++) {
        append_qp();
        writer->rotate_if_due(now_ns += SECOND_NS);
        writer->flush(now_ns);
    }
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(writer->segment(), 0U);
    EXPECT_EQ(n_preambles, 1U);
    EXPECT_EQ(all_qpns().size(), n_appended);
}

class Keep : public Rotation, public testing::WithParamInterface<std::uint64_t> {};

TEST_P(Keep, OlderSegmentsAreDeletedAndTheLimitIsUsed) {
    const std::uint64_t keep_ns = GetParam() * (SECOND_NS / 10);
    auto with = options();
    with.keep_ns = keep_ns;
    make(std::move(with));
    writer->begin(now_ns);
    const std::uint64_t begin_ns = now_ns;
    while (now_ns < begin_ns + 4 * keep_ns) {
        append_qp();
        now_ns += SECOND_NS;
        // Just before the flush everything on disk is at its oldest.
        std::uint64_t oldest_ns = now_ns;
        for (const auto &[name, content] : storage->files)
            for (const std::uint64_t time_ns : read_file_content(content.bytes).times_ns)
                oldest_ns = std::min(oldest_ns, time_ns);
        ASSERT_LE(now_ns - oldest_ns, keep_ns);
        if (GetParam() >= 300 && now_ns > begin_ns + 2 * keep_ns) {
            ASSERT_GE(now_ns - oldest_ns, keep_ns * 7 / 10);
        }
        writer->flush(now_ns);
    }
    EXPECT_GT(writer->deleted_segments(), 3U);
}
// In tenths of a second: not only multiples of the tick.
INSTANTIATE_TEST_SUITE_P(Times, Keep, testing::Values(40, 55, 103, 305, 970, 1407));

} // namespace
} // namespace collwire::capture
