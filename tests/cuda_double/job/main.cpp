// SPDX-License-Identifier: Apache-2.0
// A rank, or several in one process, of a job that looks like a training: several communicators at
// once, a plan in a loop, a log of every call. README.md describes the plan and the log.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_double/job/communicator.h"
#include "tests/cuda_double/job/log.h"
#include "tests/cuda_double/job/plan.h"
#include "tests/cuda_double/job/runner.h"
#include "tests/cuda_double/job/values.h"
#include "tests/cuda_double/rendezvous.h"

namespace {

using namespace collwire::job;

struct Options {
    int rank = 0;
    int ranks = 1;
    int device = 0;
    int local_ranks = 1;
    std::string id;
    std::string plan = "training";
    std::string log;
    RunOptions run{};
};

std::atomic<bool> stop_asked{false};

void ask_to_stop(int) {
    stop_asked = true;
}

// In the middle of everything, with communicators and threads.
void become_another_program(int) {
    execl("/bin/true", "true", nullptr);
    _exit(1);
}

void read_options(CLI::App &app, Options &options) {
    app.add_option("--rank", options.rank, "this process' rank")->required();
    app.add_option("--ranks", options.ranks, "of the job")->required();
    app.add_option("--id", options.id, "file:PATH or tcp:HOST:PORT, where rank 0 listens")
        ->required();
    app.add_option("--device", options.device, "of this process' devices");
    app.add_option("--local-ranks", options.local_ranks,
                   "this rank and those after it, each a thread with a device of its own")
        ->check(CLI::Range(1, 64));
    app.add_option("--plan", options.plan, "training, everything, abort, or a file");
    app.add_option("--log", options.log, "a file: one JSON object a line for each call");
    auto *count = app.add_option("--count", options.run.count, "iterations of the plan's loop");
    auto *seconds = app.add_option("--seconds", options.run.seconds, "at least so long");
    app.add_option("--gap-ms", options.run.gap_ms, "silence after each step");
    app.add_option("--stall-rank", options.run.stall.rank, "sleeps before one call");
    app.add_option("--stall-at", options.run.stall.at, "which call, from 0");
    app.add_option("--stall-communicator", options.run.stall.communicator,
                   "--stall-at counts the calls on this one");
    app.add_option("--stall-ms", options.run.stall.ms, "how long");
    app.add_option("--other-size-rank", options.run.other_size.rank,
                   "does one operation with a fourth of the bytes");
    app.add_option("--other-size-at", options.run.other_size.at, "which, from 0");
    app.callback([&options, count, seconds] {
        if (count->count() + seconds->count() == 0)
            options.run.count = 1;
    });
}

std::size_t run_rank(const Options &options, const Plan &plan, int index) {
    const int rank = options.rank + index;
    if (cudaSetDevice(options.device + index) != cudaSuccess)
        give_up("--device: there is none of that number. Fix: COLLWIRE_CUDA_DEVICES");
    JobLog log(options.local_ranks == 1 || options.log.empty()
                   ? options.log
                   : fmt::format("{}.{}", options.log, rank));
    int version = 0;
    require(ncclGetVersion(&version), "ncclGetVersion");
    log.write("job", {{"rank", rank},
                      {"ranks", options.ranks},
                      {"pid", ::getpid()},
                      {"nccl_version", version},
                      {"plan", options.plan},
                      {"agrees_to_stop_by", "AllReduce on the world"}});
    std::size_t wrong_elements = 0;
    {
        Communicators communicators(plan, log, rank, options.ranks, options.id);
        fmt::print("rank {}: running\n", rank);
        wrong_elements = Runner(communicators, log, rank, options.run).run(plan, stop_asked);
    }
    // For the kernels of others, too: a trace that ends with the process has their ends.
    require_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    fmt::print("rank {}: {}\n", rank,
               wrong_elements == 0 ? "all data right" : fmt::format("{} wrong", wrong_elements));
    return wrong_elements;
}

int run(const Options &options) {
    const Plan plan = parse_plan(plan_text(options.plan));
    std::atomic<std::size_t> wrong_elements{0};
    std::vector<std::thread> others;
    for (int index = 1; index < options.local_ranks; index++)
        others.emplace_back([&, index] { wrong_elements += run_rank(options, plan, index); });
    wrong_elements += run_rank(options, plan, 0);
    for (std::thread &other : others)
        other.join();
    return wrong_elements == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    CLI::App app("A rank of a test job over NCCL");
    Options options;
    read_options(app, options);
    CLI11_PARSE(app, argc, argv);
    std::signal(SIGTERM, ask_to_stop);
    std::signal(SIGINT, ask_to_stop);
    std::signal(SIGUSR1, become_another_program);
    try {
        return run(options);
    } catch (const PlanError &error) {
        fmt::print(stderr, "--plan {}: {}\n", options.plan, error.what());
        return 2;
    }
}
