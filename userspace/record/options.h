// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace collwire::record {

enum class PostsMode { Auto, On, Off };
// Where queue pairs come from: ib_core, or libibverbs where that cannot be read; ib_core;
// libibverbs; ib_core, and compared with libibverbs.
enum class QpSourceMode { Auto, Kernel, Verbs, Both };
// When the kernels of GPUs are traced: never, always, in slices at multiples of a period, for one
// slice after each SIGUSR1, or while an operation of NCCL stalls.
enum class GpuMode { Off, Always, Slices, OnSignal, OnStall };

struct RecordOptions {
    std::string directory = ".";
    std::uint64_t duration_ns = 0; // 0: until a signal or the end of the command
    std::uint64_t interval_ns = 1'000'000'000;
    std::uint64_t keep_ns = 0;   // 0: everything
    std::uint64_t max_bytes = 0; // 0: no limit
    std::vector<std::uint32_t> pids;
    std::vector<std::string> command;
    PostsMode posts = PostsMode::Auto;
    // With Auto: of processes whose queue pairs are all NCCL's, posts are counted in slices.
    // 0: all the time.
    std::uint64_t posts_on_ns = 1'000'000'000;
    std::uint64_t posts_period_ns = 60'000'000'000;
    QpSourceMode qp_source = QpSourceMode::Auto;
    bool wire = true;
    bool nccl = true;
    std::vector<std::string> nccl_files; // probed before a process maps them
    std::vector<std::string> symbols;    // folders with debug files of stripped NCCL
    bool api_returns = false;            // record returns of NCCL calls
    bool local_launches = false;         // record NCCL launches without proxy operations
    bool network_times = false; // record start and completion of NCCL's operations, by connection
    bool warnings = false;      // record NCCL's warnings
    GpuMode gpu = GpuMode::Off;
    std::uint64_t gpu_on_ns = 2'000'000'000; // of a slice
    std::uint64_t gpu_period_ns = 60'000'000'000;
    bool nvlink = true; // NVLink counters and errors of the NVIDIA driver, where there are any
    std::uint64_t gpu_stall_ns = 10'000'000'000;
    std::vector<std::uint32_t> inject; // processes that get the guest library
    double budget = 0;                 // share of one CPU for each process; 0: none
    bool counters_only = false;
    bool full_cmdline = false;
    bool dry_run = false;
    bool calibrate = false; // with dry_run: measure what probes cost here
    bool force_kprobes = false;
    std::uint32_t ring_bytes = 8u << 20;
};

} // namespace collwire::record
