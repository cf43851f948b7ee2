// SPDX-License-Identifier: Apache-2.0
#include "userspace/verbs/live_verbs.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

#include "collwire/record.h"

namespace collwire::verbs {
namespace {

constexpr std::uint64_t PAGE_BYTES = 4096;

Error not_a_qp(std::uint64_t address, std::string_view why) {
    return error(ErrorKind::BadInput,
                 fmt::format("no queue pair at {:#x} in the process: {}", address, why));
}

bool printable_name(std::string_view name) {
    return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz"
                                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:") ==
                                std::string_view::npos;
}

std::optional<LiveFunction> function_at(const process::ProcessView &view, cw_verbs_call call,
                                        std::uint64_t address) {
    const process::Mapping *mapping = view.mapping_of(address);
    if (!mapping || !mapping->executable || mapping->path.empty()) {
        return std::nullopt;
    }
    return LiveFunction{call, address, *mapping, address - mapping->begin + mapping->file_offset};
}

} // namespace

Result<LiveQp> read_live_qp(const process::ProcessView &view, std::uint64_t qp_address) {
    if (qp_address < PAGE_BYTES || qp_address % 8 != 0) {
        return not_a_qp(qp_address, "not an address");
    }
    const auto qp = view.read<cw_ibv_qp>(qp_address);
    if (!qp) {
        return not_a_qp(qp_address, "memory cannot be read (did the process exit?)");
    }
    LiveQp live;
    live.context = qp->context;
    live.qpn = qp->qp_num;
    const auto device = view.read<std::uint64_t>(qp->context + CW_IBV_CONTEXT_DEVICE);
    const auto post_send = view.read<std::uint64_t>(qp->context + CW_IBV_CONTEXT_POST_SEND);
    const auto marker = view.read<std::uint64_t>(qp->context + CW_IBV_CONTEXT_ABI_COMPAT);
    if (!device || !post_send || !marker) {
        return not_a_qp(qp_address, "its context cannot be read");
    }
    if (*marker != ~std::uint64_t{0}) {
        return not_a_qp(qp_address, "its context does not belong to libibverbs");
    }
    std::array<char, CW_NAME_BYTES> name{};
    if (!view.read(*device + CW_IBV_DEVICE_NAME, std::as_writable_bytes(std::span{name}))) {
        return not_a_qp(qp_address, "its device cannot be read");
    }
    live.device.assign(name.data(), strnlen(name.data(), name.size()));
    if (!printable_name(live.device)) {
        return not_a_qp(qp_address, "its device has no name");
    }
    auto function = function_at(view, CW_CALL_POST_SEND, *post_send);
    if (!function) {
        return not_a_qp(qp_address, "its post_send is not in a mapped file");
    }
    const process::Mapping library = function->mapping;
    live.functions.push_back(std::move(*function));

    // The memory after a plain QP belongs to the driver: these are function pointers only if start,
    // complete and abort are functions of one library.
    std::array<std::uint64_t, CW_IBV_QP_EX_POINTERS> pointers{};
    static_assert(sizeof pointers == CW_IBV_QP_EX_END - CW_IBV_QP_EX_FIRST);
    if (!view.read(qp_address + CW_IBV_QP_EX_FIRST, std::as_writable_bytes(std::span{pointers}))) {
        return live;
    }
    std::vector<LiveFunction> extended;
    bool has_start = false;
    bool has_complete = false;
    bool has_abort = false;
    for (std::size_t i = 0; i < pointers.size(); ++i) {
        const std::uint64_t offset = CW_IBV_QP_EX_FIRST + i * 8;
        const auto call = static_cast<cw_verbs_call>(cw_call_of_qp_ex_offset(offset));
        auto found = pointers[i] == 0 ? std::nullopt : function_at(view, call, pointers[i]);
        if (!found || found->mapping.path != library.path) {
            continue;
        }
        has_start = has_start || offset == CW_IBV_QP_EX_START;
        has_complete = has_complete || call == CW_CALL_WR_COMPLETE;
        has_abort = has_abort || call == CW_CALL_WR_ABORT;
        if (call != CW_CALL_NONE) {
            extended.push_back(std::move(*found));
        }
    }
    if (has_start && has_complete && has_abort) {
        live.functions.insert(live.functions.end(), extended.begin(), extended.end());
    }
    return live;
}

} // namespace collwire::verbs
