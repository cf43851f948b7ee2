// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/layout/bpf_layout.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "collwire/nccl_launch_records.h"
#include "collwire/socket_records.h"

namespace collwire::nccl {
namespace {

// ncclProfilerStartTaskEvents counts without a profiler from here on.
constexpr std::uint32_t FIRST_THAT_COUNTS = 22600;

constexpr std::array<std::pair<std::string_view, cw_nccl_func>, 15> FUNCTIONS{{
    {"ncclFuncBroadcast", CW_NCCL_BROADCAST},
    {"ncclFuncReduce", CW_NCCL_REDUCE},
    {"ncclFuncAllGather", CW_NCCL_ALL_GATHER},
    {"ncclFuncReduceScatter", CW_NCCL_REDUCE_SCATTER},
    {"ncclFuncAllReduce", CW_NCCL_ALL_REDUCE},
    {"ncclFuncSendRecv", CW_NCCL_SEND_RECV},
    {"ncclFuncSend", CW_NCCL_SEND},
    {"ncclFuncRecv", CW_NCCL_RECV},
    {"ncclFuncAlltoAll", CW_NCCL_ALL_TO_ALL},
    {"ncclFuncScatter", CW_NCCL_SCATTER},
    {"ncclFuncGather", CW_NCCL_GATHER},
    {"ncclFuncAllGatherV", CW_NCCL_ALL_GATHER_V},
    {"ncclFuncPutSignal", CW_NCCL_PUT_SIGNAL},
    {"ncclFuncSignal", CW_NCCL_SIGNAL},
    {"ncclFuncWaitSignal", CW_NCCL_WAIT_SIGNAL},
}};

constexpr std::array<std::pair<std::string_view, cw_nccl_pattern>, 16> PATTERNS{{
    {"ncclPatternRing", CW_NCCL_PATTERN_RING},
    {"ncclPatternRingTwice", CW_NCCL_PATTERN_RING_TWICE},
    {"ncclPatternPipelineFrom", CW_NCCL_PATTERN_PIPELINE_FROM},
    {"ncclPatternPipelineTo", CW_NCCL_PATTERN_PIPELINE_TO},
    {"ncclPatternTreeUp", CW_NCCL_PATTERN_TREE_UP},
    {"ncclPatternTreeDown", CW_NCCL_PATTERN_TREE_DOWN},
    {"ncclPatternTreeUpDown", CW_NCCL_PATTERN_TREE_UP_DOWN},
    {"ncclPatternCollnetChain", CW_NCCL_PATTERN_COLLNET_CHAIN},
    {"ncclPatternCollnetDirect", CW_NCCL_PATTERN_COLLNET_DIRECT},
    {"ncclPatternNvls", CW_NCCL_PATTERN_NVLS},
    {"ncclPatternNvlsTree", CW_NCCL_PATTERN_NVLS_TREE},
    {"ncclPatternPatUp", CW_NCCL_PATTERN_PAT_UP},
    {"ncclPatternPatDown", CW_NCCL_PATTERN_PAT_DOWN},
    {"ncclPatternSend", CW_NCCL_PATTERN_SEND},
    {"ncclPatternRecv", CW_NCCL_PATTERN_RECV},
    {"ncclPatternProfiler", CW_NCCL_PATTERN_PROFILER},
}};

// Sockets of NET/Socket belong to connections: the kernel counts their bytes.
constexpr std::array<std::pair<std::string_view, cw_nccl_socket_type>, 4> SOCKET_TYPES{{
    {"ncclSocketTypeBootstrap", CW_NCCL_SOCKET_BOOTSTRAP},
    {"ncclSocketTypeProxy", CW_NCCL_SOCKET_PROXY},
    {"ncclSocketTypeNetIb", CW_NCCL_SOCKET_NETWORK_SETUP},
    {"ncclSocketTypeRasNetwork", CW_NCCL_SOCKET_RAS},
}};

constexpr std::array<std::pair<std::string_view, cw_nccl_register>, 6> REGISTERS{{
    {"rbx", CW_NCCL_RBX},
    {"rbp", CW_NCCL_RBP},
    {"r12", CW_NCCL_R12},
    {"r13", CW_NCCL_R13},
    {"r14", CW_NCCL_R14},
    {"r15", CW_NCCL_R15},
}};

constexpr std::array<std::string_view, CW_NCCL_CAPABILITIES> CAPABILITIES{
    "communicators", "operations", "connections", "bytes", "graphs", "errors", "inspect", "times"};

struct Copied {
    std::string_view name;
    std::uint32_t offset;
    std::uint32_t bytes;
};

Result<void> all_within(std::span<const Copied> fields, std::uint32_t most) {
    for (const Copied &field : fields)
        if (field.offset != CW_NCCL_NO_FIELD && field.offset + field.bytes > most)
            return error(ErrorKind::BadInput,
                         fmt::format("{} is at offset {}, beyond the {} bytes that are read",
                                     field.name, field.offset, most));
    return {};
}

#define COPIED(member, bytes)                                                                      \
    Copied {                                                                                       \
#member, bpf_layout.member, bytes                                                          \
    }

// The programs copy the first bytes of these structures, and read fields from the copies.
Result<void> check_copies(const cw_nccl_layout &bpf_layout) {
    const std::uint32_t chunk_bytes = bpf_layout.op_task == CW_NCCL_NO_FIELD ? 4 : 8;
    const std::array op{
        COPIED(op_connection, 8),   COPIED(op_next, 4),        COPIED(op_nbytes, 8),
        COPIED(op_nsteps, 4),       COPIED(op_root, 4),        COPIED(op_chunk_size, chunk_bytes),
        COPIED(op_slice_size, 8),   COPIED(op_loop_size, 8),   COPIED(op_loop_offset, 8),
        COPIED(op_channel_size, 8), COPIED(op_slice_steps, 1), COPIED(op_chunk_steps, 1),
        COPIED(op_channel, 1),      COPIED(op_dtype, 1),       COPIED(op_red_op, 1),
        COPIED(op_coll, 1),         COPIED(op_coll_api, 1),    COPIED(op_pattern, 1),
        COPIED(op_protocol, 1),     COPIED(op_algorithm, 1),   COPIED(op_reg, 1)};
    const std::array task{
        COPIED(coll_func, 1),      COPIED(coll_sendbuff, 8), COPIED(coll_recvbuff, 8),
        COPIED(coll_count, 8),     COPIED(coll_root, 4),     COPIED(coll_datatype, 4),
        COPIED(coll_op, 4),        COPIED(p2p_func, 1),      COPIED(p2p_buff, 8),
        COPIED(p2p_count, 8),      COPIED(p2p_datatype, 4),  COPIED(p2p_root, 4),
        COPIED(p2p_bytes, 8),      COPIED(p2p_api, 1),       COPIED(coll_next, 8),
        COPIED(p2p_next, 8),       COPIED(bcast_next, 8),    COPIED(bcast_sendbuff, 8),
        COPIED(bcast_recvbuff, 8), COPIED(bcast_bytes, 8),   COPIED(bcast_root, 4)};
    const std::array info{COPIED(info_coll, 4),  COPIED(info_sendbuff, 8), COPIED(info_recvbuff, 8),
                          COPIED(info_count, 8), COPIED(info_datatype, 4), COPIED(info_op, 4),
                          COPIED(info_root, 4),  COPIED(info_comm, 8),     COPIED(info_stream, 8)};
    if (auto checked = all_within(op, CW_NCCL_OP_HEAD_BYTES); !checked)
        return checked;
    const std::array of_task{COPIED(op_task, 8)};
    if (auto checked = all_within(of_task, CW_NCCL_OP_BYTES); !checked)
        return checked;
    // Before 2.24 an operation has no task, so the fields of tasks are not read.
    if (auto checked = bpf_layout.op_task == CW_NCCL_NO_FIELD
                           ? Result<void>{}
                           : all_within(task, CW_NCCL_TASK_BYTES);
        !checked)
        return checked;
    return all_within(info, CW_NCCL_INFO_BYTES);
}

#undef COPIED

Result<void> check_functions(const LibraryLayout &layout) {
    for (const auto &[name, number] : FUNCTIONS) {
        const auto found = layout.enumerators.find(std::string{name});
        if (found != layout.enumerators.end() && found->second != number)
            return error(ErrorKind::BadInput, fmt::format("{} is {} in it, not {}", name,
                                                          found->second, static_cast<int>(number)));
    }
    return {};
}

// From NCCL's numbers to this project's.
template <typename Names, std::size_t N>
void put_numbers(const LibraryLayout &layout, const Names &names, __u8 (&numbers)[N]) {
    for (const auto &[name, number] : names) {
        const auto found = layout.enumerators.find(std::string{name});
        if (found != layout.enumerators.end() && found->second >= 0 &&
            found->second < static_cast<std::int64_t>(N))
            numbers[found->second] = static_cast<__u8>(number);
    }
}

std::uint64_t data_address(const LibraryLayout &layout, const std::string &name) {
    const auto found = layout.data.find(name);
    return found == layout.data.end() ? ~0ULL : found->second;
}

} // namespace

std::uint32_t field_offset(const LibraryLayout &layout, std::string_view names) {
    for (;;) {
        const auto bar = names.find('|');
        const auto found = layout.offsets.find(std::string{names.substr(0, bar)});
        if (found != layout.offsets.end() &&
            found->second.value < std::numeric_limits<std::int32_t>::max())
            return static_cast<std::uint32_t>(found->second.value);
        if (bar == std::string_view::npos)
            return CW_NCCL_NO_FIELD;
        names.remove_prefix(bar + 1);
    }
}

std::uint32_t version_number(std::string_view version) {
    std::array<std::uint32_t, 3> parts{};
    const char *at = version.data();
    const char *end = at + version.size();
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto [next, problem] = std::from_chars(at, end, parts[i]);
        if (problem != std::errc{} || parts[i] > 99 || (i < 2 && (next == end || *next != '.')))
            return 0;
        at = next + 1;
    }
    return parts[0] * 10000 + parts[1] * 100 + parts[2];
}

std::string version_text(std::uint32_t number) {
    return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

const ProbedFunction *find_warning(const LibraryLayout &layout) {
    const ProbedFunction *newer = find_probe(layout, WARNS_WITH_FUNCTION);
    return newer != nullptr ? newer : find_probe(layout, WARNS);
}

const ProbedFunction *find_probe(const LibraryLayout &layout, std::string_view function) {
    const auto found = std::ranges::find(layout.probes, function, &ProbedFunction::function);
    return found == layout.probes.end() ? nullptr : &*found;
}

Result<cw_nccl_layout> bpf_layout_of(const LibraryLayout &layout, std::uint32_t image_id) {
    cw_nccl_layout bpf_layout{};
#define FILL(member, names) bpf_layout.member = field_offset(layout, names);
    CW_NCCL_OFFSETS(FILL)
#undef FILL
    // 2.23 has the task of an operation but not its bytes: it is read as legacy.
    if (bpf_layout.op_channel_size == CW_NCCL_NO_FIELD)
        bpf_layout.op_task = CW_NCCL_NO_FIELD;
    // The programs compare with one of them only.
    if (bpf_layout.bcast_next == CW_NCCL_NO_FIELD ||
        bpf_layout.bcast_sendbuff == CW_NCCL_NO_FIELD ||
        bpf_layout.bcast_recvbuff == CW_NCCL_NO_FIELD ||
        bpf_layout.bcast_bytes == CW_NCCL_NO_FIELD || bpf_layout.plan_bcasts == CW_NCCL_NO_FIELD)
        bpf_layout.bcast_root = CW_NCCL_NO_FIELD;
    bpf_layout.image_id = image_id;
    bpf_layout.calls_only = layout.calls_only.empty() ? 0 : 1;
    bpf_layout.seq_numbers_count = version_number(layout.version) >= FIRST_THAT_COUNTS ? 1 : 0;
    bpf_layout.net_ib = data_address(layout, "ncclNetIb");
    bpf_layout.net_socket = data_address(layout, "ncclNetSocket");
    put_numbers(layout, PATTERNS, bpf_layout.patterns);
    put_numbers(layout, SOCKET_TYPES, bpf_layout.socket_types);
    if (const ProbedFunction *warning = find_warning(layout)) {
        bpf_layout.warning = warning->address;
        bpf_layout.warning_names_function = warning->function == WARNS_WITH_FUNCTION ? 1 : 0;
    }
    if (const auto text = layout.data.find("ncclLastError"); text != layout.data.end())
        bpf_layout.last_error = text->second;
    if (const ProbedFunction *start = find_probe(layout, "ncclProxyStart")) {
        bpf_layout.proxy_start = start->address;
        const auto kept = start->registers.find("plan");
        for (const auto &[name, number] : REGISTERS)
            if (kept != start->registers.end() && kept->second == name)
                bpf_layout.plan_register = number;
    }
    if (auto checked = check_functions(layout); !checked)
        return std::move(checked).failure();
    if (auto checked = check_copies(bpf_layout); !checked)
        return std::move(checked).failure();
    return bpf_layout;
}

void put_rungs(const LibraryLayout &layout, cw_nccl_image &record) {
    for (std::size_t i = 0; i < CAPABILITIES.size(); ++i) {
        const Capability *capability = find_capability(layout, CAPABILITIES[i]);
        const Certainty rung = capability == nullptr ? Certainty::Process : capability->rung;
        record.rungs[i] = rung == Certainty::Exact      ? CW_RUNG_EXACT
                          : rung == Certainty::Inferred ? CW_RUNG_INFERRED
                                                        : CW_RUNG_PROCESS;
    }
}

} // namespace collwire::nccl
