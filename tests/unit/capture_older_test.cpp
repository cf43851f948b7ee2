// SPDX-License-Identifier: Apache-2.0
// What a recording with limits does to the captures that it finds.
#include "tests/unit/capture_writer_fixture.h"

#include <algorithm>

#include "userspace/capture/file_name.h"

namespace collwire::capture {
namespace {

using test::make_record;
using test::SECOND_NS;
using test::START_REALTIME_NS;
using Names = std::vector<std::string>;

TEST(FileName, OfAHost) {
    for (const char *name : {"n.1-20261121T034500.123Z.cwc", "n.1-20261121T034500.123Z-12.cwc"})
        EXPECT_TRUE(is_name_of_host(name, "n.1")) << name;
    for (const char *name :
         {"n.1-20261121T034500.123Z", "n.1-20261121T034500.123Z.cwc2", "n.1-20261121T034500.cwc",
          "n.1-20261121T034500.123Z-.cwc", "n.1-20261121T034500.123Z-1x.cwc", "n.1-my-notes.cwc",
          "n.12-20261121T034500.123Z.cwc", "x-n.1-20261121T034500.123Z.cwc", "n.1-", ""})
        EXPECT_FALSE(is_name_of_host(name, "n.1")) << name;
    EXPECT_TRUE(is_name_of_host(file_stem("a b/c", START_REALTIME_NS) + ".cwc", "a b/c"));
    EXPECT_TRUE(is_name_of_host(file_stem("", START_REALTIME_NS) + ".cwc", ""));
}

class Older : public test::WriterFixture {
protected:
    // A recording of `records` queue pairs that begins so long before the one under test.
    std::string record(std::uint64_t before_ns, int records, std::uint32_t flags,
                       const std::string &hostname = "node0", bool closes = true) {
        WriterOptions with = options();
        with.realtime_ns = [before_ns] { return START_REALTIME_NS - before_ns; };
        auto made = CaptureWriter::create(std::move(with), node(flags, hostname));
        EXPECT_TRUE(made);
        (*made)->begin(1);
        for (int i = 0; i < records; ++i) {
            auto qp = make_record<cw_qp_event>(CW_KIND_QP_CREATE, now_ns, 1);
            fill(qp.device);
            (*made)->append(qp.header);
        }
        (*made)->flush(2);
        std::string name = (*made)->file_name();
        if (closes)
            EXPECT_TRUE((*made)->close(3, 0, 0));
        else
            (*made).reset(); // killed
        return name;
    }
    static Preamble node(std::uint32_t flags, std::string hostname) {
        return [flags, hostname = std::move(hostname)](RecordSink &sink, std::uint32_t segment) {
            auto node = make_record<cw_node>(CW_KIND_NODE, 1);
            node.flags = flags;
            node.segment = segment;
            hostname.copy(node.hostname, sizeof(node.hostname) - 1);
            sink.append(node.header);
        };
    }
    void begin(WriterOptions with) {
        auto made = CaptureWriter::create(std::move(with), node(CW_NODE_ROTATES, "node0"));
        ASSERT_TRUE(made) << made.failure().message;
        writer = *std::move(made);
        writer->begin(now_ns);
    }
    [[nodiscard]] bool is_there(const std::string &name) const {
        return storage->files.contains(name);
    }
};

TEST_F(Older, SegmentsAreDeletedByAge) {
    now_ns = 7 * SECOND_NS; // the node was booted since
    const std::string old = record(100 * SECOND_NS, 1, CW_NODE_ROTATES);
    const std::string killed = record(95 * SECOND_NS, 1, CW_NODE_ROTATES, "node0", false);
    const std::string young = record(50 * SECOND_NS, 1, CW_NODE_ROTATES);
    WriterOptions with = options();
    with.keep_ns = 80 * SECOND_NS;
    begin(std::move(with));
    EXPECT_FALSE(is_there(old));
    EXPECT_FALSE(is_there(killed));
    EXPECT_TRUE(is_there(young));
    writer->flush(now_ns + 20 * SECOND_NS);
    EXPECT_TRUE(is_there(young));
    writer->flush(now_ns + 30 * SECOND_NS);
    EXPECT_FALSE(is_there(young));
    EXPECT_TRUE(is_there(writer->file_name()));
}

TEST_F(Older, SegmentsAreDeletedBySizeTheOldestFirst) {
    const std::string second = record(20 * SECOND_NS, 400, CW_NODE_ROTATES);
    const std::string first = record(30 * SECOND_NS, 400, CW_NODE_ROTATES);
    const std::string third = record(10 * SECOND_NS, 400, CW_NODE_ROTATES);
    const std::uint64_t each_bytes = storage->files.at(first).bytes.size();
    const auto limit_bytes = std::max<std::uint64_t>(MIN_MAX_BYTES, 3 * each_bytes);
    WriterOptions with = options();
    with.max_bytes = limit_bytes;
    begin(std::move(with));
    EXPECT_FALSE(is_there(first));
    EXPECT_TRUE(is_there(second));
    EXPECT_TRUE(is_there(third));
    EXPECT_LE(writer->bytes_on_disk(), limit_bytes);
    std::uint64_t used_bytes = 0;
    for (const auto &[name, content] : storage->files)
        used_bytes += (content.bytes.size() + 4095) / 4096 * 4096;
    EXPECT_EQ(writer->bytes_on_disk(), used_bytes);
    EXPECT_EQ(writer->deleted_segments(), 1U);
}

TEST_F(Older, WhatIsNotALimitedRecordingOfThisHostStays) {
    constexpr std::uint64_t AGE_NS = 1000 * SECOND_NS;
    Names stays = {record(AGE_NS, 1, 0), record(AGE_NS, 1, CW_NODE_ROTATES, "node1")};
    const std::string open = record(AGE_NS, 1, CW_NODE_ROTATES);
    storage->files.at(open).open = true;
    stays.push_back(open);
    const std::string renamed = record(AGE_NS, 1, CW_NODE_ROTATES);
    storage->files["node0-keep-this.cwc"] = storage->files.at(renamed);
    storage->order.emplace_back("node0-keep-this.cwc");
    stays.emplace_back("node0-keep-this.cwc");
    const std::string damaged = record(AGE_NS, 1, CW_NODE_ROTATES);
    storage->files.at(damaged).bytes.at(100) ^= std::byte{1};
    stays.push_back(damaged);
    const std::string cut = record(AGE_NS, 1, CW_NODE_ROTATES);
    storage->files.at(cut).bytes.resize(60);
    stays.push_back(cut);
    WriterOptions with = options();
    with.keep_ns = 80 * SECOND_NS;
    with.max_bytes = MIN_MAX_BYTES;
    begin(std::move(with));
    for (const std::string &name : stays)
        EXPECT_TRUE(is_there(name)) << name;
    EXPECT_FALSE(is_there(renamed));
}

TEST_F(Older, WithoutLimitsNothingIsDeleted) {
    const std::string old = record(1000 * SECOND_NS, 1, CW_NODE_ROTATES);
    begin(options());
    EXPECT_TRUE(is_there(old));
}

} // namespace
} // namespace collwire::capture
