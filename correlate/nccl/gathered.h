// SPDX-License-Identifier: Apache-2.0
// NCCL's records as gathered, in compact form: there can be millions of calls. Times are
// CLOCK_MONOTONIC nanoseconds of the host.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "collwire/gpu_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/nvlink_records.h"
#include "collwire/socket_records.h"
#include "correlate/gpu/nvlink_history.h"
#include "correlate/model/known.h"
#include "correlate/nccl/byte_series.h"
#include "correlate/nccl/call_list.h"
#include "correlate/nccl/connection_times.h"
#include "correlate/nccl/ring_orders.h"

namespace collwire::nccl {

using model::Index;
using model::Known;
using model::NONE;

// An address or hash in a process of a recording.
struct AddressKey {
    std::uint64_t address = 0;
    Index session = NONE;
    std::uint32_t tgid = 0;
    friend bool operator==(const AddressKey &, const AddressKey &) = default;
};
struct AddressHash {
    std::size_t operator()(const AddressKey &key) const;
};
template <typename T> using ByAddress = std::unordered_map<AddressKey, T, AddressHash>;

// cw_post_operations
struct PostOperations {
    std::uint64_t end_ns = 0;
    std::uint64_t begin_ns = 0;
    std::uint64_t from_steps = 0;
    std::uint64_t to_steps = 0;
    std::uint64_t bytes = 0;
    std::uint64_t operations = 0;
    bool is_fault = false;
    friend auto operator<=>(const PostOperations &, const PostOperations &) = default;
};

struct Return {
    std::uint64_t call_ns = 0;
    std::uint32_t tid = 0;
    std::uint32_t result = 0;
};

// Tasks of a launch that did not fit into it.
struct MoreTasks {
    std::uint64_t launch_ns = 0;
    std::uint64_t plan = 0;
    std::uint32_t first_task = 0; // in CommStream::tasks
    std::uint16_t first = 0;
    std::uint16_t n = 0;
};

struct Channel {
    std::uint64_t time_ns = 0;
    cw_nccl_channel record{};
    RingOrder order;
};

// All records for one address of one process. Communicators are created and destroyed there.
struct CommStream {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint64_t address = 0;
    std::vector<cw_nccl_comm> comms;
    std::vector<std::uint64_t> ends_ns;
    CallList calls;
    std::vector<Return> returns; // until assigned to calls
    LaunchList launches;
    std::vector<cw_nccl_task_ref> tasks;
    std::vector<MoreTasks> more_tasks;
    std::vector<Channel> channels;
    std::vector<cw_nccl_local> locals;
    std::vector<cw_nccl_nvls> nvls;
};

struct GatheredShape {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint64_t comm = 0;
    std::uint32_t n_ops = 0;
    std::vector<cw_nccl_shape_task> tasks; // by index; length 0: missing
    std::vector<cw_nccl_op> ops;
    std::vector<bool> has_op;
};

// A plugin's connection with the queue pairs that pointers lead to.
[[nodiscard]] inline bool is_found(const cw_nccl_connection &connection) {
    return (connection.flags & CW_NCCL_CONNECTION_FOUND) != 0;
}

struct GatheredConnection {
    Index session = NONE;
    cw_nccl_connection head{};  // of its first record
    std::uint64_t found_ns = 0; // of a plugin: time of its endpoints; 0: not found
    std::vector<cw_nccl_endpoint> endpoints;
    std::vector<std::uint64_t> socket_inodes; // by endpoint, of sockets; 0: not known

    // The time at which its endpoints were valid.
    [[nodiscard]] std::uint64_t endpoints_ns() const {
        return found_ns != 0 ? found_ns : head.header.time_ns;
    }
};

struct Image {
    Index session = NONE;
    std::uint32_t image_id = 0;
    std::uint32_t version = 0;
    std::array<std::uint8_t, CW_NCCL_CAPABILITIES> rungs{};
    std::string build_id, path, reason, basis;
};

// cw_nccl_network
struct GatheredNetwork {
    std::string name; // empty: not known
    std::string path; // empty: not known
};

struct NcclProcess {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint32_t image_id = 0;
    std::uint64_t start_boottime_ns = 0;
    std::uint64_t time_ns = 0; // start of the polling
};

struct EndedProcess {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint32_t image_id = 0;
    std::uint64_t there_ns = 0; // it exited between the two
    std::uint64_t gone_ns = 0;
    friend auto operator<=>(const EndedProcess &, const EndedProcess &) = default;
};

// cw_nccl_result
struct KeptResult {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint64_t comm = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t before_ns = 0; // 0: there at the first poll
    std::uint32_t result = 0;
    std::uint32_t of = 0; // enum cw_nccl_result_of
    friend auto operator<=>(const KeptResult &, const KeptResult &) = default;
};

// cw_nccl_last_error
struct LastError {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t before_ns = 0; // 0: there at the first poll
    std::string text;
    friend auto operator<=>(const LastError &, const LastError &) = default;
};

// cw_nccl_warning
struct Warning {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint64_t time_ns = 0;
    std::uint32_t tid = 0;
    std::uint32_t line = 0;
    std::string file, format, earlier;
    friend auto operator<=>(const Warning &, const Warning &) = default;
};

struct Param {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::string name;
    std::int64_t value = 0;
    std::uint64_t time_ns = 0;
};

struct Socket {
    Index session = NONE;
    std::uint32_t tgid = 0;
    cw_tcp_socket first{};
    cw_tcp_socket last{};
    bool is_counted_from_first = false; // earlier bytes are in no present recording
    ByteSeries acked;                   // payload_bytes; wire_bytes is 0
};

// Closed by NCCL, and not a connection's.
struct ClosedSocket {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t inode = 0;
    std::uint64_t sent_bytes = 0;
    std::uint32_t type = CW_NCCL_SOCKET_UNKNOWN; // enum cw_nccl_socket_type
    friend auto operator<=>(const ClosedSocket &, const ClosedSocket &) = default;
};

// cw_gpu_kernel, with its name resolved, or the cw_gpu_channels of one kernel
struct GpuKernel {
    std::uint64_t start_ns = 0; // 0: it had not begun when the trace ended
    std::uint64_t end_ns = 0;   // 0: it still ran
    std::uint64_t graph_node = 0;
    std::uint32_t correlation = 0;
    std::uint32_t blocks = 0;
    std::uint32_t stream = 0;
    std::uint16_t device = 0;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    bool is_odd_time = false;                  // it ends before it starts
    std::uint8_t source = CW_GPU_SOURCE_CUPTI; // enum cw_gpu_source
};

// cw_gpu_trace
struct GpuState {
    std::uint64_t time_ns = 0;
    cw_gpu_state_item item{};
};

// cw_gpu_profiler
struct GpuProfilerState {
    std::uint64_t time_ns = 0;
    cw_gpu_profiler_item item{};
};

// What the guest library in one process handed over.
struct GpuProcess {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::vector<GpuKernel> kernels;
    std::vector<GpuState> states;
    std::vector<cw_gpu_window_item> windows;
    std::vector<cw_gpu_channel_item> channels; // from NCCL's profiler
    std::vector<GpuProfilerState> profiler_states;
    std::map<std::uint16_t, std::string> names;         // of the trace that is gathered
    std::map<std::string, std::uint64_t> unknown_names; // kernels, by name
    // Kernels whose name was not known yet, by its number.
    std::map<std::uint16_t, std::vector<std::uint32_t>> unnamed;
};

// The NVLinks of a GPU.
struct GatheredNvlink {
    Index session = NONE;
    cw_nvlink_gpu record{}; // the last one
    gpu::NvlinkHistory history;
    std::vector<cw_nvlink_gap> gaps; // of this GPU, and of all
};

// cw_xid
struct GatheredXid {
    Index session = NONE;
    cw_xid record{};
};

struct Gathered {
    std::vector<CommStream> streams;
    ByAddress<Index> stream_at;
    std::vector<GatheredShape> shapes;
    ByAddress<Index> shape_of_hash;
    std::vector<GatheredConnection> connections;
    ByAddress<std::vector<Index>> connections_at; // by the connection's own address
    std::vector<Image> images;
    ByAddress<GatheredNetwork> networks; // by address of their tables
    std::vector<NcclProcess> processes;
    std::vector<EndedProcess> ended_processes;
    std::vector<KeptResult> results;
    std::vector<LastError> last_errors;
    std::vector<Warning> warnings;
    std::vector<Param> params;
    std::vector<Socket> sockets;
    std::vector<ClosedSocket> closed_sockets;
    // By address of the connection.
    ByAddress<std::vector<StepSample>> steps;
    ByAddress<std::vector<ProgressEvent>> progress;
    ByAddress<std::vector<PostOperations>> post_operations;
    std::vector<GpuProcess> gpu_processes;
    std::vector<GatheredNvlink> nvlink_gpus;
    std::vector<GatheredXid> xids;
};

} // namespace collwire::nccl
