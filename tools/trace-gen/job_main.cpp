// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_main.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "tools/program_options/program_options.h"
#include "tools/trace-gen/job_damage.h"
#include "tools/trace-gen/job_node.h"
#include "tools/trace-gen/job_options.h"
#include "tools/trace-gen/job_plan.h"
#include "tools/trace-gen/job_times.h"
#include "tools/trace-gen/job_truth.h"

namespace collwire::trace_gen {
namespace {

struct Texts {
    std::vector<std::string> late, slow, damaged, moved, parameters, port_errors, kept_errors,
        clocks;
    std::string stopped, skew = "none", bytes = "posts", protocol = "SIMPLE";
    std::uint32_t step_ms = 2000, bucket_kib = 32768, transfer_kib = 1024;
    bool no_truth = false, no_small = false, no_ring_order = false, no_names = false;
};

template <typename Value, typename Parse>
Result<void> parse_all(const std::vector<std::string> &texts, std::vector<Value> &values,
                       Parse parse) {
    for (const std::string &text : texts) {
        auto value = parse(text);
        if (!value)
            return std::move(value).failure();
        values.push_back(*std::move(value));
    }
    return {};
}

Result<void> fill_in(const Texts &texts, JobOptions &options) {
    options.step_ns = texts.step_ms * std::uint64_t{1'000'000};
    options.bucket_bytes = std::uint64_t{texts.bucket_kib} << 10;
    options.transfer_bytes = std::uint64_t{texts.transfer_kib} << 10;
    options.has_truth = !texts.no_truth;
    options.has_small = !texts.no_small;
    options.has_ring_order = !texts.no_ring_order;
    options.has_names = !texts.no_names;
    if (texts.bytes != "posts" && texts.bytes != "computed")
        return error(ErrorKind::Usage, "--bytes: not understood. Fix: give posts or computed");
    options.bytes = texts.bytes == "posts" ? JobBytes::Posts : JobBytes::Computed;
    if (auto done = parse_all(texts.late, options.late, parse_late); !done)
        return done;
    if (auto done = parse_all(texts.slow, options.slow, parse_slow_link); !done)
        return done;
    if (auto done = parse_all(texts.port_errors, options.port_errors, parse_port_errors); !done)
        return done;
    if (auto done = parse_all(texts.kept_errors, options.kept_errors, parse_kept_error); !done)
        return done;
    if (auto done = parse_all(texts.damaged, options.damaged, parse_damage); !done)
        return done;
    if (auto done = parse_all(texts.moved, options.moved, parse_moved_nic); !done)
        return done;
    if (auto done = parse_all(texts.parameters, options.parameters, parse_parameter); !done)
        return done;
    if (auto done = parse_all(texts.clocks, options.clocks, parse_clock); !done)
        return done;
    const auto protocol = parse_protocol(texts.protocol);
    if (!protocol)
        return protocol.failure();
    options.bucket_protocol = *protocol;
    if (auto done = parse_skew(texts.skew, options); !done)
        return done;
    if (!texts.stopped.empty()) {
        auto stopped = parse_stopped(texts.stopped);
        if (!stopped)
            return std::move(stopped).failure();
        options.stopped = *stopped;
    }
    return check_job(options);
}

Result<std::uint64_t> write_job(const JobOptions &options) {
    std::error_code failure;
    std::filesystem::create_directories(options.directory, failure);
    const JobPlan plan(options);
    const JobTraffic traffic(plan);
    std::unique_ptr<JobTruth> truth;
    if (options.has_truth) {
        auto made = JobTruth::create(plan);
        if (!made)
            return std::move(made).failure();
        truth = *std::move(made);
        truth->job();
        truth->traffic(traffic);
    }
    const JobTimes times(plan, traffic, [&](const JobTimes::Arrivals &arrivals) {
        if (truth)
            truth->operation(arrivals);
    });
    std::uint64_t n_records = 0;
    for (std::uint32_t node = 0; node < options.nodes; node++) {
        auto written = write_node(plan, traffic, times, node);
        if (!written)
            return std::move(written).failure();
        CaptureTruth capture{.node = node, .n_records = written->n_records};
        Damage damage = Damage::None;
        for (const DamagedCapture &damaged : options.damaged)
            if (damaged.node == node)
                damage = damaged.damage;
        if (auto done = damage_capture(written->path, damage, capture); !done)
            return std::move(done).failure();
        n_records += capture.n_records;
        if (truth)
            truth->capture(capture);
    }
    std::ofstream topology(options.directory + "/topology.json");
    topology << job_topology(options.nodes);
    topology.close();
    if (!topology)
        return error(ErrorKind::Failed,
                     "topology.json: cannot be written. Fix: give --out another directory");
    if (truth) {
        truth->totals(traffic, times.end_ns());
        if (auto closed = truth->close(); !closed)
            return std::move(closed).failure();
    }
    return n_records;
}

} // namespace

int job_main(int argc, char **argv) {
    JobOptions options;
    Texts texts;
    ProgramOptions program("collwire-trace-gen job: writes captures of a generated training job, "
                           "8 ranks and NICs a node, its topology.json and truth.jsonl");
    program.add("--nodes", options.nodes, "Nodes, 2 to 1024").show_default();
    program.add("--tp", options.tensor_parallel, "Ranks of a tensor parallel group: 1, 4, 8")
        .show_default();
    program.add("--pp", options.pipeline_stages, "Stages of the pipeline").show_default();
    program.add("--ep", options.expert_parallel, "Ranks of an all-to-all of experts; 0: none")
        .show_default();
    program.add("--iterations", options.iterations, "Steps of the training").show_default();
    program.add("--step-ms", texts.step_ms, "Length of an iteration").show_default();
    program.add("--buckets", options.buckets, "AllReduces of gradients in an iteration")
        .show_default();
    program.add("--bucket-kib", texts.bucket_kib, "Size of a bucket").show_default();
    program.add("--layers", options.layers, "Operations of tensor and expert parallelism: rounds")
        .show_default();
    program.add("--microbatches", options.microbatches, "Transfers between stages").show_default();
    program.add("--transfer-kib", texts.transfer_kib, "Size of a transfer").show_default();
    program.add("--sharded", options.is_sharded, "ReduceScatter and AllGather, not AllReduce");
    program.add("--no-small", texts.no_small, "No small AllReduce by a tree");
    program.add("--no-names", texts.no_names, "Communicators without a name");
    program.add("--bytes", texts.bytes, "What is known of queue pairs: posts or computed")
        .show_default();
    program.add("--network-times", options.has_network_times, "As of record --network-times");
    program.add("--local-launches", options.has_local_launches, "As of record --local-launches");
    program.add("--no-ring-order", texts.no_ring_order,
                "Channels without the order of their ranks");
    program.add("--skew", texts.skew, "Clocks of nodes: none, constant:MS, drift:PPM")
        .show_default();
    program.add("--clock", texts.clocks,
                "NODE:MS[:SECONDS]: its realtime is ahead by MS, from SECONDS on by so much more");
    program.add("--late", texts.late, "RANK:MS[:FROM-TO], iterations FROM to TO");
    program.add("--slow-link", texts.slow, "NODE:NIC:FACTOR[:FROM-TO]");
    program.add("--protocol", texts.protocol, "Of buckets: SIMPLE, LL, LL128").show_default();
    program.add("--move-nic", texts.moved, "NODE:FROM:TO: connections take another NIC");
    program.add("--parameter", texts.parameters, "NAME:VALUE of a parameter of NCCL");
    program.add("--die-at", texts.stopped, "SECONDS[:RANK]: a rank stops");
    program.add("--port-errors", texts.port_errors,
                "NODE:NIC:COUNTER:FROM-TO, a counter that grows each second");
    program.add("--nccl-error", texts.kept_errors, "SECONDS:RANK: NCCL keeps an error");
    program.add("--damage", texts.damaged,
                "NODE:missing, truncated, doubled, corrupt, newer-major, newer-minor");
    program.add("--no-truth", texts.no_truth, "Write no truth.jsonl");
    program.add("--seed", options.seed, "Seed of the made-up numbers").show_default();
    program.add("-o,--out", options.directory, "Directory for the files").show_default();
    if (const auto status = program.parse(argc, argv))
        return *status;
    const auto begin = std::chrono::steady_clock::now();
    auto filled = fill_in(texts, options);
    auto written = filled ? write_job(options) : Result<std::uint64_t>(std::move(filled).failure());
    if (!written) {
        fmt::print(stderr, "collwire-trace-gen: {}\n", written.failure().message);
        return exit_status_of(written.failure());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    fmt::print("{} records in {:.2f} s\n", *written, took.count());
    return EXIT_DONE;
}

} // namespace collwire::trace_gen
