// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/nccl_names.h"

#include <array>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_error_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/socket_records.h"

namespace collwire::capture {
namespace {

constexpr auto FUNCS = std::to_array<NamedNumber>({
    {CW_NCCL_BROADCAST, "Broadcast"},
    {CW_NCCL_REDUCE, "Reduce"},
    {CW_NCCL_ALL_GATHER, "AllGather"},
    {CW_NCCL_REDUCE_SCATTER, "ReduceScatter"},
    {CW_NCCL_ALL_REDUCE, "AllReduce"},
    {CW_NCCL_SEND_RECV, "SendRecv"},
    {CW_NCCL_SEND, "Send"},
    {CW_NCCL_RECV, "Recv"},
    {CW_NCCL_ALL_TO_ALL, "AlltoAll"},
    {CW_NCCL_SCATTER, "Scatter"},
    {CW_NCCL_GATHER, "Gather"},
    {CW_NCCL_ALL_GATHER_V, "AllGatherV"},
    {CW_NCCL_PUT_SIGNAL, "PutSignal"},
    {CW_NCCL_SIGNAL, "Signal"},
    {CW_NCCL_WAIT_SIGNAL, "WaitSignal"},
    {CW_NCCL_FUNC_UNKNOWN, "unknown"},
});
static_assert(FUNCS.size() == CW_NCCL_FUNCS + 1);

constexpr auto PATTERNS = std::to_array<NamedNumber>({
    {CW_NCCL_PATTERN_UNKNOWN, "unknown"},
    {CW_NCCL_PATTERN_RING, "Ring"},
    {CW_NCCL_PATTERN_RING_TWICE, "RingTwice"},
    {CW_NCCL_PATTERN_PIPELINE_FROM, "PipelineFrom"},
    {CW_NCCL_PATTERN_PIPELINE_TO, "PipelineTo"},
    {CW_NCCL_PATTERN_TREE_UP, "TreeUp"},
    {CW_NCCL_PATTERN_TREE_DOWN, "TreeDown"},
    {CW_NCCL_PATTERN_TREE_UP_DOWN, "TreeUpDown"},
    {CW_NCCL_PATTERN_COLLNET_CHAIN, "CollnetChain"},
    {CW_NCCL_PATTERN_COLLNET_DIRECT, "CollnetDirect"},
    {CW_NCCL_PATTERN_NVLS, "Nvls"},
    {CW_NCCL_PATTERN_NVLS_TREE, "NvlsTree"},
    {CW_NCCL_PATTERN_PAT_UP, "PatUp"},
    {CW_NCCL_PATTERN_PAT_DOWN, "PatDown"},
    {CW_NCCL_PATTERN_SEND, "Send"},
    {CW_NCCL_PATTERN_RECV, "Recv"},
    {CW_NCCL_PATTERN_PROFILER, "Profiler"},
});
static_assert(PATTERNS.size() == CW_NCCL_PATTERNS);

constexpr auto ALGORITHMS = std::to_array<NamedNumber>({
    {CW_NCCL_TREE, "TREE"},
    {CW_NCCL_RING, "RING"},
    {CW_NCCL_COLLNET_DIRECT, "COLLNET_DIRECT"},
    {CW_NCCL_COLLNET_CHAIN, "COLLNET_CHAIN"},
    {CW_NCCL_NVLS, "NVLS"},
    {CW_NCCL_NVLS_TREE, "NVLS_TREE"},
    {CW_NCCL_PAT, "PAT"},
    {CW_NCCL_ALGORITHM_UNKNOWN, "unknown"},
});

constexpr auto PROTOCOLS = std::to_array<NamedNumber>({
    {CW_NCCL_LL, "LL"},
    {CW_NCCL_LL128, "LL128"},
    {CW_NCCL_SIMPLE, "SIMPLE"},
    {CW_NCCL_PROTOCOL_UNKNOWN, "unknown"},
});

constexpr auto CAPABILITIES = std::to_array<NamedNumber>({
    {CW_NCCL_COMMUNICATORS, "communicators"},
    {CW_NCCL_OPERATIONS, "operations"},
    {CW_NCCL_CONNECTIONS, "connections"},
    {CW_NCCL_BYTES, "bytes"},
    {CW_NCCL_GRAPHS, "graphs"},
    {CW_NCCL_ERRORS, "errors"},
    {CW_NCCL_INSPECT, "inspect"},
    {CW_NCCL_TIMES, "times"},
});

constexpr auto TRANSPORTS = std::to_array<NamedNumber>({
    {CW_NCCL_TRANSPORT_UNKNOWN, "unknown"},
    {CW_NCCL_TRANSPORT_IB, "ib"},
    {CW_NCCL_TRANSPORT_SOCKET, "socket"},
    {CW_NCCL_TRANSPORT_PLUGIN, "plugin"},
    {CW_NCCL_TRANSPORT_LOCAL, "local"},
    {CW_NCCL_TRANSPORT_COLLNET, "collnet"},
});

constexpr auto ROLES = std::to_array<NamedNumber>({
    {CW_NCCL_ROLE_DATA, "data"},
    {CW_NCCL_ROLE_CLEAR_TO_SEND, "clear_to_send"},
    {CW_NCCL_ROLE_FLUSH, "flush"},
    {CW_NCCL_ROLE_CONTROL, "control"},
});

constexpr auto RESULTS_OF = std::to_array<NamedNumber>({
    {CW_NCCL_RESULT_OF_COMM, "communicator"},
    {CW_NCCL_RESULT_OF_PROXY, "proxy"},
});

constexpr auto SOCKET_TYPES = std::to_array<NamedNumber>({
    {CW_NCCL_SOCKET_UNKNOWN, "unknown"},
    {CW_NCCL_SOCKET_BOOTSTRAP, "bootstrap"},
    {CW_NCCL_SOCKET_PROXY, "proxy"},
    {CW_NCCL_SOCKET_NETWORK_SETUP, "network_setup"},
    {CW_NCCL_SOCKET_RAS, "ras"},
});
static_assert(SOCKET_TYPES.size() == CW_NCCL_SOCKET_TYPES);

// ncclDatatypeToString; it has none for ncclUint8.
constexpr auto DATATYPES = std::to_array<NamedNumber>({
    {0, "ncclInt8"},
    {1, "ncclUint8"},
    {2, "ncclInt32"},
    {3, "ncclUint32"},
    {4, "ncclInt64"},
    {5, "ncclUint64"},
    {6, "ncclFloat16"},
    {7, "ncclFloat32"},
    {8, "ncclFloat64"},
    {9, "ncclBfloat16"},
    {10, "ncclFloat8e4m3"},
    {11, "ncclFloat8e5m2"},
});
constexpr std::array<std::uint32_t, DATATYPES.size()> DATATYPE_BYTES{1, 1, 4, 4, 8, 8,
                                                                     2, 4, 8, 2, 1, 1};

constexpr auto REDUCTIONS = std::to_array<NamedNumber>({
    {0, "ncclSum"},
    {1, "ncclProd"},
    {2, "ncclMax"},
    {3, "ncclMin"},
    {4, "ncclAvg"},
});

constexpr auto RUNGS = std::to_array<NamedNumber>({
    {CW_RUNG_PROCESS, "process"},
    {CW_RUNG_INFERRED, "inferred"},
    {CW_RUNG_EXACT, "exact"},
});

constexpr auto RESULTS = std::to_array<NamedNumber>({
    {0, "ncclSuccess"},
    {1, "ncclUnhandledCudaError"},
    {2, "ncclSystemError"},
    {3, "ncclInternalError"},
    {4, "ncclInvalidArgument"},
    {5, "ncclInvalidUsage"},
    {6, "ncclRemoteError"},
    {7, "ncclInProgress"},
    {8, "ncclTimeout"},
});

constexpr auto PROGRESS_FLAGS = std::to_array<NamedNumber>({
    {CW_NCCL_PROGRESS_END, "end"},
});

constexpr auto STEPS_FLAGS = std::to_array<NamedNumber>({
    {CW_NCCL_STEPS_IDLE, "idle"},
    {CW_NCCL_STEPS_BUSY, "busy"},
});

constexpr auto COMM_FLAGS = std::to_array<NamedNumber>({
    {CW_NCCL_COMM_CREATED, "created"},
    {CW_NCCL_COMM_OUTSIDE, "outside"},
    {CW_NCCL_COMM_LAUNCHED, "launched"},
    {CW_NCCL_COMM_SHARED, "shared"},
    {CW_NCCL_COMM_CALLS_ONLY, "calls_only"},
});

constexpr auto CALL_FLAGS = std::to_array<NamedNumber>({
    {CW_NCCL_CALL_FAILED, "failed"},
    {CW_NCCL_CALL_RETURNED, "returned"},
});

constexpr auto LAUNCH_FLAGS = std::to_array<NamedNumber>({
    {CW_NCCL_LAUNCH_GRAPH, "graph"},
    {CW_NCCL_LAUNCH_TRUNCATED, "truncated"},
    {CW_NCCL_LAUNCH_LAUNCHED, "launched"},
    {CW_NCCL_LAUNCH_FAULT, "fault"},
    {CW_NCCL_LAUNCH_LOCAL, "local"},
});

constexpr auto OP_FLAGS = std::to_array<NamedNumber>({
    {CW_NCCL_OP_OTHER_PROXY, "other_proxy"},
});

constexpr auto CONNECTION_FLAGS = std::to_array<NamedNumber>({
    {CW_NCCL_CONNECTION_SEND, "send"},
    {CW_NCCL_CONNECTION_SHARED, "shared"},
    {CW_NCCL_CONNECTION_GDR, "gdr"},
    {CW_NCCL_CONNECTION_OUTSIDE, "outside"},
    {CW_NCCL_CONNECTION_FAULT, "fault"},
    {CW_NCCL_CONNECTION_FOUND, "found"},
});

constexpr auto SOCKET_FLAGS = std::to_array<NamedNumber>({
    {CW_TCP_SOCKET_GONE, "gone"},
    {CW_TCP_SOCKET_IPV4, "ipv4"},
    {CW_TCP_SOCKET_FINAL, "final"},
});

} // namespace

std::string_view nccl_func_name(std::uint64_t value) {
    return name_in(FUNCS, value);
}
std::string_view nccl_pattern_name(std::uint64_t value) {
    return name_in(PATTERNS, value);
}
std::string_view nccl_algorithm_name(std::uint64_t value) {
    return name_in(ALGORITHMS, value);
}
std::string_view nccl_protocol_name(std::uint64_t value) {
    return name_in(PROTOCOLS, value);
}
std::string_view nccl_capability_name(std::uint64_t value) {
    return name_in(CAPABILITIES, value);
}
std::string_view nccl_transport_name(std::uint64_t value) {
    return name_in(TRANSPORTS, value);
}
std::string_view nccl_role_name(std::uint64_t value) {
    return name_in(ROLES, value);
}
std::string_view nccl_result_of_name(std::uint64_t value) {
    return name_in(RESULTS_OF, value);
}
std::string_view nccl_socket_type_name(std::uint64_t value) {
    return name_in(SOCKET_TYPES, value);
}
std::string_view nccl_datatype_name(std::uint64_t value) {
    return name_in(DATATYPES, value);
}
std::string_view nccl_reduction_name(std::uint64_t value) {
    return name_in(REDUCTIONS, value);
}
std::string_view nccl_result_name(std::uint64_t value) {
    return name_in(RESULTS, value);
}
std::string_view rung_name(std::uint64_t value) {
    return name_in(RUNGS, value);
}

std::uint32_t nccl_datatype_bytes(std::uint64_t value) {
    return value < DATATYPE_BYTES.size() ? DATATYPE_BYTES[value] : 0;
}

std::span<const NamedNumber> nccl_comm_flag_names() {
    return COMM_FLAGS;
}
std::span<const NamedNumber> nccl_call_flag_names() {
    return CALL_FLAGS;
}
std::span<const NamedNumber> nccl_progress_flag_names() {
    return PROGRESS_FLAGS;
}
std::span<const NamedNumber> nccl_steps_flag_names() {
    return STEPS_FLAGS;
}
std::span<const NamedNumber> nccl_launch_flag_names() {
    return LAUNCH_FLAGS;
}
std::span<const NamedNumber> nccl_op_flag_names() {
    return OP_FLAGS;
}
std::span<const NamedNumber> nccl_connection_flag_names() {
    return CONNECTION_FLAGS;
}
std::span<const NamedNumber> tcp_socket_flag_names() {
    return SOCKET_FLAGS;
}

} // namespace collwire::capture
