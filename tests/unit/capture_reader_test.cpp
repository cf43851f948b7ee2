// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/crc32c.h"
#include "correlate/capture/encoder.h"
#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"
#include "tests/support/capture_builder.h"

namespace collwire::capture {
namespace {

using test::CaptureBuilder;
using test::make_record;
using test::set_text;

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

struct Seen {
    cw_header header;
    Bytes bytes;
};

struct ReadBack {
    ReadSummary summary;
    std::vector<Seen> records;
};

ReadBack read_good(std::span<const std::byte> file) {
    ReadBack back;
    auto summary =
        read_capture(file, [&](const cw_header &header, std::span<const std::byte> record) {
            back.records.push_back({header, Bytes(record.begin(), record.end())});
        });
    EXPECT_TRUE(summary) << summary.failure().message;
    if (summary)
        back.summary = *std::move(summary);
    return back;
}

Error read_bad(std::span<const std::byte> file) {
    std::size_t visited = 0;
    auto summary =
        read_capture(file, [&](const cw_header &, std::span<const std::byte>) { visited++; });
    EXPECT_FALSE(summary);
    EXPECT_EQ(visited, 0U);
    return summary ? Error{} : summary.failure();
}

cw_node a_node() {
    auto node = make_record<cw_node>(CW_KIND_NODE, 1000);
    node.session_id = 42;
    set_text(node.hostname, "node0");
    return node;
}

cw_qp_event a_qp(std::uint32_t qpn) {
    auto qp = make_record<cw_qp_event>(CW_KIND_QP_CREATE, 2000 + qpn, 3);
    qp.key.qpn = qpn;
    qp.key.generation_ns = qp.header.time_ns;
    return qp;
}

// Three blocks: node; two QPs; counters and the end.
CaptureBuilder small_capture() {
    CaptureBuilder builder({.start_realtime_ns = 777});
    builder.add(a_node()).end_block();
    builder.add(a_qp(17)).add(a_qp(18)).end_block();
    builder.add_samples(
        2990, 3000, {{.id = 1, .reserved = 0, .value = 11}, {.id = 2, .reserved = 0, .value = 22}});
    builder.add_end(4000, 1, 5);
    return builder;
}

TEST(CaptureReader, GivesBackWhatWasWritten) {
    auto builder = small_capture();
    const auto file = builder.bytes();
    const auto back = read_good(file);
    EXPECT_EQ(back.summary.schema_major, CW_SCHEMA_MAJOR);
    EXPECT_EQ(back.summary.schema_minor, CW_SCHEMA_MINOR);
    EXPECT_EQ(back.summary.start_realtime_ns, 777U);
    EXPECT_EQ(back.summary.blocks, 3U);
    EXPECT_EQ(back.summary.records, 5U);
    EXPECT_EQ(back.summary.unknown_records, 0U);
    EXPECT_EQ(back.summary.first_time_ns, 1000U);
    EXPECT_EQ(back.summary.last_time_ns, 4000U);
    EXPECT_EQ(back.summary.good_bytes, file.size());
    EXPECT_TRUE(back.summary.complete());
    ASSERT_TRUE(back.summary.end.has_value());
    EXPECT_EQ(back.summary.end->reason, 1U);
    EXPECT_EQ(back.summary.end->exit_status, 5U);

    ASSERT_EQ(back.records.size(), 5U);
    const auto node = record_as<cw_node>(back.records[0].bytes);
    EXPECT_EQ(node.session_id, 42U);
    EXPECT_EQ(text_of(node.hostname), "node0");
    const auto qp = record_as<cw_qp_event>(back.records[2].bytes);
    EXPECT_EQ(qp.key.qpn, 18U);
    EXPECT_EQ(qp.header.cpu, 3U);
    EXPECT_EQ(back.records[2].header.time_ns, 2018U);
    const auto samples = samples_of(back.records[3].bytes);
    ASSERT_EQ(samples.size(), 2U);
    EXPECT_EQ(samples[1].id, 2U);
    EXPECT_EQ(samples[1].value, 22U);
}

TEST(CaptureReader, TruncatedAtEveryByteGivesEveryWholeBlock) {
    auto builder = small_capture();
    const auto file = builder.bytes();
    const std::vector<std::size_t> ends = builder.block_ends();
    const std::vector<std::size_t> records_upto = {0, 1, 3, 5};
    for (std::size_t size = 0; size < file.size(); size++) {
        SCOPED_TRACE(size);
        // A copy of exactly this size, so that AddressSanitizer sees a read past its end.
        const Bytes cut_file(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
        if (size < sizeof(FileHeader)) {
            const Error failure = read_bad(cut_file);
            EXPECT_EQ(failure.kind, ErrorKind::BadInput);
            EXPECT_PRED2(has, failure.message, "offset " + std::to_string(size));
            EXPECT_FALSE(has(failure.message, "\n"));
            continue;
        }
        const auto back = read_good(cut_file);
        const auto whole = static_cast<std::size_t>(
            std::count_if(ends.begin(), ends.end(), [&](std::size_t end) { return end <= size; }));
        const std::size_t good = whole == 0 ? sizeof(FileHeader) : ends[whole - 1];
        EXPECT_EQ(back.summary.blocks, whole);
        EXPECT_EQ(back.records.size(), records_upto[whole]);
        EXPECT_EQ(back.summary.good_bytes, good);
        EXPECT_FALSE(back.summary.complete());
        EXPECT_EQ(back.summary.cut.has_value(), size != good);
        if (back.summary.cut) {
            EXPECT_EQ(back.summary.cut->offset_bytes, good);
            EXPECT_PRED2(has, back.summary.describe(), "truncated");
            EXPECT_PRED2(has, back.summary.describe(), "offset " + std::to_string(good));
        } else {
            EXPECT_PRED2(has, back.summary.describe(), "no end record");
        }
    }
}

TEST(CaptureReader, OneFlippedBitAnywhereIsFound) {
    auto builder = small_capture();
    const auto file = builder.bytes();
    const std::vector<std::size_t> ends = builder.block_ends();
    for (std::size_t byte = 0; byte < file.size(); byte++)
        for (unsigned bit = 0; bit < 8; bit++) {
            SCOPED_TRACE(testing::Message() << "byte " << byte << " bit " << bit);
            Bytes bad = file;
            bad[byte] ^= std::byte{1} << bit;
            if (byte < sizeof(FileHeader)) {
                EXPECT_EQ(read_bad(bad).kind, ErrorKind::BadInput);
                continue;
            }
            const auto back = read_good(bad);
            const auto whole = static_cast<std::size_t>(std::count_if(
                ends.begin(), ends.end(), [&](std::size_t end) { return end <= byte; }));
            EXPECT_EQ(back.summary.blocks, whole);
            ASSERT_TRUE(back.summary.cut.has_value());
            EXPECT_EQ(back.summary.cut->offset_bytes,
                      whole == 0 ? sizeof(FileHeader) : ends[whole - 1]);
            EXPECT_FALSE(back.summary.cut->reason.empty());
        }
}

TEST(CaptureReader, RefusesAForeignFile) {
    const std::string_view elf("\x7f"
                               "ELF and then some more bytes, longer than a header");
    const Error failure = read_bad(std::as_bytes(std::span(elf)));
    EXPECT_EQ(failure.kind, ErrorKind::BadInput);
    EXPECT_PRED2(has, failure.message, "offset 0: foreign file");
    const std::string_view short_foreign("hi");
    EXPECT_PRED2(has, read_bad(std::as_bytes(std::span(short_foreign))).message, "foreign");
    EXPECT_PRED2(has, read_bad({}).message, "empty file");
    EXPECT_PRED2(has, read_bad({}).message, "Fix: ");
}

TEST(CaptureReader, RefusesANewerMajorVersion) {
    CaptureBuilder builder({.schema_major = CW_SCHEMA_MAJOR + 1, .schema_minor = 3});
    builder.add(a_node());
    const Error failure = read_bad(builder.bytes());
    EXPECT_EQ(failure.kind, ErrorKind::BadInput);
    EXPECT_PRED2(has, failure.message, "offset 8: schema version 2.3");
    EXPECT_PRED2(has, failure.message, "Fix:");
}

TEST(CaptureReader, TakesANewerMinorVersionWithLongerRecordsAndNewKinds) {
    struct LongerEnd {
        cw_end end;
        std::uint64_t appended;
    };
    LongerEnd longer{.end = make_record<cw_end>(CW_KIND_END, 9), .appended = 99};
    longer.end.header.length_bytes = sizeof(longer);
    longer.end.exit_status = 3;
    auto unknown = make_record<cw_end>(999, 8);
    CaptureBuilder builder({.schema_minor = CW_SCHEMA_MINOR + 1});
    builder.add(a_node()).add(unknown).add_header(longer.end.header);
    const auto back = read_good(builder.bytes());
    EXPECT_EQ(back.summary.schema_minor, CW_SCHEMA_MINOR + 1);
    EXPECT_EQ(back.summary.unknown_records, 1U);
    ASSERT_EQ(back.records.size(), 2U);
    EXPECT_EQ(back.records[1].bytes.size(), sizeof(longer));
    EXPECT_EQ(record_as<cw_end>(back.records[1].bytes).exit_status, 3U);
    ASSERT_TRUE(back.summary.complete());
    EXPECT_EQ(back.summary.end->exit_status, 3U);
}

TEST(CaptureReader, ZeroesTheFieldsThatAnOlderRecordDoesNotHave) {
    auto node = a_node();
    node.header.length_bytes = offsetof(cw_node, hostname);
    node.n_cpus = 7;
    CaptureBuilder builder;
    builder.add(node);
    const auto back = read_good(builder.bytes());
    ASSERT_EQ(back.records.size(), 1U);
    const auto read = record_as<cw_node>(back.records[0].bytes);
    EXPECT_EQ(read.n_cpus, 7U);
    EXPECT_EQ(text_of(read.hostname), "");
    EXPECT_EQ(text_of(read.machine_id), "");
}

TEST(CaptureReader, IsNotCompleteWhenRecordsFollowTheEnd) {
    CaptureBuilder builder;
    builder.add_end(1).add(a_node());
    EXPECT_FALSE(read_good(builder.bytes()).summary.complete());
}

TEST(CaptureReader, FullTextFieldIsNotOverrun) {
    auto node = a_node();
    std::memset(node.hostname, 'x', sizeof(node.hostname));
    EXPECT_EQ(text_of(node.hostname).size(), sizeof(node.hostname));
}

TEST(CaptureReader, SamplesNeverExceedTheRecord) {
    auto head = make_record<cw_counter_samples>(CW_KIND_COUNTER_SAMPLES, 1);
    head.n = std::numeric_limits<std::uint32_t>::max();
    const auto bytes = std::as_bytes(std::span(&head, 1));
    EXPECT_TRUE(samples_of(bytes).empty());
    EXPECT_TRUE(samples_of(bytes.first(16)).empty());
}

// ---- blocks with a right checksum and wrong contents

class ForgedBlock : public testing::Test {
protected:
    // The second block of small_capture() with its header edited and sealed again.
    template <typename Edit> Cut read_forged(Edit edit) {
        auto builder = small_capture();
        Bytes file = builder.bytes();
        const std::size_t begin = builder.block_ends()[0];
        const std::size_t end = builder.block_ends()[1];
        BlockHeader header;
        std::memcpy(&header, file.data() + begin, sizeof(header));
        edit(header);
        std::memcpy(file.data() + begin, &header, sizeof(header));
        seal_block(std::span(file).subspan(begin, end - begin));
        const auto back = read_good(file);
        EXPECT_EQ(back.records.size(), 1U);
        EXPECT_TRUE(back.summary.cut.has_value());
        Cut cut = back.summary.cut.value_or(Cut{});
        EXPECT_EQ(cut.offset_bytes, begin);
        EXPECT_PRED2(has, cut.reason, "block 1: ");
        return cut;
    }
    // A capture whose only block holds records of these lengths, right or not, in `room_bytes`
    // bytes.
    static std::string read_lengths(const std::vector<std::uint32_t> &lengths,
                                    std::size_t room_bytes) {
        Bytes raw(room_bytes);
        std::size_t offset = 0;
        for (const std::uint32_t length : lengths) {
            auto header = make_record<cw_end>(CW_KIND_END, 5).header;
            header.length_bytes = length;
            std::memcpy(raw.data() + offset, &header,
                        std::min(sizeof(header), room_bytes - offset));
            offset += length;
        }
        BlockHeader header{.raw_bytes = static_cast<std::uint32_t>(raw.size()),
                           .n_records = static_cast<std::uint32_t>(lengths.size())};
        Bytes block(sizeof(header) + ZSTD_compressBound(raw.size()));
        const std::size_t payload_bytes =
            ZSTD_compress(block.data() + sizeof(header), block.size() - sizeof(header), raw.data(),
                          raw.size(), 1);
        header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
        block.resize(sizeof(header) + payload_bytes);
        std::memcpy(block.data(), &header, sizeof(header));
        seal_block(block);
        Bytes file = encode_file_header({});
        file.insert(file.end(), block.begin(), block.end());
        const auto back = read_good(file);
        return back.summary.cut ? back.summary.cut->reason : "good";
    }
};

TEST_F(ForgedBlock, RawSizeBeyondTheLimit) {
    EXPECT_PRED2(has,
                 read_forged([](BlockHeader &h) { h.raw_bytes = MAX_BLOCK_RAW_BYTES + 8; }).reason,
                 "beyond the limit");
}
TEST_F(ForgedBlock, PayloadSizeBeyondTheLimit) {
    EXPECT_PRED2(has, read_forged([](BlockHeader &h) { h.payload_bytes = 0xffffffff; }).reason,
                 "beyond the limit");
}
TEST_F(ForgedBlock, RawSizeTooLarge) {
    EXPECT_PRED2(has, read_forged([](BlockHeader &h) { h.raw_bytes += 8; }).reason,
                 "its header says");
}
TEST_F(ForgedBlock, RawSizeTooSmall) {
    EXPECT_PRED2(has, read_forged([](BlockHeader &h) { h.raw_bytes -= 8; }).reason, "zstd");
}
TEST_F(ForgedBlock, WrongRecordCount) {
    EXPECT_PRED2(has, read_forged([](BlockHeader &h) { h.n_records++; }).reason,
                 "2 records and its header says 3");
}
TEST_F(ForgedBlock, WrongSequenceNumber) {
    EXPECT_PRED2(has, read_forged([](BlockHeader &h) { h.sequence = 7; }).reason, "out of order");
}
TEST_F(ForgedBlock, FlagThatMustBeKnown) {
    EXPECT_PRED2(has, read_forged([](BlockHeader &h) { h.flags = 1U << 16; }).reason, "newer");
}

TEST_F(ForgedBlock, RecordLengths) {
    EXPECT_EQ(read_lengths({24, 24}, 48), "good");
    EXPECT_PRED2(has, read_lengths({24, 0}, 48),
                 "record 1 (byte 24 of its records) has a length of 0");
    EXPECT_PRED2(has, read_lengths({8}, 48), "length of 8");
    EXPECT_PRED2(has, read_lengths({28}, 48), "length of 28");
    EXPECT_PRED2(has, read_lengths({24, 32}, 48), "length of 32");
    EXPECT_PRED2(has, read_lengths({0xfffffff8}, 48), "length of 4294967288");
    EXPECT_PRED2(has, read_lengths({24, 16}, 32), "record 1 is cut off");
    EXPECT_PRED2(has, read_lengths({MAX_RECORD_BYTES + 8}, MAX_RECORD_BYTES + 8),
                 "has a length of");
}

TEST(CaptureReader, IgnoresAFlagThatNeedNotBeKnown) {
    auto builder = small_capture();
    Bytes file = builder.bytes();
    const std::size_t begin = builder.block_ends()[0];
    file[begin + offsetof(BlockHeader, flags)] = std::byte{0x80};
    seal_block(std::span(file).subspan(begin, builder.block_ends()[1] - begin));
    EXPECT_TRUE(read_good(file).summary.complete());
}

// ---- checksum

std::uint32_t crc_of(const Bytes &bytes) {
    return crc32c(bytes);
}

// RFC 3720 appendix B.4.
TEST(Crc32c, Rfc3720Vectors) {
    EXPECT_EQ(crc_of(Bytes(32, std::byte{0})), 0x8a9136aaU);
    EXPECT_EQ(crc_of(Bytes(32, std::byte{0xff})), 0x62a8ab43U);
    Bytes up(32);
    Bytes down(32);
    for (unsigned i = 0; i < 32; i++) {
        up[i] = static_cast<std::byte>(i);
        down[i] = static_cast<std::byte>(31 - i);
    }
    EXPECT_EQ(crc_of(up), 0x46dd794eU);
    EXPECT_EQ(crc_of(down), 0x113fdb5cU);
    const std::string_view digits("123456789");
    EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283U);
}

TEST(Crc32c, PiecesGiveTheSumOfTheWhole) {
    Bytes bytes(100);
    for (std::size_t i = 0; i < bytes.size(); i++)
        bytes[i] = static_cast<std::byte>(i * 37);
    const std::uint32_t whole = crc32c(bytes);
    for (std::size_t split = 0; split <= bytes.size(); split++)
        EXPECT_EQ(crc32c(std::span(bytes).subspan(split), crc32c(std::span(bytes).first(split))),
                  whole);
}

} // namespace
} // namespace collwire::capture
