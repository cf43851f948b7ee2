// SPDX-License-Identifier: Apache-2.0
// A writer on a file system in memory, and what is in the files that it wrote.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/reader.h"
#include "tests/support/capture_builder.h"
#include "tests/support/fake_storage.h"
#include "userspace/capture/writer.h"

namespace collwire::test {

using capture::CaptureWriter;
using capture::WriterOptions;

inline constexpr std::uint64_t SECOND_NS = 1'000'000'000;
inline constexpr std::uint64_t START_REALTIME_NS =
    1'795'232'700'123'456'789; // 2026-11-21 03:45:00.123 UTC

inline bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

// What one file holds: its node records and the QP numbers of its other records, in order.
struct FileContent {
    capture::ReadSummary summary;
    std::vector<std::uint32_t> segments; // of node records
    std::vector<std::uint32_t> qpns;
    std::vector<std::uint64_t> times_ns; // of the QP records
    std::vector<std::uint16_t> kinds;
};

inline FileContent read_file_content(std::span<const std::byte> bytes) {
    FileContent content;
    auto summary = capture::read_capture(
        bytes, [&](const cw_header &header, std::span<const std::byte> record) {
            content.kinds.push_back(header.kind);
            if (header.kind == CW_KIND_NODE)
                content.segments.push_back(capture::record_as<cw_node>(record).segment);
            if (header.kind == CW_KIND_QP_CREATE) {
                content.qpns.push_back(capture::record_as<cw_qp_event>(record).key.qpn);
                content.times_ns.push_back(header.time_ns);
            }
        });
    EXPECT_TRUE(summary) << summary.failure().message;
    if (summary)
        content.summary = *std::move(summary);
    return content;
}

class WriterFixture : public testing::Test {
protected:
    std::shared_ptr<FakeStorage> storage = std::make_shared<FakeStorage>();
    std::unique_ptr<CaptureWriter> writer;
    std::mt19937 random{7};
    std::uint64_t now_ns = 100 * SECOND_NS;
    std::uint32_t n_appended = 0;
    std::uint32_t n_preambles = 0;
    std::uint32_t n_preamble_devices = 2;

    WriterOptions options() {
        return {
            .host = "node0", .realtime_ns = [] { return START_REALTIME_NS; }, .storage = storage};
    }
    void make(WriterOptions with) {
        auto made = CaptureWriter::create(
            std::move(with), [this](source::RecordSink &sink, std::uint32_t segment) {
                n_preambles++;
                auto node = make_record<cw_node>(CW_KIND_NODE, now_ns);
                node.segment = segment;
                sink.append(node.header);
                for (std::uint32_t i = 0; i < n_preamble_devices; i++) {
                    auto device = make_record<cw_device>(CW_KIND_DEVICE, now_ns);
                    device.dev_index = i;
                    fill(device.name);
                    sink.append(device.header);
                }
            });
        ASSERT_TRUE(made) << made.failure().message;
        writer = *std::move(made);
    }
    // Noise, so that zstd cannot make it small.
    template <std::size_t N> void fill(char (&field)[N]) {
        for (char &c : field)
            c = static_cast<char>(random());
    }
    void append_qp() {
        auto qp = make_record<cw_qp_event>(CW_KIND_QP_CREATE, now_ns, 1);
        qp.key.qpn = n_appended++;
        fill(qp.device);
        writer->append(qp.header);
    }
    // All QP numbers of all files, in the order in which the files were made.
    std::vector<std::uint32_t> all_qpns() {
        std::vector<std::uint32_t> qpns;
        for (const std::string &name : storage->order) {
            const auto content = read_file_content(storage->files.at(name).bytes);
            qpns.insert(qpns.end(), content.qpns.begin(), content.qpns.end());
        }
        return qpns;
    }
};

} // namespace collwire::test
