// SPDX-License-Identifier: Apache-2.0
#include "correlate/find/op_types.h"

#include "collwire/nccl_launch_records.h"

namespace collwire::find {
namespace {

std::string_view without_suffix(std::string_view text, std::string_view suffix) {
    return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
}

std::optional<std::uint64_t> share_of(const std::optional<std::uint64_t> &all,
                                      std::int32_t n_ranks) {
    const auto n = static_cast<std::uint64_t>(n_ranks);
    return all && n_ranks > 0 && *all % n == 0 ? std::optional(*all / n) : std::nullopt;
}

} // namespace

OpTypeCalls calls_of(const WatchdogLine &line, std::int32_t n_ranks) {
    // Coalesced: the elements of all its parts are added up.
    const bool is_coalesced = line.op_type.ends_with("_COALESCED");
    std::string_view name = without_suffix(line.op_type, "_COALESCED");
    name = without_suffix(name, "_OOP");
    name = without_suffix(name, "_BASE");
    if (name.starts_with("_"))
        name.remove_prefix(1);
    const auto in = is_coalesced ? std::nullopt : line.numel_in;
    const auto out = is_coalesced ? std::nullopt : line.numel_out;
    if (name == "ALLREDUCE" || name == "BARRIER")
        return {true, {{CW_NCCL_ALL_REDUCE, in}}};
    if (name == "BROADCAST")
        return {true, {{CW_NCCL_BROADCAST, in}}};
    if (name == "REDUCE")
        return {true, {{CW_NCCL_REDUCE, in}}};
    if (name == "ALLGATHER")
        return {true, {{CW_NCCL_ALL_GATHER, in}}};
    if (name == "REDUCE_SCATTER")
        return {true, {{CW_NCCL_REDUCE_SCATTER, out ? out : share_of(in, n_ranks)}}};
    if (name == "SEND")
        return {true, {{CW_NCCL_SEND, in}}};
    if (name == "RECV" || name == "RECVANYSOURCE")
        return {true, {{CW_NCCL_RECV, in}}};
    // With equal parts for all ranks; parts that differ are not in the line.
    if (name == "ALLTOALL") {
        const auto each = share_of(in, n_ranks);
        return {true, {{CW_NCCL_ALL_TO_ALL, each}, {CW_NCCL_SEND, each}, {CW_NCCL_RECV, each}}};
    }
    if (name == "GATHER")
        return {true, {{CW_NCCL_GATHER, in}, {CW_NCCL_SEND, in}, {CW_NCCL_RECV, in}}};
    if (name == "SCATTER")
        return {true, {{CW_NCCL_SCATTER, out}, {CW_NCCL_SEND, out}, {CW_NCCL_RECV, out}}};
    return {};
}

} // namespace collwire::find
