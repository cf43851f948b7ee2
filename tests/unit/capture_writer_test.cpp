// SPDX-License-Identifier: Apache-2.0
#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "tests/unit/capture_writer_fixture.h"

namespace collwire::capture {
namespace {

using test::has;
using test::make_record;
using test::read_file_content;
using test::SECOND_NS;
using test::START_REALTIME_NS;

class Writer : public test::WriterFixture {};

TEST_F(Writer, WritesThePreambleFirstAndTheEndLast) {
    make(options());
    EXPECT_EQ(writer->file_name(), "node0-20261121T034500.123Z.cwc");
    append_qp();
    writer->begin(now_ns);
    append_qp();
    ASSERT_TRUE(writer->close(now_ns + 9, 1, 3, now_ns + 5));
    const auto content = read_file_content(storage->files.at(writer->file_name()).bytes);
    EXPECT_EQ(content.kinds,
              (std::vector<std::uint16_t>{CW_KIND_NODE, CW_KIND_DEVICE, CW_KIND_DEVICE,
                                          CW_KIND_QP_CREATE, CW_KIND_QP_CREATE, CW_KIND_END}));
    EXPECT_TRUE(content.summary.complete());
    EXPECT_EQ(content.summary.end->reason, 1U);
    EXPECT_EQ(content.summary.end->exit_status, 3U);
    EXPECT_EQ(content.summary.last_time_ns, now_ns + 5);
    EXPECT_EQ(content.summary.start_realtime_ns, START_REALTIME_NS);
    EXPECT_EQ(writer->lost_records(), 0U);
    EXPECT_FALSE(writer->take_failure());
}

TEST_F(Writer, AFileWithoutCloseIsReadableUpToTheLastFlush) {
    make(options());
    writer->begin(now_ns);
    append_qp();
    writer->flush(now_ns);
    append_qp();
    const auto content = read_file_content(storage->files.at(writer->file_name()).bytes);
    EXPECT_EQ(content.qpns.size(), 1U);
    EXPECT_FALSE(content.summary.complete());
    EXPECT_FALSE(content.summary.cut);
}

TEST_F(Writer, OneWriteABlock) {
    make(options());
    writer->begin(now_ns);
    const unsigned before = storage->writes;
    append_qp();
    writer->flush(now_ns);
    EXPECT_EQ(storage->writes, before + 1);
    writer->flush(now_ns);
    EXPECT_EQ(storage->writes, before + 1);
}

TEST_F(Writer, WritesABlockWhenEnoughIsBuffered) {
    auto with = options();
    with.block_bytes = 1000;
    make(std::move(with));
    writer->begin(now_ns);
    for (int i = 0; i < 5; i++)
        append_qp();
    EXPECT_EQ(read_file_content(storage->files.at(writer->file_name()).bytes).qpns.size(), 5U);
}

TEST_F(Writer, NeverOverwritesAndNeverDeletesWhatItDidNotMake) {
    storage->files["node0-20261121T034500.123Z.cwc"] = {};
    storage->files["node0-20261121T034500.123Z-1.cwc"] = {};
    auto with = options();
    with.max_bytes = MIN_MAX_BYTES;
    make(std::move(with));
    EXPECT_EQ(writer->file_name(), "node0-20261121T034500.123Z-2.cwc");
    writer->begin(now_ns);
    for (int i = 0; i < 4000; i++) {
        append_qp();
        if (i % 10 == 0)
            writer->flush(now_ns += SECOND_NS);
    }
    EXPECT_GT(writer->deleted_segments(), 10U);
    EXPECT_TRUE(storage->files.contains("node0-20261121T034500.123Z.cwc"));
    EXPECT_TRUE(storage->files.contains("node0-20261121T034500.123Z-1.cwc"));
}

TEST_F(Writer, HostNameCannotLeaveTheDirectory) {
    auto with = options();
    with.host = "../../etc/x y";
    make(std::move(with));
    EXPECT_EQ(writer->file_name(), "_.._.._etc_x_y-20261121T034500.123Z.cwc");
}

TEST_F(Writer, RefusesALimitThatIsTooSmall) {
    auto with = options();
    with.max_bytes = MIN_MAX_BYTES - 1;
    const auto made =
        CaptureWriter::create(std::move(with), [](source::RecordSink &, std::uint32_t) {});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.failure().kind, ErrorKind::Usage);
    EXPECT_TRUE(storage->files.empty());
}

TEST_F(Writer, CountsARecordOfImpossibleLength) {
    make(options());
    writer->begin(now_ns);
    for (const std::uint32_t length : {0U, 8U, 23U, MAX_RECORD_BYTES + 8, 0xfffffff8U}) {
        cw_header header{};
        header.length_bytes = length;
        writer->append(header);
    }
    EXPECT_EQ(writer->lost_records(), 5U);
    append_qp();
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(all_qpns().size(), 1U);
}

TEST_F(Writer, HoldsOneBlockBeforeBeginAndCountsTheRest) {
    make(options());
    const std::uint32_t fits = MAX_BLOCK_RAW_BYTES / sizeof(cw_qp_event);
    for (std::uint32_t i = 0; i < fits + 10; i++)
        append_qp();
    EXPECT_EQ(writer->lost_records(), 10U);
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(all_qpns().size(), fits);
}

TEST_F(Writer, APreambleBeyondOneBlockIsSplit) {
    n_preamble_devices = 2UL * MAX_BLOCK_RAW_BYTES / sizeof(cw_device);
    make(options());
    writer->begin(now_ns);
    append_qp();
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    const auto content = read_file_content(storage->files.at(writer->file_name()).bytes);
    EXPECT_EQ(content.summary.records, n_preamble_devices + 3U);
    EXPECT_TRUE(content.summary.complete());
    EXPECT_EQ(n_preambles, 1U);
}

// ---- disks that fill up or break

TEST_F(Writer, ShortAndInterruptedWritesContinue) {
    make(options());
    storage->longest_write_bytes = 7;
    storage->interrupts = 3;
    writer->begin(now_ns);
    for (int i = 0; i < 50; i++)
        append_qp();
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(all_qpns().size(), 50U);
    EXPECT_EQ(writer->lost_records(), 0U);
}

class FullDisk : public Writer, public testing::WithParamInterface<bool> {};

TEST_P(FullDisk, EndsAtAGoodBlockCountsTheLossAndGoesOnWhenThereIsRoom) {
    storage->keeps_part_of_failed_write = GetParam();
    make(options());
    writer->begin(now_ns);
    storage->capacity_bytes = storage->used_bytes() + 3000;
    for (int tick = 0; tick < 20; tick++) {
        for (int i = 0; i < 5; i++)
            append_qp();
        writer->flush(now_ns += SECOND_NS);
        const auto content = read_file_content(storage->files.at(writer->file_name()).bytes);
        EXPECT_FALSE(content.summary.cut) << content.summary.describe();
        EXPECT_EQ(content.qpns.size() + writer->lost_records(), n_appended);
    }
    const std::uint64_t lost = writer->lost_records();
    EXPECT_GT(lost, 0U);
    const auto failure = writer->take_failure();
    ASSERT_TRUE(failure);
    EXPECT_PRED2(has, failure->message, "No space left on device");
    EXPECT_PRED2(has, failure->message, "Fix:");
    EXPECT_FALSE(writer->take_failure());

    storage->capacity_bytes = ~0ULL;
    const std::uint32_t preambles = n_preambles;
    append_qp();
    writer->flush(now_ns += SECOND_NS);
    EXPECT_EQ(n_preambles, preambles + 1) << "the state is written again after a loss";
    append_qp();
    ASSERT_TRUE(writer->close(now_ns, 3, 5));
    EXPECT_EQ(n_preambles, preambles + 1);
    EXPECT_EQ(writer->lost_records(), lost);
    const auto content = read_file_content(storage->files.at(writer->file_name()).bytes);
    EXPECT_TRUE(content.summary.complete());
    EXPECT_EQ(content.segments, (std::vector<std::uint32_t>{0, 0}));
    EXPECT_EQ(content.qpns.size() + lost, n_appended);
    EXPECT_EQ(content.qpns.back(), n_appended - 1);
}
INSTANTIATE_TEST_SUITE_P(Partial, FullDisk, testing::Bool());

TEST_F(Writer, DiskFullFromTheFirstPreambleOn) {
    make(options());
    storage->capacity_bytes = storage->used_bytes() + 10;
    writer->begin(now_ns);
    append_qp();
    writer->flush(now_ns);
    EXPECT_EQ(read_file_content(storage->files.at(writer->file_name()).bytes).kinds.size(), 0U);
    storage->capacity_bytes = ~0ULL;
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    const auto content = read_file_content(storage->files.at(writer->file_name()).bytes);
    EXPECT_EQ(content.kinds.front(), CW_KIND_NODE);
    EXPECT_EQ(content.qpns.size(), 1U);
    EXPECT_EQ(writer->lost_records(), 0U);
}

TEST_F(Writer, ABrokenDiskThatCannotTruncateEitherStillReadsToTheLastGoodBlock) {
    make(options());
    writer->begin(now_ns);
    append_qp();
    writer->flush(now_ns);
    storage->truncate_error = -EIO;
    storage->keeps_part_of_failed_write = true;
    storage->capacity_bytes = storage->used_bytes() + 60;
    append_qp();
    writer->flush(now_ns);
    auto content = read_file_content(storage->files.at(writer->file_name()).bytes);
    EXPECT_EQ(content.qpns.size(), 1U);
    EXPECT_TRUE(content.summary.cut);
    storage->capacity_bytes = ~0ULL;
    storage->truncate_error = 0;
    ASSERT_TRUE(writer->close(now_ns, 0, 0));
    content = read_file_content(storage->files.at(writer->file_name()).bytes);
    EXPECT_TRUE(content.summary.complete());
    EXPECT_EQ(writer->lost_records(), 1U);
}

TEST_F(Writer, ReportsAnEndThatCannotBeWritten) {
    make(options());
    writer->begin(now_ns);
    storage->write_error = -EIO;
    const auto closed = writer->close(now_ns, 0, 0);
    ASSERT_FALSE(closed);
    EXPECT_PRED2(has, closed.failure().message, "end record");
    EXPECT_EQ(writer->lost_records(), 0U);
    EXPECT_PRED2(has, writer->take_failure()->message, "Input/output error");
}

TEST_F(Writer, LostEndWithOtherLossIsLossNotFailure) {
    make(options());
    writer->begin(now_ns);
    storage->write_error = -ENOSPC;
    append_qp();
    EXPECT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(writer->lost_records(), 1U);
    EXPECT_PRED2(has, writer->take_failure()->message, "No space left");
}

TEST_F(Writer, EndRecordCountsLastMomentLoss) {
    make(options());
    writer->begin(now_ns);
    storage->capacity_bytes = storage->used_bytes() + 128; // room for an end
    append_qp();
    EXPECT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(writer->lost_records(), 1U);
    const auto content = read_file_content(storage->files.at(writer->file_name()).bytes);
    ASSERT_TRUE(content.summary.complete());
    EXPECT_EQ(content.summary.end->exit_status, 5U);
}

TEST_F(Writer, EmptyFileIsRemoved) {
    make(options());
    storage->capacity_bytes = storage->used_bytes();
    writer->begin(now_ns);
    append_qp();
    EXPECT_TRUE(writer->close(now_ns, 0, 0));
    EXPECT_EQ(writer->lost_records(), 1U);
    EXPECT_TRUE(storage->files.empty());
    EXPECT_EQ(writer->bytes_on_disk(), 0U);

    storage->capacity_bytes = ~0ULL;
    make(options());
    writer.reset(); // the recording did not begin
    EXPECT_TRUE(storage->files.empty());

    storage->capacity_bytes = 10;
    EXPECT_FALSE(CaptureWriter::create(options(), [](source::RecordSink &, std::uint32_t) {}));
    EXPECT_TRUE(storage->files.empty());
}

TEST_F(Writer, ReportsALateErrorOfTheFileSystem) {
    make(options());
    writer->begin(now_ns);
    storage->sync_error = -EDQUOT;
    EXPECT_FALSE(writer->close(now_ns, 0, 0));
}

TEST_F(Writer, CannotMakeTheFile) {
    storage->create_error = -EROFS;
    const auto made = CaptureWriter::create(options(), [](source::RecordSink &, std::uint32_t) {});
    ASSERT_FALSE(made);
    EXPECT_PRED2(has, made.failure().message, "Read-only file system");
    storage->create_error = -EACCES;
    EXPECT_EQ(
        CaptureWriter::create(options(), [](source::RecordSink &, std::uint32_t) {}).failure().kind,
        ErrorKind::NotPermitted);
}

} // namespace
} // namespace collwire::capture
