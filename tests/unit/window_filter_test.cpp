// SPDX-License-Identifier: Apache-2.0
// What a window lets through, against a selection of all records one by one.
#include "correlate/capture/window_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "collwire/wire_records.h"
#include "correlate/capture/record_class.h"
#include "correlate/capture/survey.h"
#include "tests/support/capture_builder.h"

namespace collwire::capture {
namespace {

using test::CaptureBuilder;
using test::make_record;
using test::set_text;

constexpr std::uint64_t S = 1'000'000'000;
constexpr std::uint64_t START_NS = 500 * S;              // monotonic
constexpr std::uint64_t REALTIME_NS = 1'700'000'000 * S; // at START_NS
constexpr std::uint32_t SECONDS = 60, QPS = 4, RANDOM_WINDOWS = 300;

std::uint64_t realtime_ns(std::uint64_t monotonic_ns) {
    return monotonic_ns - START_NS + REALTIME_NS;
}

cw_node node_of(std::uint32_t flags = CW_NODE_FIRST_SEGMENT) {
    auto node = make_record<cw_node>(CW_KIND_NODE, START_NS);
    node.session_id = 7;
    node.flags = flags;
    node.realtime_ns = REALTIME_NS;
    node.record_start_ns = START_NS;
    node.sample_interval_ns = S;
    set_text(node.hostname, "node0");
    return node;
}

cw_qp_wire wire_of(std::uint32_t qpn, std::uint64_t time_ns, std::uint64_t bytes) {
    auto wire = make_record<cw_qp_wire>(CW_KIND_QP_WIRE, time_ns);
    wire.key.qpn = qpn;
    wire.key.generation_ns = START_NS;
    wire.counters.tx.first_ns = START_NS + 1;
    wire.counters.tx.wire_bytes[CW_WIRE_REQUEST] = bytes;
    return wire;
}

// A minute of one block a second: calls, counters that change in some seconds, now and then state.
std::vector<std::byte> recording(std::mt19937_64 &random) {
    CaptureBuilder builder;
    builder.add(node_of());
    auto comm = make_record<cw_nccl_comm>(CW_KIND_NCCL_COMM, START_NS + 1);
    comm.tgid = 1;
    comm.comm = 0x10;
    comm.flags = CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED;
    builder.add(comm);
    comm.comm = 0x20; // it ends after 10 s
    builder.add(comm).end_block();
    for (std::uint64_t second = 0; second < SECONDS; ++second) {
        const std::uint64_t begin_ns = START_NS + second * S;
        for (std::uint64_t i = 0; i < 5; ++i) {
            auto call = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, begin_ns + i * S / 5 + 3);
            call.tgid = 1;
            call.comm = 0x10;
            call.count = second * 5 + i;
            builder.add(call);
        }
        if (second % 7 == 3) {
            auto connection = make_record<cw_process>(CW_KIND_PROCESS, begin_ns + 5);
            connection.pid = static_cast<std::uint32_t>(100 + second);
            builder.add(connection);
        }
        if (second == 10) {
            auto end = make_record<cw_nccl_comm_end>(CW_KIND_NCCL_COMM_END, begin_ns + 5);
            end.tgid = 1;
            end.comm = 0x20;
            builder.add(end);
        }
        for (std::uint32_t qpn = 0; qpn < QPS; ++qpn)
            if (qpn == 0 || random() % (std::uint64_t{qpn} * 8) == 0)
                builder.add(wire_of(qpn, begin_ns + S - 10, second * 1000 + qpn + 1));
        builder.end_block();
    }
    builder.add_end(START_NS + SECONDS * S);
    return builder.bytes();
}

struct Taken {
    cw_header header{};
    std::vector<std::byte> bytes;
};

std::vector<Taken> all_of(std::span<const std::byte> file) {
    std::vector<Taken> all;
    EXPECT_TRUE(read_capture(file, [&](const cw_header &header, std::span<const std::byte> record) {
        all.push_back({header, {record.begin(), record.end()}});
    }));
    return all;
}

struct Chosen {
    std::vector<Taken> records;
    ReadSummary summary;
    std::uint64_t inside = 0, without_start = 0;
};

Chosen chosen_of(std::span<const std::byte> file, const Window &window) {
    Chosen chosen;
    WindowFilter filter(window);
    const RecordVisitor visit = [&](const cw_header &header, std::span<const std::byte> record) {
        chosen.records.push_back({header, {record.begin(), record.end()}});
    };
    auto summary = read_chosen_blocks(
        file.size(),
        [&](std::uint64_t offset, std::size_t length) {
            const auto rest = file.subspan(std::min<std::size_t>(offset, file.size()));
            return rest.first(std::min(length, rest.size()));
        },
        [&](const BlockHeader &block) { return filter.needs(block); },
        [&](const cw_header &header, std::span<const std::byte> record) {
            filter.add(header, record, visit);
        });
    EXPECT_TRUE(summary);
    filter.finish(visit);
    if (summary) {
        filter.clip(*summary);
        chosen.summary = *std::move(summary);
    }
    chosen.inside = filter.records_inside();
    chosen.without_start = filter.counters_without_start();
    return chosen;
}

template <typename Has>
std::vector<std::vector<std::byte>> bytes_where(const std::vector<Taken> &records, Has has) {
    std::vector<std::vector<std::byte>> bytes;
    for (const Taken &record : records)
        if (has(record.header))
            bytes.push_back(record.bytes);
    return bytes;
}

// What a window gets of a recording: counters without a sample before it start with it, where all
// that they counted was sampled later.
std::vector<Taken> with_moved_starts(std::vector<Taken> all, const Chosen &chosen,
                                     const Window &window) {
    const std::uint64_t from_ns = window.from_ns - REALTIME_NS + START_NS;
    if (!window.is_one_of_many || from_ns - START_NS > (INTERVALS_BEFORE - 1) * S)
        return all;
    std::set<std::uint32_t> with_start;
    for (const Taken &record : chosen.records)
        if (record.header.kind == CW_KIND_QP_WIRE && record.header.time_ns < from_ns)
            with_start.insert(record_as<cw_qp_wire>(record.bytes).key.qpn);
    for (Taken &record : all) {
        if (record.header.kind != CW_KIND_QP_WIRE || record.header.time_ns < from_ns)
            continue;
        auto wire = record_as<cw_qp_wire>(record.bytes);
        if (with_start.contains(wire.key.qpn))
            continue;
        wire.counters.tx.first_ns = from_ns;
        std::memcpy(record.bytes.data(), &wire, sizeof(wire));
    }
    return all;
}

void compare(const std::vector<Taken> &recorded, const Chosen &chosen, const Window &window) {
    const std::vector<Taken> all = with_moved_starts(recorded, chosen, window);
    const auto is_inside = [&](const cw_header &header) {
        return record_class(header.kind) != RecordClass::State &&
               window.contains(realtime_ns(header.time_ns));
    };
    EXPECT_EQ(bytes_where(chosen.records, is_inside), bytes_where(all, is_inside));
    EXPECT_EQ(chosen.inside, bytes_where(all, is_inside).size());
    const auto is_state = [](const cw_header &header) { return header.kind == CW_KIND_PROCESS; };
    EXPECT_EQ(bytes_where(chosen.records, is_state), bytes_where(all, is_state));

    std::map<std::uint32_t, std::uint64_t> first_ns; // after the window, by queue pair
    for (const Taken &record : all)
        if (record.header.kind == CW_KIND_QP_WIRE &&
            realtime_ns(record.header.time_ns) >= window.to_ns)
            first_ns.try_emplace(record_as<cw_qp_wire>(record.bytes).key.qpn,
                                 record.header.time_ns);
    std::erase_if(first_ns, [&](const auto &first) {
        return window.is_one_of_many ||
               realtime_ns(first.second) - window.to_ns > INTERVALS_AFTER * S;
    });
    std::map<std::uint32_t, std::uint64_t> after_ns;
    for (const Taken &record : chosen.records)
        if (record_class(record.header.kind) != RecordClass::State &&
            realtime_ns(record.header.time_ns) >= window.to_ns) {
            ASSERT_EQ(record.header.kind, CW_KIND_QP_WIRE) << "an event after the window";
            EXPECT_TRUE(
                after_ns.emplace(record_as<cw_qp_wire>(record.bytes).key.qpn, record.header.time_ns)
                    .second);
        }
    EXPECT_EQ(after_ns, first_ns);

    const auto is_before = [&](const cw_header &header) {
        return record_class(header.kind) != RecordClass::State &&
               realtime_ns(header.time_ns) < window.from_ns;
    };
    std::map<std::uint32_t, std::uint64_t> last_ns; // by queue pair
    for (const Taken &record : all)
        if (is_before(record.header) && record.header.kind == CW_KIND_QP_WIRE)
            last_ns[record_as<cw_qp_wire>(record.bytes).key.qpn] = record.header.time_ns;
    std::set<std::uint32_t> with_start;
    for (const Taken &record : chosen.records) {
        if (!is_before(record.header))
            continue;
        ASSERT_EQ(record.header.kind, CW_KIND_QP_WIRE) << "an event before the window";
        const std::uint32_t qpn = record_as<cw_qp_wire>(record.bytes).key.qpn;
        EXPECT_EQ(record.header.time_ns, last_ns[qpn]) << "not the last sample before the window";
        EXPECT_TRUE(with_start.insert(qpn).second) << "two samples before the window";
    }
    std::uint64_t without_start = 0;
    for (std::uint32_t qpn = 0; qpn < QPS; ++qpn) {
        const bool is_sampled = std::ranges::any_of(chosen.records, [&](const Taken &record) {
            return record.header.kind == CW_KIND_QP_WIRE && is_inside(record.header) &&
                   record_as<cw_qp_wire>(record.bytes).key.qpn == qpn;
        });
        without_start += is_sampled && !with_start.contains(qpn) ? 1 : 0;
        if (const auto last = last_ns.find(qpn);
            last != last_ns.end() &&
            realtime_ns(last->second) + (INTERVALS_BEFORE - 1) * S >= window.from_ns) {
            EXPECT_TRUE(with_start.contains(qpn)) << "queue pair " << qpn;
        }
    }
    EXPECT_EQ(chosen.without_start, without_start);
}

TEST(WindowFilters, EqualASelectionOfAllRecords) {
    std::mt19937_64 random(1);
    std::uint64_t left_out = 0;
    for (std::uint32_t i = 0; i < RANDOM_WINDOWS; ++i) {
        const std::vector<std::byte> file = recording(random);
        Window window;
        window.from_ns = REALTIME_NS + 2 * S + random() % (SECONDS * S);
        window.to_ns = random() % 4 == 0 ? UINT64_MAX : window.from_ns + 1 + random() % (20 * S);
        window.is_one_of_many = random() % 3 == 0;
        const Chosen chosen = chosen_of(file, window);
        SCOPED_TRACE(testing::Message() << i << ": " << window.from_ns - REALTIME_NS << " to "
                                        << window.to_ns - REALTIME_NS);
        compare(all_of(file), chosen, window);
        left_out += chosen.summary.blocks_left_out;
        if (HasFailure())
            break;
    }
    EXPECT_GT(left_out, RANDOM_WINDOWS * 20U) << "most blocks are passed over";
}

TEST(WindowFilters, AWindowReadsLikeALaterSegment) {
    std::mt19937_64 random(2);
    const Window window{REALTIME_NS + 30 * S, REALTIME_NS + 40 * S};
    const Chosen chosen = chosen_of(recording(random), window);
    ASSERT_FALSE(chosen.records.empty());
    const auto node = record_as<cw_node>(chosen.records.front().bytes);
    EXPECT_EQ(node.header.time_ns, START_NS + 30 * S);
    EXPECT_EQ(node.realtime_ns, REALTIME_NS + 30 * S);
    EXPECT_EQ(node.flags & CW_NODE_FIRST_SEGMENT, 0U);
    std::vector<std::uint64_t> comms;
    for (const Taken &record : chosen.records)
        if (record.header.kind == CW_KIND_NCCL_COMM) {
            const auto comm = record_as<cw_nccl_comm>(record.bytes);
            comms.push_back(comm.comm);
            EXPECT_EQ(comm.flags, 0U) << "its calls do not count from the creation";
        }
    EXPECT_EQ(comms, std::vector<std::uint64_t>{0x10}) << "the other one ended before";
    ASSERT_TRUE(chosen.summary.end);
    EXPECT_EQ(chosen.summary.end->header.time_ns, START_NS + 40 * S);
    EXPECT_EQ(chosen.summary.last_time_ns, START_NS + 40 * S);
}

TEST(WindowFilters, ARecordingThatStartsInTheWindowIsWhole) {
    std::mt19937_64 random(3);
    const std::vector<std::byte> file = recording(random);
    const Chosen chosen = chosen_of(file, {REALTIME_NS - S, UINT64_MAX});
    const std::vector<Taken> all = all_of(file);
    ASSERT_EQ(chosen.records.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(chosen.records[i].bytes, all[i].bytes);
    EXPECT_EQ(chosen.without_start, 0U);
}

TEST(WindowFilters, BlocksWithStateSayNothing) {
    CaptureBuilder builder;
    builder.add(node_of()).end_block();
    builder.add(wire_of(1, START_NS + S, 1)).end_block();
    std::vector<std::uint32_t> flags;
    const std::vector<std::byte> file = builder.bytes();
    ASSERT_TRUE(read_chosen_blocks(
        file.size(),
        [&](std::uint64_t offset, std::size_t length) {
            return std::span(file).subspan(offset).first(
                std::min<std::size_t>(length, file.size() - offset));
        },
        [&](const BlockHeader &block) {
            flags.push_back(block.flags);
            return true;
        },
        [](const cw_header &, std::span<const std::byte>) {}));
    EXPECT_EQ(flags, (std::vector<std::uint32_t>{0, BLOCK_WITHOUT_STATE}));
}

TEST(WindowFilters, KindsThatAreNotKnownAreState) {
    EXPECT_EQ(record_class(0x7777), RecordClass::State);
}

TEST(Surveys, HaveTheTimesOfTheRecording) {
    std::mt19937_64 random(4);
    const std::vector<std::byte> file = recording(random);
    std::size_t read_bytes = 0;
    const auto found = survey(file.size(), [&](std::uint64_t offset, std::size_t length) {
        const auto part = std::span(file).subspan(offset).first(
            std::min<std::size_t>(length, file.size() - offset));
        read_bytes += part.size();
        return part;
    });
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->has_node);
    EXPECT_EQ(found->session_id, 7U);
    EXPECT_EQ(found->begin_ns, REALTIME_NS);
    EXPECT_EQ(found->end_ns, REALTIME_NS + SECONDS * S);
    EXPECT_LT(read_bytes, file.size()) << "one block and the headers of the others";
}

} // namespace
} // namespace collwire::capture
