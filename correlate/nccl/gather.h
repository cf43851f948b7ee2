// SPDX-License-Identifier: Apache-2.0
// Reads the NCCL records of captures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collwire/record.h"
#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

// Limits for one capture, far above what a recorder writes. A file of some KiB can hold millions of
// equal records.
inline constexpr std::uint64_t MAX_CALLS = 20'000'000; // including launches and their samples
inline constexpr std::uint64_t MAX_TASKS = 100'000'000;
inline constexpr std::uint64_t MAX_SHAPE_RECORDS = 4'000'000;
inline constexpr std::uint64_t MAX_ORDER_RANKS = 10'000'000;
inline constexpr std::uint64_t MAX_OTHER_RECORDS = 1'000'000; // of each other kind
inline constexpr std::uint32_t MAX_SHAPE_ITEMS = 65'536;      // tasks, or operations, of a launch
inline constexpr std::uint32_t MAX_ENDPOINTS = 256;           // of a connection
inline constexpr std::uint64_t MAX_SOCKETS = 100'000;
inline constexpr std::uint64_t MAX_GPU_KERNELS = 50'000'000;
inline constexpr std::uint64_t MAX_GPU_WINDOWS = 20'000'000;
inline constexpr std::uint64_t MAX_NVLINK_SAMPLES = 20'000'000;
inline constexpr std::size_t MAX_NVLINK_GAPS = 10'000; // of a GPU; a recorder makes one a minute
inline constexpr std::uint64_t MAX_NVLINK_GPUS = 1024; // of all recordings of a host

class Gather {
public:
    void begin_capture() { counts_ = {}; }
    // False: too many of its kind, or impossible values.
    [[nodiscard]] bool add(Index session, const cw_header &header,
                           std::span<const std::byte> record, bool from_start);
    [[nodiscard]] Gathered take();

private:
    struct Counts {
        std::uint64_t calls = 0, returns = 0, launches = 0, tasks = 0, shapes = 0, ranks = 0,
                      comms = 0, ends = 0, channels = 0, locals = 0, params = 0, images = 0,
                      processes = 0, connections = 0, networks = 0, progress = 0, steps = 0,
                      post_operations = 0, closed_sockets = 0, errors = 0, gpu_kernels = 0,
                      gpu_windows = 0, gpu_others = 0, nvlink_samples = 0, nvlink_others = 0;
    };

    CommStream &stream_of(Index session, std::uint32_t tgid, std::uint64_t address);
    GatheredShape &shape_of(Index session, std::uint32_t tgid, std::uint64_t comm,
                            std::uint64_t shape);
    bool add_call(Index session, std::span<const std::byte> record);
    bool add_return(Index session, std::span<const std::byte> record);
    bool add_launch(Index session, std::span<const std::byte> record);
    bool add_launch_tasks(Index session, std::span<const std::byte> record);
    bool add_shape_task(Index session, std::span<const std::byte> record);
    bool add_shape_ops(Index session, std::span<const std::byte> record);
    bool add_progress(Index session, std::span<const std::byte> record);
    bool add_steps(Index session, std::span<const std::byte> record);
    bool add_post_operations(Index session, std::span<const std::byte> record);
    bool add_channel(Index session, std::span<const std::byte> record);
    bool add_connection(Index session, std::span<const std::byte> record);
    bool add_process(Index session, std::span<const std::byte> record);
    bool add_result(Index session, std::span<const std::byte> record);
    bool add_last_error(Index session, std::span<const std::byte> record);
    bool add_warning(Index session, std::span<const std::byte> record);
    bool add_image(Index session, std::span<const std::byte> record);
    bool add_network(Index session, std::span<const std::byte> record);
    bool add_param(Index session, std::span<const std::byte> record);
    bool add_socket(Index session, std::span<const std::byte> record, bool from_start);
    bool add_closed_socket(Index session, std::span<const std::byte> record);
    bool add_gpu_kernel(Index session, std::span<const std::byte> record);
    bool add_gpu_name(Index session, std::span<const std::byte> record);
    bool add_gpu_window(Index session, std::span<const std::byte> record);
    bool add_gpu_trace(Index session, std::span<const std::byte> record);
    bool add_gpu_channel(Index session, std::span<const std::byte> record);
    bool add_gpu_profiler(Index session, std::span<const std::byte> record);
    GpuProcess &gpu_process_of(Index session, std::uint32_t tgid);
    bool add_nvlink_gpu(Index session, std::span<const std::byte> record);
    bool add_nvlink_sample(Index session, std::span<const std::byte> record);
    bool add_nvlink_gap(Index session, std::span<const std::byte> record);
    bool add_xid(Index session, std::span<const std::byte> record);
    // Null: too many.
    GatheredNvlink *nvlink_gpu_of(Index session, std::uint32_t gpu);

    Gathered gathered_;
    RingOrders ring_orders_;
    Counts counts_;                         // of the capture that was started last
    ByAddress<std::vector<Index>> sockets_; // by inode
    ByAddress<Index> images_;               // by number
    ByAddress<Index> gpu_processes_;        // by 0
    ByAddress<Index> nvlink_gpus_;          // by 0, NVML's index instead of a process
};

} // namespace collwire::nccl
