// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include "collwire/nccl_launch_records.h"
#include "correlate/gpu/join_kernels.h"
#include "correlate/gpu/kernel_name.h"
#include "correlate/gpu/operation_phases.h"

namespace collwire::gpu {
namespace {

constexpr std::uint64_t MS = 1'000'000;

// A job of one process: kernels wait in a stream that may be long, and some launches replay a graph
// of three.
struct Job {
    std::vector<LaunchFact> launches;
    std::vector<KernelFact> kernels;
};

std::uint32_t any(std::mt19937 &random, std::uint32_t below) {
    return static_cast<std::uint32_t>(random() % below);
}

Job make_job(std::mt19937 &random, std::size_t n, std::uint64_t queue_ns, bool is_uniform) {
    Job job;
    std::uint64_t now_ns = 1'000 * MS, stream_ns = now_ns;
    std::uint32_t correlation = 10;
    while (job.launches.size() < n) {
        now_ns += 20'000 + any(random, 400'000);
        const bool is_replay = !is_uniform && any(random, 4) == 0;
        correlation += 1 + any(random, 5);
        for (std::uint64_t node = 0; node < (is_replay ? 3U : 1U); ++node) {
            const std::uint32_t channels = is_uniform ? 2 : 1 + any(random, 8);
            const auto func =
                static_cast<std::uint8_t>(is_uniform ? 4U : any(random, 5)) /* enum cw_nccl_func */;
            const std::uint64_t start_ns = std::max(now_ns - 8'000, stream_ns);
            stream_ns = start_ns + 5'000 + any(random, 300'000);
            if (stream_ns < now_ns + queue_ns)
                stream_ns += queue_ns / n;
            job.launches.push_back({now_ns + node * 3'000, channels, func, is_replay});
            job.kernels.push_back({start_ns, stream_ns, is_replay ? (1ULL << 33U) + 4 * node : 0,
                                   correlation, channels, func});
        }
    }
    return job;
}

TracedSpan always() {
    return {0, 0, UINT64_MAX};
}

TEST(GpuJoin, EachKernelHasItsLaunch) {
    std::mt19937 random(1);
    for (int round = 0; round < 50; ++round) {
        Job job = make_job(random, 300, 100 * MS, round % 2 == 1);
        std::vector<std::size_t> places(job.kernels.size());
        for (std::size_t i = 0; i < places.size(); ++i)
            places[i] = i;
        std::shuffle(places.begin(), places.end(), random);
        std::vector<KernelFact> shuffled;
        shuffled.reserve(places.size());
        for (const std::size_t place : places)
            shuffled.push_back(job.kernels[place]);
        const std::vector<TracedSpan> spans = {always()};
        const KernelJoin join = join_kernels(job.launches, shuffled, spans);
        EXPECT_EQ(join.exact, job.kernels.size());
        EXPECT_EQ(join.traced_launches, job.launches.size());
        EXPECT_EQ(join.without_kernel + join.without_launch + join.contradicted, 0U);
        for (std::size_t i = 0; i < shuffled.size(); ++i)
            EXPECT_EQ(join.kernels[i].launch, places[i]);
    }
}

TEST(GpuJoin, SlicesBeginAndEndInTheMiddleOfAJob) {
    std::mt19937 random(2);
    for (int round = 0; round < 50; ++round) {
        const Job job = make_job(random, 400, 20 * MS, false);
        std::vector<TracedSpan> spans;
        std::vector<KernelFact> kernels;
        std::vector<std::size_t> places;
        for (const auto &[from, to] : {std::pair<std::size_t, std::size_t>{50, 120}, {250, 390}}) {
            // Not within a graph's launch.
            std::size_t begin = from, end = to;
            while (job.launches[begin].is_replay &&
                   job.kernels[begin].correlation == job.kernels[begin - 1].correlation)
                ++begin;
            while (job.launches[end].is_replay &&
                   job.kernels[end].correlation == job.kernels[end - 1].correlation)
                ++end;
            const std::uint64_t armed_ns = job.launches[begin].time_ns - 10'000;
            spans.push_back(
                {armed_ns - 5'000, armed_ns - 1'000, job.launches[end].time_ns - 5'000});
            for (std::size_t i = begin; i < end; ++i) {
                kernels.push_back(job.kernels[i]);
                places.push_back(i);
            }
        }
        // Only kernels that ended before the next slice are in the first.
        if (kernels[70].start_ns >= spans[1].arming_begin_ns)
            continue;
        const KernelJoin join = join_kernels(job.launches, kernels, spans);
        EXPECT_EQ(join.exact + join.by_time, kernels.size());
        EXPECT_EQ(join.without_kernel + join.without_launch, 0U);
        for (std::size_t i = 0; i < kernels.size(); ++i)
            EXPECT_EQ(join.kernels[i].launch, places[i]) << round << " " << i;
    }
}

TEST(GpuJoin, LostKernelsAreCountedAndTheOthersFound) {
    std::mt19937 random(3);
    for (int round = 0; round < 50; ++round) {
        const Job job = make_job(random, 400, 0, false);
        std::vector<KernelFact> kernels;
        std::vector<std::size_t> places;
        std::size_t lost = 0;
        for (std::size_t i = 0; i < job.kernels.size(); ++i) {
            if (i >= 100 && i < 140) {
                ++lost;
                continue;
            }
            kernels.push_back(job.kernels[i]);
            places.push_back(i);
        }
        const std::vector<TracedSpan> spans = {always()};
        const KernelJoin join = join_kernels(job.launches, kernels, spans);
        EXPECT_EQ(join.without_kernel, lost);
        std::size_t right = 0, wrong_and_exact = 0;
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            right += join.kernels[i].launch == places[i];
            wrong_and_exact +=
                join.kernels[i].match == Match::Exact && join.kernels[i].launch != places[i];
        }
        // One or two behind the gap may fit by accident: those are never called exact beyond it.
        EXPECT_GE(right + 3, kernels.size()) << round;
        EXPECT_LE(wrong_and_exact, 3U) << round;
    }
}

TEST(GpuJoin, AnotherGridOrFunctionIsNoPair) {
    const std::vector<LaunchFact> launches = {{100 * MS, 2, CW_NCCL_ALL_REDUCE, false},
                                              {200 * MS, 2, CW_NCCL_ALL_REDUCE, false},
                                              {300 * MS, 2, CW_NCCL_ALL_REDUCE, false}};
    std::vector<KernelFact> kernels = {{101 * MS, 102 * MS, 0, 1, 2, CW_NCCL_ALL_REDUCE},
                                       {201 * MS, 202 * MS, 0, 2, 4, CW_NCCL_ALL_REDUCE},
                                       {301 * MS, 302 * MS, 0, 3, 2, CW_NCCL_BROADCAST}};
    const std::vector<TracedSpan> spans = {always()};
    const KernelJoin join = join_kernels(launches, kernels, spans);
    EXPECT_EQ(join.exact, 1U);
    EXPECT_EQ(join.contradicted, 2U);
    EXPECT_EQ(join.without_kernel, 2U);
    EXPECT_EQ(join.kernels[1].match, Match::None);
    EXPECT_EQ(join.kernels[2].launch, UINT32_MAX);
}

TEST(GpuJoin, AKernelThatStartsLongBeforeItsLaunchIsNotItsKernel) {
    const std::vector<LaunchFact> launches = {{1000 * MS, 0, CW_NCCL_FUNC_UNKNOWN, false}};
    const std::vector<KernelFact> kernels = {{900 * MS, 901 * MS, 0, 1, 2, CW_NCCL_ALL_REDUCE}};
    const std::vector<TracedSpan> spans = {always()};
    const KernelJoin join = join_kernels(launches, kernels, spans);
    EXPECT_EQ(join.contradicted, 1U);
}

// Launches of equal kernels while the guest is being armed: nothing but times tells the first one.
TEST(GpuJoin, EqualKernelsWhileArmingAreByTime) {
    std::vector<LaunchFact> launches;
    std::vector<KernelFact> kernels;
    for (std::uint64_t i = 0; i < 20; ++i) {
        launches.push_back({1000 * MS + i * 50'000, 2, CW_NCCL_ALL_REDUCE, false});
        if (i >= 4)
            kernels.push_back({1100 * MS + i * 50'000, 1100 * MS + i * 50'000 + 40'000, 0,
                               static_cast<std::uint32_t>(i), 2, CW_NCCL_ALL_REDUCE});
    }
    kernels.pop_back();
    const std::vector<TracedSpan> spans = {{1000 * MS + 90'000, 1000 * MS + 160'000, UINT64_MAX}};
    const KernelJoin join = join_kernels(launches, kernels, spans);
    EXPECT_EQ(join.exact, 0U);
    EXPECT_EQ(join.by_time, kernels.size());
}

// A thread lost its processor between the call, before the arming, and the probe after it.
TEST(GpuJoin, TheFirstLaunchAfterTheArmingMayHaveBegunBeforeIt) {
    std::vector<LaunchFact> launches;
    std::vector<KernelFact> kernels;
    for (std::uint64_t i = 0; i < 20; ++i) {
        launches.push_back({1000 * MS + i * MS, 2, CW_NCCL_ALL_REDUCE, false});
        if (i > 0)
            kernels.push_back({1000 * MS + i * MS, 1000 * MS + i * MS + 40'000, 0,
                               static_cast<std::uint32_t>(i), 2, CW_NCCL_ALL_REDUCE});
    }
    const std::vector<TracedSpan> spans = {{990 * MS, 999 * MS, UINT64_MAX}};
    const KernelJoin join = join_kernels(launches, kernels, spans);
    EXPECT_EQ(join.traced_launches, kernels.size());
    EXPECT_EQ(join.without_kernel + join.without_launch + join.contradicted, 0U);
    for (std::size_t i = 0; i < kernels.size(); ++i)
        EXPECT_EQ(join.kernels[i].launch, i + 1);
    // Much later, it is a launch without its kernel.
    const std::vector<TracedSpan> early = {{900 * MS, 949 * MS, UINT64_MAX}};
    EXPECT_EQ(join_kernels(launches, kernels, early).without_kernel, 1U);
}

// Launches as host probes saw them on an H200, and CUPTI's records of the same loop.
TEST(GpuJoin, ARecordedLoopOfDistributedDataParallel) {
    std::ifstream file(COLLWIRE_GPU_RECORDINGS "/ddp-cupti.txt");
    ASSERT_TRUE(file);
    std::map<int, Job> jobs;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string kind, name;
        int process = 0;
        words >> kind >> process;
        if (kind == "launch") {
            LaunchFact launch;
            int func = 0, replay = 0;
            words >> launch.time_ns >> launch.channels >> func >> replay;
            launch.func = static_cast<std::uint8_t>(func);
            launch.is_replay = replay != 0;
            jobs[process].launches.push_back(launch);
        } else if (kind == "kernel") {
            KernelFact kernel;
            words >> kernel.start_ns >> kernel.end_ns >> kernel.graph_node >> kernel.correlation >>
                kernel.blocks >> name;
            kernel.func = kernel_name_of(name).func;
            jobs[process].kernels.push_back(kernel);
        }
        ASSERT_TRUE(words || kind == "#") << line;
    }
    std::size_t exact = 0;
    for (const auto &[process, job] : jobs) {
        const std::vector<TracedSpan> spans = {always()};
        const KernelJoin join = join_kernels(job.launches, job.kernels, spans);
        exact += join.exact;
        EXPECT_EQ(join.contradicted + join.without_kernel + join.without_launch, 0U) << process;
    }
    EXPECT_EQ(exact, 352U);
}

TEST(GpuJoin, NothingTracedIsNoCoverage) {
    const std::vector<LaunchFact> launches = {{1000 * MS, 2, CW_NCCL_ALL_REDUCE, false}};
    const KernelJoin none = join_kernels(launches, {}, {});
    EXPECT_EQ(none.traced_launches, 0U);
    const std::vector<TracedSpan> spans = {always()};
    const KernelJoin empty = join_kernels(launches, {}, spans);
    EXPECT_EQ(empty.traced_launches, 1U);
    EXPECT_EQ(empty.without_kernel, 1U);
}

TEST(GpuKernelName, OfAllVersions) {
    EXPECT_EQ(kernel_name_of(
                  "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE")
                  .func,
              CW_NCCL_ALL_REDUCE);
    EXPECT_EQ(kernel_name_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL").func,
              CW_NCCL_REDUCE_SCATTER);
    EXPECT_EQ(kernel_name_of("ncclDevKernel_Reduce_Sum_u8_RING_LL").func, CW_NCCL_REDUCE);
    EXPECT_EQ(kernel_name_of("ncclDevKernel_AllGatherV_RING_LL").func, CW_NCCL_ALL_GATHER_V);
    EXPECT_EQ(kernel_name_of("ncclKernel_AllReduce_TREE_LL_Sum_float").func, CW_NCCL_ALL_REDUCE);
    EXPECT_EQ(kernel_name_of("ncclSymkDevKernel_AllGather_LL").func, CW_NCCL_ALL_GATHER);
    EXPECT_EQ(kernel_name_of("_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE").func,
              CW_NCCL_SEND_RECV);
    EXPECT_TRUE(kernel_name_of("_Z20ncclDevKernel_Generic24x").is_known);
    EXPECT_EQ(kernel_name_of("_Z20ncclDevKernel_Generic24x").func, CW_NCCL_FUNC_UNKNOWN);
    EXPECT_FALSE(kernel_name_of("ncclDevKernel_Frobnicate").is_known);
    EXPECT_FALSE(kernel_name_of("ncclNewKernel_AllReduce").is_known);
    EXPECT_FALSE(kernel_name_of("").is_known);
    EXPECT_FALSE(kernel_name_of("_Z12").is_known);
}

TEST(GpuPhases, OfALateHostALateGpuAndAWait) {
    // Rank 0 waits for rank 2; rank 1's kernel is queued behind another; rank 2's host is late.
    const std::vector<RankKernel> kernels = {
        {0, 1000, 1010, 3000}, {1, 1000, 1500, 3000}, {2, 2000, 2010, 3100}};
    const std::vector<RankPhases> phases = phases_of(kernels);
    EXPECT_EQ(phases[0].late_host_ns, 0U);
    EXPECT_EQ(phases[0].late_gpu_ns, 10U);
    EXPECT_EQ(phases[0].waiting_ns, 1000U);
    EXPECT_EQ(phases[0].moving_ns, 990U);
    EXPECT_EQ(phases[1].late_gpu_ns, 500U);
    EXPECT_EQ(phases[1].waiting_ns, 510U);
    EXPECT_EQ(phases[2].late_host_ns, 1000U);
    EXPECT_EQ(phases[2].waiting_ns, 0U);
    EXPECT_EQ(phases[2].moving_ns, 1090U);
    const LastRank last = last_rank_of(kernels);
    EXPECT_EQ(last.rank, 2);
    EXPECT_EQ(last.behind_ns, 510U);
    EXPECT_EQ(last.behind_first_ns, 1000U);
}

TEST(GpuPhases, ARunningKernelHasNoEnd) {
    const std::vector<RankKernel> kernels = {{0, 0, 1010, 0}, {1, 1000, 1500, 3000}};
    const std::vector<RankPhases> phases = phases_of(kernels);
    EXPECT_TRUE(phases[0].is_running);
    EXPECT_FALSE(phases[0].has_launch);
    EXPECT_EQ(phases[0].waiting_ns, 490U);
    EXPECT_EQ(last_rank_of(std::span(kernels).first(1)).rank, -1);
}

// A kernel that ended before the last one began waited for nobody (a broadcast's root).
TEST(GpuPhases, AKernelThatEndedBeforeTheLastBegan) {
    const std::vector<RankKernel> kernels = {{0, 1000, 1010, 1100}, {1, 2000, 2010, 2100}};
    const std::vector<RankPhases> phases = phases_of(kernels);
    EXPECT_EQ(phases[0].waiting_ns, 90U);
    EXPECT_EQ(phases[0].moving_ns, 0U);
}

} // namespace
} // namespace collwire::gpu
