// SPDX-License-Identifier: Apache-2.0
// Jobs on hosts whose clocks are hours apart, as a stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record_kinds.h"
#include "correlate/stream/lockstep.h"
#include "correlate/stream/world.h"
#include "tests/support/capture_builder.h"
#include "tests/support/stream_capture.h"
#include "tests/support/stream_world.h"

namespace collwire::stream {
namespace {

using test::make_record;
using test::reader_of;
using test::S;

constexpr std::uint64_t MS = 1'000'000;
constexpr std::int64_t HOUR = 3600 * std::int64_t{S};
constexpr std::int64_t DAY = 24 * HOUR;
constexpr std::uint64_t START_NS = 1'000'000 * S; // CLOCK_REALTIME of a host whose clock is right

constexpr std::uint64_t ALONE = 5; // hash of a communicator of one rank, which launches nothing

// Calls of one host, at true times, in blocks of a second.
class HostCaptures {
public:
    HostCaptures(std::uint32_t number, std::int64_t ahead_ns)
        : number_(number), boot_ns_((std::uint64_t{number} + 1) * 100'000 * S),
          ahead_ns_(ahead_ns) {
        begin(0);
    }
    // CLOCK_REALTIME is set.
    void step(std::int64_t by_ns) { ahead_ns_ += by_ns; }
    // The next segment, or the next recording.
    void begin(std::uint64_t true_ns, bool is_new_session = false) {
        session_ += is_new_session ? 1 : 0;
        segment_ = is_new_session ? 0 : segment_ + 1;
        captures_.emplace_back();
        auto node = make_record<cw_node>(CW_KIND_NODE, boot_ns_ + true_ns);
        node.session_id = session_ * 100 + number_;
        node.segment = segment_;
        node.realtime_ns = START_NS + true_ns + static_cast<std::uint64_t>(ahead_ns_);
        test::set_text(node.boot_id, "boot" + std::to_string(number_));
        captures_.back().add(node);
        for (const auto &[hash, n_ranks, rank] : comms_)
            comm(true_ns, hash, n_ranks, rank);
    }
    void join(std::uint64_t true_ns, std::uint64_t hash, std::int32_t n_ranks, std::int32_t rank) {
        comms_.emplace_back(hash, n_ranks, rank);
        comm(true_ns, hash, n_ranks, rank);
    }
    void call(std::uint64_t true_ns, std::uint64_t hash, std::uint8_t func = CW_NCCL_ALL_REDUCE,
              std::int32_t peer = 0) {
        if (true_ns / S != second_) {
            captures_.back().end_block();
            second_ = true_ns / S;
        }
        auto one = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, boot_ns_ + true_ns);
        one.tgid = one.tid = number_;
        one.comm = hash;
        one.func = func;
        one.root = peer;
        one.datatype = 7;
        one.count = one.arguments_hash = 10;
        captures_.back().add(one);
        if (hash == ALONE)
            return;
        auto launch = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, boot_ns_ + true_ns + 1);
        launch.tgid = launch.tid = number_;
        launch.comm = hash;
        launch.plan = 1;
        launch.n_tasks = 1;
        launch.tasks[0] = {10, 1};
        captures_.back().add(launch);
    }
    [[nodiscard]] std::uint64_t boot_ns() const { return boot_ns_; }
    [[nodiscard]] std::vector<std::vector<std::byte>> files() {
        std::vector<std::vector<std::byte>> all;
        for (test::CaptureBuilder &capture : captures_)
            all.push_back(capture.end_block().bytes());
        return all;
    }

private:
    void comm(std::uint64_t true_ns, std::uint64_t hash, std::int32_t n_ranks, std::int32_t rank) {
        auto one = make_record<cw_nccl_comm>(CW_KIND_NCCL_COMM, boot_ns_ + true_ns);
        one.tgid = number_;
        one.comm = one.comm_hash = hash;
        one.rank = rank;
        one.n_ranks = one.n_nodes = n_ranks;
        one.flags = CW_NCCL_COMM_CREATED;
        captures_.back().add(one);
    }

    std::uint32_t number_;
    std::uint64_t boot_ns_;
    std::int64_t ahead_ns_;
    std::uint64_t session_ = 1;
    std::uint32_t segment_ = std::numeric_limits<std::uint32_t>::max();
    std::uint64_t second_ = 0;
    std::vector<std::tuple<std::uint64_t, std::int32_t, std::int32_t>> comms_;
    std::vector<test::CaptureBuilder> captures_;
};

struct Joined {
    std::map<std::uint64_t, std::vector<Operation>> operations; // by hash of the communicator
    World::Counts counts;
    std::uint64_t furthest_ns = 0; // that a host was read ahead of another one, in true time
};

// Later captures first: no order of files is to be relied on.
Joined read(std::vector<HostCaptures> hosts) {
    Joined joined;
    World world([&](const Communicator &communicator, const Operation &operation) {
        joined.operations[communicator.hash].push_back(operation);
    });
    Lockstep lockstep(&world);
    std::vector<std::size_t> host_of;
    std::vector<std::size_t> files_left(hosts.size());
    for (std::size_t host = 0; host < hosts.size(); ++host) {
        auto files = hosts[host].files();
        std::ranges::reverse(files);
        for (auto &file : files) {
            auto stream = RecordStream::open(reader_of(std::move(file)));
            EXPECT_TRUE(stream.ok());
            lockstep.add(std::move(*stream));
            host_of.push_back(host);
        }
    }
    std::vector<std::uint64_t> at_ns(hosts.size());
    for (std::size_t at; (at = lockstep.load()) != lockstep.size();) {
        const std::size_t host = host_of[at];
        std::uint64_t last_ns = at_ns[host];
        lockstep.visit([&](const cw_header &header, std::span<const std::byte> record) {
            EXPECT_GE(header.time_ns - hosts[host].boot_ns(), at_ns[host]) << "host " << host;
            last_ns = header.time_ns - hosts[host].boot_ns();
            world.add(at, header, record);
        });
        at_ns[host] = last_ns;
        joined.furthest_ns = std::max(joined.furthest_ns, last_ns - std::ranges::min(at_ns));
    }
    world.flush();
    joined.counts = world.counts();
    return joined;
}

// All of `n` operations, with `calls` each.
void expect_whole(const Joined &joined, std::uint64_t hash, std::size_t n, std::uint32_t calls) {
    ASSERT_TRUE(joined.operations.contains(hash));
    const std::vector<Operation> &operations = joined.operations.at(hash);
    EXPECT_EQ(operations.size(), n) << "communicator " << hash;
    EXPECT_EQ(std::ranges::count(operations, calls, &Operation::calls),
              static_cast<std::ptrdiff_t>(n))
        << "communicator " << hash;
}

void expect_nothing_lost(const World::Counts &counts) {
    EXPECT_EQ(counts.late, 0U);
    EXPECT_EQ(counts.cut, 0U);
    EXPECT_EQ(counts.orphans, 0U);
    EXPECT_EQ(counts.unmatched, 0U);
}

std::vector<HostCaptures> two(std::int64_t ahead_ns) {
    std::vector<HostCaptures> hosts;
    hosts.emplace_back(0, 0);
    hosts.emplace_back(1, ahead_ns);
    return hosts;
}

// Hosts in a chain: each shares a communicator with the next one alone, ten operations a second.
std::vector<HostCaptures> chain(const std::vector<std::int64_t> &ahead_ns, std::uint64_t seconds) {
    std::vector<HostCaptures> hosts;
    for (std::uint32_t i = 0; i < ahead_ns.size(); ++i)
        hosts.emplace_back(i, ahead_ns[i]);
    for (std::uint32_t i = 0; i + 1 < hosts.size(); ++i) {
        hosts[i].join(S, 10 + i, 2, 0);
        hosts[i + 1].join(S, 10 + i, 2, 1);
    }
    for (std::uint64_t ns = 2 * S; ns < seconds * S; ns += S / 10)
        for (std::uint32_t i = 0; i < hosts.size(); ++i) {
            if (i != 0)
                hosts[i].call(ns + i * MS, 10 + i - 1);
            if (i + 1 < hosts.size())
                hosts[i].call(ns + i * MS, 10 + i);
        }
    return hosts;
}

TEST(StreamApart, HostsInAChainAreJoinedHoweverFarApartTheirClocksAre) {
    const std::vector<std::vector<std::int64_t>> cases = {
        {0, 0, 0, 0},
        {0, HOUR, 0, 0},
        {-2 * DAY, 0, HOUR, 7 * HOUR},
        {0, 3 * HOUR, -3 * HOUR, 90 * std::int64_t{S}},
        {-900'000 * std::int64_t{S}, 0, 0, 0}, // a clock that nobody has set
    };
    for (const auto &ahead_ns : cases) {
        const Joined joined = read(chain(ahead_ns, 130));
        for (std::uint64_t hash = 10; hash < 13; ++hash)
            expect_whole(joined, hash, 1280, 2);
        expect_nothing_lost(joined.counts);
        EXPECT_EQ(joined.counts.abandoned, 0U);
        // Of each of three neighbours: what may be open, and a block.
        EXPECT_LE(joined.furthest_ns, 20 * S);
    }
}

// A host that was found apart is not read ahead of the others again and again.
TEST(StreamApart, HostsAreLevelOnceTheyHaveMet) {
    std::vector<HostCaptures> hosts = chain({0, 0, -HOUR}, 100);
    World world([](const Communicator &, const Operation &) {});
    Lockstep lockstep(&world);
    for (HostCaptures &host : hosts)
        lockstep.add(*RecordStream::open(reader_of(host.files()[0])));
    std::size_t last = SIZE_MAX, in_a_row = 0, longest = 0, n = 0;
    for (std::size_t at; (at = lockstep.load()) != lockstep.size();) {
        lockstep.visit([&](const cw_header &header, std::span<const std::byte> record) {
            world.add(at, header, record);
        });
        in_a_row = at == last ? in_a_row + 1 : 1;
        last = at;
        if (++n > 30)
            longest = std::max(longest, in_a_row);
    }
    EXPECT_LE(longest, 2U);
}

TEST(StreamApart, AStepOfRealtimeChangesNothing) {
    for (const std::int64_t by_ns : {-90 * std::int64_t{S}, -HOUR, HOUR}) {
        std::vector<HostCaptures> hosts = two(0);
        HostCaptures &a = hosts[0], &b = hosts[1];
        a.join(S, 7, 2, 0);
        b.join(S, 7, 2, 1);
        for (std::uint64_t ns = 2 * S; ns < 200 * S; ns += S / 10) {
            if (ns == 100 * S)
                b.step(by_ns);
            if (ns % (30 * S) == 0)
                b.begin(ns - MS); // segments whose realtime goes back
            a.call(ns, 7);
            b.call(ns + MS, 7);
        }
        const Joined joined = read(std::move(hosts));
        expect_whole(joined, 7, 1980, 2);
        expect_nothing_lost(joined.counts);
        EXPECT_LE(joined.furthest_ns, 5 * S);
    }
}

// Two recordings of one boot, the second one after the clock was set back.
TEST(StreamApart, RecordingsOfOneBootAreInTheOrderOfItsOwnClock) {
    std::vector<HostCaptures> hosts = two(0);
    HostCaptures &a = hosts[0], &b = hosts[1];
    const auto run = [&](std::uint64_t begin_ns, std::uint64_t hash) {
        a.join(begin_ns, hash, 2, 0);
        b.join(begin_ns, hash, 2, 1);
        for (std::uint64_t ns = begin_ns + S; ns < begin_ns + 100 * S; ns += S / 10) {
            a.call(ns, hash);
            b.call(ns + MS, hash);
        }
    };
    run(0, 7);
    b.step(-HOUR);
    a.begin(100 * S, true);
    b.begin(100 * S, true);
    run(101 * S, 8);
    const Joined joined = read(std::move(hosts));
    expect_whole(joined, 7, 990, 2);
    expect_whole(joined, 8, 990, 2);
    expect_nothing_lost(joined.counts);
}

// The recorder of the host that is an hour ahead began an hour before the job, in another job of
// its own.
TEST(StreamApart, AnHourBeforeTheJobIsNoReasonToWait) {
    std::vector<HostCaptures> hosts = two(HOUR);
    hosts[1].join(0, ALONE, 1, 0);
    for (std::uint64_t ns = S; ns < 3600 * S; ns += S)
        hosts[1].call(ns, ALONE);
    for (std::uint32_t i = 0; i < 2; ++i)
        hosts[i].join(3600 * S + i, 7, 2, static_cast<std::int32_t>(i));
    for (std::uint64_t ns = 3601 * S; ns < 3801 * S; ns += S / 10)
        for (HostCaptures &host : hosts)
            host.call(ns, 7);
    const Joined joined = read(std::move(hosts));
    expect_whole(joined, 7, 2000, 2);
    expect_nothing_lost(joined.counts);
}

// A rank that is really late, between hosts whose clocks are wrong, is no difference of clocks.
TEST(StreamApart, ALateRankIsWaitedFor) {
    for (const std::int64_t ahead_ns : {std::int64_t{0}, HOUR, -HOUR}) {
        std::vector<HostCaptures> hosts = two(ahead_ns);
        HostCaptures &a = hosts[0], &b = hosts[1];
        a.join(S, 7, 2, 0);
        b.join(S, 7, 2, 1);
        b.join(S, ALONE, 1, 0);
        for (std::uint64_t i = 0; i < 1000; ++i) {
            const std::uint64_t ns = 2 * S + i * S / 10;
            const std::uint64_t late_ns = i < 300 ? 0 : 50 * S;
            a.call(ns, 7);
            b.call(ns + late_ns, 7);
            if (i % 10 == 0) // it has other work
                b.call(ns + late_ns + MS, ALONE);
        }
        const Joined joined = read(std::move(hosts));
        expect_whole(joined, 7, 1000, 2);
        expect_nothing_lost(joined.counts);
    }
}

// A host without a capture.
TEST(StreamApart, ARankThatIsNeverMetIsGivenUpOnce) {
    std::vector<HostCaptures> hosts = two(HOUR);
    HostCaptures &a = hosts[0], &b = hosts[1];
    a.join(S, 7, 3, 0);
    b.join(S, 7, 3, 1);
    for (std::uint64_t ns = 2 * S; ns < 150 * S; ns += S / 10) {
        a.call(ns, 7);
        b.call(ns + MS, 7);
    }
    const Joined joined = read(std::move(hosts));
    expect_whole(joined, 7, 1480, 2);
    EXPECT_EQ(joined.counts.abandoned, 1U);
    EXPECT_EQ(joined.counts.late, 0U);
    // All were closed with the calls that there are, most of them at the horizon.
    EXPECT_GT(joined.counts.cut, 800U);
    EXPECT_LE(joined.furthest_ns, 5 * S);
}

// A process that was killed: its host is recorded on, and later has another job with the same ones.
TEST(StreamApart, ARankThatCallsNoMoreHoldsNobodyForever) {
    std::vector<HostCaptures> hosts = two(HOUR);
    HostCaptures &a = hosts[0], &b = hosts[1];
    a.join(S, 7, 2, 0);
    b.join(S, 7, 2, 1);
    for (std::uint64_t ns = 2 * S; ns < 20 * S; ns += S / 10) {
        a.call(ns, 7);
        if (ns < 10 * S)
            b.call(ns + MS, 7);
    }
    a.join(900 * S, 8, 2, 0);
    b.join(900 * S, 8, 2, 1);
    for (std::uint64_t ns = 901 * S; ns < 1000 * S; ns += S / 10) {
        a.call(ns, 8);
        b.call(ns + MS, 8);
    }
    const Joined joined = read(std::move(hosts));
    expect_whole(joined, 8, 990, 2);
    EXPECT_EQ(joined.operations.at(7).size(), 180U);
    EXPECT_EQ(std::ranges::count(joined.operations.at(7), 2U, &Operation::calls), 80);
    EXPECT_EQ(joined.counts.late, 0U);
    EXPECT_LE(joined.counts.abandoned, 2U);
}

// Stages of a pipeline that share nothing but transfers, more than a pair may have open.
TEST(StreamApart, TransfersAloneJoinHosts) {
    for (const std::int64_t ahead_ns : {std::int64_t{0}, HOUR, -2 * DAY}) {
        std::vector<HostCaptures> hosts = two(ahead_ns);
        HostCaptures &a = hosts[0], &b = hosts[1];
        a.join(S, 7, 2, 0);
        b.join(S, 7, 2, 1);
        const std::size_t n = 2 * OperationTracker::HORIZON_TRANSFERS;
        for (std::uint64_t i = 0; i < n; ++i) {
            a.call(2 * S + i * 20 * MS, 7, CW_NCCL_SEND, 1);
            b.call(2 * S + i * 20 * MS + 5 * MS, 7, CW_NCCL_RECV, 0);
        }
        const Joined joined = read(std::move(hosts));
        expect_whole(joined, 7, n, 2);
        expect_nothing_lost(joined.counts);
        EXPECT_LE(joined.furthest_ns, 5 * S);
    }
}

} // namespace
} // namespace collwire::stream
