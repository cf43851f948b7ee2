// SPDX-License-Identifier: Apache-2.0
// Rows of NCCL's kernels on GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "correlate/rows/words.h"

namespace collwire::rows {

enum class KernelSource : std::uint8_t { Cupti, NcclProfiler };
template <> struct Vocabulary<KernelSource> {
    static constexpr std::array<std::string_view, 2> words{"cupti", "nccl_profiler"};
};

struct KernelRow {
    std::uint64_t kernel = 0;
    std::string host;
    std::uint64_t pid = 0;
    std::uint64_t device = 0;
    KernelSource source = KernelSource::Cupti;
    std::optional<std::string> op;
    std::optional<std::uint64_t> start_realtime_ns;
    std::optional<std::uint64_t> end_realtime_ns;
    std::optional<std::uint64_t> duration_ns;
    bool is_odd_time = false;
    std::uint64_t blocks = 0;
    std::optional<std::uint64_t> comm;
    std::optional<std::int64_t> rank;
    std::optional<std::uint64_t> launched_realtime_ns;
};
template <> struct Declaration<KernelRow> {
    static constexpr std::string_view TABLE = "kernels";
    static constexpr std::string_view MEANING =
        "NCCL's kernels on GPUs. Their operations are in operation_ranks.";
    static constexpr Scope SCOPE = Scope::Report;
    static constexpr std::tuple COLUMNS{
        COLUMN(KernelRow, kernel, Number, "Number of the kernel in this file."),
        COLUMN(KernelRow, host, Text, "Its host: hosts.host."),
        COLUMN(KernelRow, pid, Number, "Its process, by the host's number."),
        COLUMN(KernelRow, device, Number, "CUDA's number of the device in that process."),
        COLUMN(KernelRow, source, Word, "Where its times are from."),
        COLUMN(KernelRow, op, Word, "NCCL's operation by the kernel's name; null: not known."),
        COLUMN(KernelRow, start_realtime_ns, Realtime,
               "Its start; null: it had not begun when its trace ended."),
        COLUMN(KernelRow, end_realtime_ns, Realtime,
               "Its end; null: it still ran when its trace ended."),
        COLUMN(KernelRow, duration_ns, Nanoseconds,
               "From start to end; null: one is not known, or it ends before it starts."),
        COLUMN(KernelRow, is_odd_time, Flag, "1: it ends before it starts, by its source."),
        COLUMN(KernelRow, blocks, Count, "Blocks of its grid: NCCL's channels with work."),
        COLUMN(KernelRow, comm, Number,
               "The communicator of its launch; null: no launch is known."),
        COLUMN(KernelRow, rank, Number, "The rank of its launch; null: no launch is known."),
        COLUMN(KernelRow, launched_realtime_ns, Realtime, "Its launch; null: not known."),
    };
};

} // namespace collwire::rows
