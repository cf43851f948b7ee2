// SPDX-License-Identifier: Apache-2.0
// Counts of posted work requests against a driver double that counts by itself.
#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "collwire/record_kinds.h"
#include "tests/root/posts_chains.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <bpf/bpf.h>
#include <sched.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "userspace/loader/take_off.h"

namespace collwire::test {
namespace {

class Posts : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
    }
};

class EveryDriver : public testing::TestWithParam<std::tuple<const char *, bool>> {
protected:
    void SetUp() override {
        if (const std::string reason = no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
    }
};

TEST_P(EveryDriver, CountsAreExact) {
    const auto [library, bounded] = GetParam();
    Child child{library};
    const auto qp = child.run(make_qp, 17);
    sources::PostsOptions options;
    options.bounded_walk = bounded;
    PostsRecorder recorder{options};
    recorder.see_qp(child.pid(), qp);
    ASSERT_EQ(recorder.source->states().front().state, CW_SOURCE_ON)
        << recorder.source->states().front().reason;
    const auto probes = recorder.post_send_probes();
    ASSERT_EQ(probes.size(), 1u);
    EXPECT_TRUE(probes[0].emulated && probes[0].placed) << probes[0].instruction;

    EXPECT_EQ(child.run(post_all_chains, 0), CHAINS.size());
    recorder.sample();
    expect_equal(recorder.counters(child.pid(), 17), expected(CHAINS));
    ASSERT_EQ(recorder.ties.size(), 1u);
    EXPECT_STREQ(recorder.ties[0].device, "fake0");
    EXPECT_EQ(recorder.ties[0].qp_address, qp);
    EXPECT_EQ(recorder.ties[0].qp_type, 2u);
    EXPECT_EQ(recorder.ties[0].handle, 7u);
    EXPECT_EQ(recorder.ties[0].key.qpn, 17u);
    EXPECT_EQ(recorder.n_probe_records, recorder.source->probe_list().size());

    // Nothing new, nothing appended; a new segment starts with all there is.
    const auto before = recorder.n_post_records;
    recorder.sample();
    EXPECT_EQ(recorder.n_post_records, before);
    recorder.sample(true);
    EXPECT_EQ(recorder.n_post_records, before + 1);
    EXPECT_EQ(recorder.ties.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Entries, EveryDriver,
                         testing::Combine(testing::Values(FAKE_PROVIDER_1, FAKE_PROVIDER_2,
                                                          FAKE_PROVIDER_3, FAKE_PROVIDER_4),
                                          testing::Bool()));

std::size_t n_open(const char *path) {
    std::size_t n = 0;
    const std::filesystem::path file = std::filesystem::canonical(path);
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code closed;
        n += std::filesystem::read_symlink(entry, closed) == file ? 1 : 0;
    }
    return n;
}

TEST_F(Posts, NothingIsCountedBeforeTheRecordingBegins) {
    Child child{FAKE_PROVIDER_1};
    const auto qp = child.run(make_qp, 17);
    PostsRecorder recorder{sources::PostsOptions{}};
    recorder.see_qp(child.pid(), qp);
    ASSERT_TRUE(recorder.maps->hold(CW_HELD));
    child.run(post_all_chains, 0);
    ASSERT_TRUE(recorder.maps->hold(CW_NOT_HELD));
    child.run(post_all_chains, 0);
    recorder.sample();
    expect_equal(recorder.counters(child.pid(), 17), expected(CHAINS));
}

TEST_F(Posts, SingleStepOnlyWhenAskedFor) {
    Child child{FAKE_PROVIDER_5};
    const auto qp = child.run(make_qp, 1);
    {
        PostsRecorder recorder{sources::PostsOptions{}};
        recorder.see_qp(child.pid(), qp);
        const auto state = recorder.source->states().front();
        EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
        EXPECT_NE(state.reason.find("endbr64"), std::string::npos) << state.reason;
        EXPECT_NE(state.reason.find("--posts=on"), std::string::npos) << state.reason;
        child.run(post_all_chains, 0);
        recorder.sample();
        EXPECT_TRUE(recorder.posts.empty());
        EXPECT_TRUE(recorder.post_send_probes().empty());
        for (const source::PlannedProbe &probe : recorder.source->probe_list())
            EXPECT_TRUE(probe.emulated) << probe.function << " on " << probe.instruction;
        EXPECT_EQ(n_open(FAKE_PROVIDER_5), 0u) << "held for a probe that is never placed";
    }
    sources::PostsOptions options;
    options.forced = true;
    PostsRecorder recorder{options};
    recorder.see_qp(child.pid(), qp);
    EXPECT_EQ(recorder.source->states().front().state, CW_SOURCE_ON);
    EXPECT_FALSE(recorder.post_send_probes().at(0).emulated);
    child.run(post_all_chains, 0);
    recorder.sample();
    expect_equal(recorder.counters(child.pid(), 1), expected(CHAINS));
}

std::uint64_t post_long_chain(ChildState &state, std::uint64_t n) {
    post_chain(state, *state.qps[0], std::vector<Request>(n, Request{OPCODE_WRITE, {100}}));
    return state.qps[0]->wrs;
}

TEST_F(Posts, LongChainsAreTruncatedAndSaidSo) {
    Child child{FAKE_PROVIDER_2};
    const auto qp = child.run(make_qp, 1);
    sources::PostsOptions options;
    options.bounded_walk = true;
    PostsRecorder recorder{options};
    recorder.see_qp(child.pid(), qp);
    EXPECT_EQ(child.run(post_long_chain, 1000), 1000u);
    EXPECT_EQ(child.run(post_long_chain, 128), 1128u); // exactly the limit: whole
    recorder.sample();
    const auto counters = recorder.counters(child.pid(), 1);
    EXPECT_EQ(counters.posts, 2u);
    EXPECT_EQ(counters.truncated_posts, 1u);
    EXPECT_EQ(total_wrs(counters), 2 * 128u);
    EXPECT_EQ(total_bytes(counters), 2 * 12800u);
    EXPECT_EQ(recorder.loss(CW_LOSS_POST_TRUNCATED), 1u);
}

TEST_F(Posts, LongChainsAreWholeWithBpfLoop) {
    if (libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, nullptr) != 1)
        GTEST_SKIP() << "this kernel has no bpf_loop";
    Child child{FAKE_PROVIDER_2};
    const auto qp = child.run(make_qp, 1);
    PostsRecorder recorder{sources::PostsOptions{}};
    recorder.see_qp(child.pid(), qp);
    EXPECT_EQ(child.run(post_long_chain, 5000), 5000u);
    recorder.sample();
    const auto counters = recorder.counters(child.pid(), 1);
    EXPECT_EQ(counters.truncated_posts, 0u);
    EXPECT_EQ(total_wrs(counters), 5000u);
    EXPECT_EQ(total_bytes(counters), 500000u);
}

std::uint64_t post_bad_chains(ChildState &state, std::uint64_t) {
    fake_sge list{reinterpret_cast<std::uint64_t>(state.data.data()), 64, 1};
    fake_wr first{};
    first.sg_list = &list;
    first.num_sge = 1;
    first.next = reinterpret_cast<fake_wr *>(0x10); // not mapped
    state.post(*state.qps[0], &first);
    first.next = nullptr;
    first.sg_list = reinterpret_cast<fake_sge *>(0x20);
    state.post(*state.qps[0], &first);
    state.post(*state.qps[0], reinterpret_cast<fake_wr *>(0x30));
    // num_sge is signed, and may be nonsense
    first.sg_list = &list;
    first.num_sge = -1;
    state.post(*state.qps[0], &first);
    return 0;
}

TEST_F(Posts, UnreadableRequestsAreFaults) {
    for (const bool bounded : {false, true}) {
        Child child{FAKE_PROVIDER_3};
        const auto qp = child.run(make_qp, 1);
        child.run(ignore_chains);
        sources::PostsOptions options;
        options.bounded_walk = bounded;
        PostsRecorder recorder{options};
        recorder.see_qp(child.pid(), qp);
        child.run(post_bad_chains);
        recorder.sample();
        const auto counters = recorder.counters(child.pid(), 1);
        EXPECT_EQ(counters.posts, 4u);
        EXPECT_EQ(counters.fault_posts, 3u);
        EXPECT_EQ(total_bytes(counters), 64u);
        EXPECT_EQ(counters.classes[CW_POST_WRITE].wrs, 2u);
        EXPECT_EQ(counters.classes[CW_POST_WRITE].zero_length_wrs, 1u);
        EXPECT_EQ(recorder.loss(CW_LOSS_POST_FAULT), 3u);
    }
}

constexpr std::uint64_t THREADS = 4, POSTS_PER_THREAD = 20000;

// All threads on one queue pair, and each on one of its own.
std::uint64_t post_from_threads(ChildState &state, std::uint64_t) {
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < THREADS; ++t)
        threads.emplace_back([&state, t] {
            fake_sge list{reinterpret_cast<std::uint64_t>(state.data.data()), 10, 1};
            fake_wr wr{};
            wr.sg_list = &list;
            wr.num_sge = 1;
            for (std::uint64_t i = 0; i < POSTS_PER_THREAD; ++i) {
                state.post(*state.qps[0], &wr);
                state.post(*state.qps[1 + t], &wr);
            }
        });
    for (auto &thread : threads)
        thread.join();
    return state.qps[0]->checksum;
}

TEST_F(Posts, ManyThreads) {
    Child child{FAKE_PROVIDER_1};
    const auto qp = child.run(make_qp, 100);
    for (std::uint64_t t = 0; t < THREADS; ++t)
        child.run(make_qp, 101 + t);
    PostsRecorder recorder{sources::PostsOptions{}};
    recorder.see_qp(child.pid(), qp);
    EXPECT_EQ(child.run(post_from_threads), THREADS * POSTS_PER_THREAD * 10 * 3);
    recorder.sample();
    const auto shared = recorder.counters(child.pid(), 100);
    EXPECT_EQ(shared.posts, THREADS * POSTS_PER_THREAD);
    EXPECT_EQ(total_bytes(shared), THREADS * POSTS_PER_THREAD * 10);
    for (std::uint32_t t = 0; t < THREADS; ++t)
        EXPECT_EQ(total_wrs(recorder.counters(child.pid(), 101 + t)), POSTS_PER_THREAD);
}

std::uint64_t post_from_short_lived_threads(ChildState &state, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i)
        std::thread{[&state] { post_chain(state, *state.qps[0], CHAINS[0]); }}.join();
    return state.qps[0]->posts;
}

TEST_F(Posts, ThreadsThatEndLeaveTheirCounts) {
    Child child{FAKE_PROVIDER_1};
    sources::PostsOptions options;
    options.max_slots = 40; // two kinds of request: room for 20 threads
    PostsRecorder recorder{options};
    recorder.see_qp(child.pid(), child.run(make_qp, 8));
    for (std::uint64_t round = 1; round <= 8; ++round) {
        EXPECT_EQ(child.run(post_from_short_lived_threads, 10), 10 * round);
        recorder.sample(); // seen dead
        EXPECT_EQ(recorder.counters(child.pid(), 8).posts, 10 * round);
        recorder.sample(); // out of the table
    }
    recorder.posts.clear();
    recorder.sample(true);
    const auto counters = recorder.counters(child.pid(), 8);
    EXPECT_EQ(counters.posts, 80u);
    EXPECT_EQ(total_bytes(counters), 80u * 65536);
    EXPECT_EQ(recorder.loss(CW_LOSS_POST_TABLE), 0u);
}

// Nothing may be silently low: a driver that is met with its first queue pair.
TEST_F(Posts, QueuePairThatMayHavePostedBeforeItsProbe) {
    Child child{FAKE_PROVIDER_1};
    const auto first = child.run(make_qp, 1);
    const auto second = child.run(make_qp, 2);
    PostsRecorder recorder{sources::PostsOptions{}};
    recorder.emit(CW_KIND_QP_CREATE, monotonic_ns(), child.pid(), first);
    recorder.see_qp(child.pid(), first);
    const auto state = recorder.source->states().front();
    EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
    EXPECT_NE(state.reason.find("1 queue pairs were created before"), std::string::npos)
        << state.reason;
    recorder.emit(CW_KIND_QP_CREATE, monotonic_ns(), child.pid(), second);
    recorder.see_qp(child.pid(), second);
    EXPECT_EQ(recorder.source->states().front().reason, state.reason) << "the second is not late";
}

TEST_F(Posts, RingIsReadInParts) {
    Child child{FAKE_PROVIDER_1};
    PostsRecorder recorder{sources::PostsOptions{}};
    for (std::uint32_t qpn = 1; qpn <= 6; ++qpn)
        recorder.see_qp(child.pid(), child.run(make_qp, qpn));
    child.run(post_all_chains, 0);
    child.run(post_all_chains, 1);
    child.run(post_all_chains, 2);
    child.run(post_all_chains, 3);
    child.run(post_all_chains, 4);
    const auto part = [&](std::size_t records, std::chrono::nanoseconds time) {
        const auto more = recorder.ring->consume_some(records, time);
        EXPECT_TRUE(more.ok());
        return more.ok() && *more;
    };
    EXPECT_TRUE(part(2, std::chrono::hours(1)));
    EXPECT_EQ(recorder.ties.size(), 2u);
    EXPECT_TRUE(part(100, std::chrono::nanoseconds(0)));
    EXPECT_EQ(recorder.ties.size(), 3u) << "out of time: not one more, and none is lost";
    EXPECT_FALSE(part(100, std::chrono::hours(1)));
    EXPECT_EQ(recorder.ties.size(), 5u);
    EXPECT_FALSE(part(1, std::chrono::hours(1))) << "empty";
}

TEST_F(Posts, ProcessThatDies) {
    PostsRecorder recorder{sources::PostsOptions{}};
    pid_t pid = 0;
    {
        Child child{FAKE_PROVIDER_2};
        pid = child.pid();
        recorder.see_qp(pid, child.run(make_qp, 5));
        child.run(post_all_chains, 0);
        child.kill_hard();
    }
    recorder.sample(); // its last counts
    expect_equal(recorder.counters(pid, 5), expected(CHAINS));
    recorder.sample();
    recorder.posts.clear();
    recorder.sample(true); // gone
    EXPECT_TRUE(recorder.posts.empty());
    recorder.see_qp(pid, 0x1000); // an event that comes late
    for (int i = 0; i < 12; ++i)
        recorder.sample();
    EXPECT_EQ(recorder.source->states().front().state, CW_SOURCE_ON);
}

TEST_F(Posts, ReusedNumberIsAnotherQueuePair) {
    Child child{FAKE_PROVIDER_2};
    PostsRecorder recorder{sources::PostsOptions{}};
    recorder.see_qp(child.pid(), child.run(make_qp, 9));
    child.run(post_all_chains, 0);
    recorder.sample();
    // destroyed: the kernel side counts the epoch up
    const cw_epoch_key key{static_cast<std::uint32_t>(child.pid()), 9};
    const std::uint32_t epoch = 1;
    ASSERT_EQ(bpf_map_update_elem(recorder.maps->post_epochs_fd(), &key, &epoch, BPF_ANY), 0);
    child.run(post_all_chains, 0);
    child.run(post_all_chains, 0);
    recorder.sample();
    expect_equal(recorder.counters(child.pid(), 9, 0), expected(CHAINS));
    EXPECT_EQ(recorder.counters(child.pid(), 9, 1).posts, 2 * CHAINS.size());
    EXPECT_EQ(recorder.ties.size(), 2u);
    recorder.sample();
    recorder.sample();
    recorder.posts.clear();
    recorder.sample(true);
    EXPECT_EQ(recorder.posts.size(), 1u) << "the first one has left the table";
}

TEST_F(Posts, OnlyWantedProcesses) {
    Child wanted{FAKE_PROVIDER_2};
    Child other{FAKE_PROVIDER_2};
    sources::PostsOptions options;
    options.filter_by_tgid = true;
    PostsRecorder recorder{options};
    ASSERT_TRUE(recorder.maps->want_tgid(static_cast<std::uint32_t>(wanted.pid())).ok());
    recorder.see_qp(wanted.pid(), wanted.run(make_qp, 1));
    recorder.see_qp(other.pid(), other.run(make_qp, 2));
    wanted.run(post_all_chains, 0);
    other.run(post_all_chains, 0);
    recorder.sample();
    expect_equal(recorder.counters(wanted.pid(), 1), expected(CHAINS));
    EXPECT_EQ(recorder.posts.size(), 1u);
}

TEST_F(Posts, FullTableAnnouncesNothing) {
    Child child{FAKE_PROVIDER_2};
    sources::PostsOptions options;
    options.max_slots = 2;
    PostsRecorder recorder{options};
    recorder.see_qp(child.pid(), child.run(make_qp, 1));
    for (std::uint64_t i = 1; i < 8; ++i)
        child.run(make_qp, 1 + i);
    for (int round = 0; round < 5; ++round)
        for (std::uint64_t i = 0; i < 8; ++i)
            child.run(post_all_chains, i);
    ASSERT_TRUE(recorder.ring->consume().ok());
    EXPECT_LE(recorder.ties.size(), 2u) << "queue pairs without counters, one record a post";
    EXPECT_GE(recorder.loss(CW_LOSS_POST_TABLE), 7u);
}

TEST_F(Posts, FullTableIsLoss) {
    Child child{FAKE_PROVIDER_2};
    sources::PostsOptions options;
    options.max_slots = 4;
    PostsRecorder recorder{options};
    recorder.see_qp(child.pid(), child.run(make_qp, 1));
    child.run(post_all_chains, 0); // seven kinds of request
    recorder.sample();
    EXPECT_GT(recorder.loss(CW_LOSS_POST_TABLE), 0u);
    EXPECT_LT(total_wrs(recorder.counters(child.pid(), 1)), total_wrs(expected(CHAINS)));
}

// A kernel that takes none of the programs: only who asked for posts by name goes without the rest.
TEST_F(Posts, ProgramsThatCannotBeLoaded) {
    sources::PostsOptions options;
    options.max_slots = 1u << 31; // no machine has the memory
    auto maps = loader::SharedMaps::create({});
    ASSERT_TRUE(maps.ok());
    sources::PostsSource source{**maps, options};
    ASSERT_TRUE(source.prepare().ok());
    ASSERT_TRUE(source.attach().ok());
    EXPECT_EQ(source.states().front().state, CW_SOURCE_UNAVAILABLE);
    EXPECT_FALSE(source.states().front().reason.empty());
    options.forced = true;
    sources::PostsSource forced{**maps, options};
    EXPECT_FALSE(forced.prepare().ok());
}

TEST_F(Posts, CheaperSourcesComeFirst) {
    Child child{FAKE_PROVIDER_2};
    const auto qp = child.run(make_qp, 1);
    sources::PostsOptions options;
    options.devices = {{"fake0", "fake_core", true}, {"other0", "other_core", false}};
    PostsRecorder recorder{options};
    recorder.see_qp(child.pid(), qp);
    EXPECT_TRUE(recorder.source->probe_list().empty());
    options.devices.pop_back();
    PostsRecorder all_counted{options};
    EXPECT_EQ(all_counted.source->states().front().state, CW_SOURCE_OFF);
    options.forced = true;
    PostsRecorder forced{options};
    forced.see_qp(child.pid(), qp);
    EXPECT_EQ(forced.post_send_probes().size(), 1u);
}

TEST_F(Posts, MemoryThatIsNoQueuePair) {
    Child child{FAKE_PROVIDER_2};
    PostsRecorder recorder{sources::PostsOptions{}};
    for (const std::uint64_t address :
         {std::uint64_t{8}, std::uint64_t{0x12345}, ~std::uint64_t{7}})
        recorder.see_qp(child.pid(), address);
    for (int i = 0; i < 12; ++i)
        recorder.sample();
    const auto state = recorder.source->states().front();
    EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
    EXPECT_NE(state.reason.find("3 queue pairs"), std::string::npos) << state.reason;
}

TEST_F(Posts, DestroyedQueuePairIsNotLookedForAnyMore) {
    Child child{FAKE_PROVIDER_2};
    PostsRecorder recorder{sources::PostsOptions{}};
    recorder.emit(CW_KIND_QP_CREATE, monotonic_ns(), child.pid(), 0x12345);
    recorder.emit(CW_KIND_QP_DESTROY, monotonic_ns(), child.pid(), 0x12345);
    for (int i = 0; i < 12; ++i)
        recorder.sample();
    EXPECT_EQ(recorder.source->states().front().state, CW_SOURCE_ON)
        << recorder.source->states().front().reason;
}

std::uint64_t post_until_stopped(ChildState &state, std::uint64_t shared) {
    // Its parent's, too. NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto *stop = reinterpret_cast<std::atomic<std::uint64_t> *>(shared);
    fake_qp &qp = *state.qps[0];
    while (stop->load() == 0)
        post_chain(state, qp, CHAINS[0]);
    // Each post is 65536 bytes of value 3.
    return qp.checksum == qp.posts * 65536 * 3 && qp.wrs == 2 * qp.posts ? qp.posts : 0;
}

TEST_F(Posts, TakenOffCountsNoMore) {
    Child child{FAKE_PROVIDER_1}, later{FAKE_PROVIDER_3};
    PostsRecorder recorder{sources::PostsOptions{}};
    EXPECT_TRUE(recorder.source->recorded_processes().empty());
    recorder.see_qp(child.pid(), child.run(make_qp, 17));
    EXPECT_EQ(recorder.source->recorded_processes().size(), 1u);
    child.run(post_all_chains, 0);
    const auto groups = recorder.source->probe_groups();
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_FALSE(groups[0].programs.empty());

    recorder.source->take_off(groups[0].name, "taken off");
    while (loader::is_taking_off())
        sched_yield();
    child.run(post_all_chains, 0);
    recorder.see_qp(later.pid(), later.run(make_qp, 18));
    later.run(post_all_chains, 0);
    recorder.sample();
    expect_equal(recorder.counters(child.pid(), 17), expected(CHAINS));
    EXPECT_EQ(recorder.counters(later.pid(), 18).posts, 0u);
    EXPECT_TRUE(recorder.source->probe_groups().empty());
    const auto state = recorder.source->states().front();
    EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
    EXPECT_EQ(state.reason, "taken off");
    for (const source::PlannedProbe &probe : recorder.source->probe_list())
        EXPECT_FALSE(probe.placed) << probe.function;
    EXPECT_TRUE(recorder.post_send_probes().at(0).taken_off);
    EXPECT_EQ(n_open(FAKE_PROVIDER_3), 0u);
}

TEST_F(Posts, AttachAndDetachUnderATracedProcess) {
    const char *full = std::getenv("COLLWIRE_FULL");
    const int rounds = full != nullptr && std::string_view{full} == "1" ? 1000 : 50;
    void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    auto *stop = new (page) std::atomic<std::uint64_t>{0};
    Child child{FAKE_PROVIDER_2};
    // However this test ends: the child has to be stopped before it is waited for.
    const auto set = [](std::atomic<std::uint64_t> *flag) { flag->store(1); };
    std::unique_ptr<std::atomic<std::uint64_t>, decltype(set)> stopper{stop, set};
    const auto qp = child.run(make_qp, 1);
    child.start(post_until_stopped, reinterpret_cast<std::uint64_t>(page));
    std::uint64_t counted = 0;
    for (int round = 0; round < rounds; ++round) {
        PostsRecorder recorder{sources::PostsOptions{}};
        recorder.see_qp(child.pid(), qp);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (recorder.counters(child.pid(), 1).posts == 0) {
            ASSERT_LT(std::chrono::steady_clock::now(), deadline)
                << "no post was counted in round " << round;
            recorder.sample();
        }
        recorder.source->detach();
        recorder.sample();
        const auto counters = recorder.counters(child.pid(), 1);
        counted += counters.posts;
        ASSERT_EQ(counters.classes[CW_POST_WRITE].bytes, counters.posts * 65536);
        ASSERT_EQ(counters.classes[CW_POST_WRITE_IMM].wrs, counters.posts);
    }
    stopper.reset();
    const auto posts = child.result();
    EXPECT_GE(posts, counted) << "0: the process's data was damaged";
    EXPECT_GE(counted, static_cast<std::uint64_t>(rounds));
    EXPECT_EQ(child.finish(), 0);
    munmap(page, 4096);
}

} // namespace
} // namespace collwire::test
