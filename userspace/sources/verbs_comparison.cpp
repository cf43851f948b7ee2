// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/verbs_comparison.h"

#include <array>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "collwire/record_kinds.h"

namespace collwire::sources {
namespace {

constexpr std::size_t MAX_WAITING = 65536;
constexpr std::uint32_t COMPARED_FLAGS = CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_DEST |
                                         CW_QP_PATH_MTU | CW_QP_PSN_RQ | CW_QP_PSN_SQ;

bool is_call(std::uint16_t kind) {
    return kind == CW_KIND_QP_CREATE || kind == CW_KIND_QP_STATE || kind == CW_KIND_QP_DESTROY;
}

std::string_view name_of_call(std::uint16_t kind) {
    return kind == CW_KIND_QP_CREATE ? "create" : kind == CW_KIND_QP_STATE ? "modify" : "destroy";
}

} // namespace

std::string first_difference(const cw_qp_event &kernel, const cw_qp_event &verbs) {
    const auto differ = [](std::string_view name, auto a, auto b) {
        return a == b ? std::string{} : fmt::format("{} {} and {}", name, a, b);
    };
    const auto differ_bytes = [](std::string_view name, const auto &a, const auto &b) {
        return std::memcmp(a, b, sizeof(a)) == 0 ? std::string{} : std::string{name};
    };
    std::array found = {
        differ("owner", kernel.tgid, verbs.tgid),
        differ("type", unsigned{kernel.qp_type}, unsigned{verbs.qp_type}),
        differ("result", kernel.result, verbs.result),
        differ("mask", kernel.attr_mask, verbs.attr_mask),
    };
    for (std::string &one : found)
        if (!one.empty())
            return std::move(one);
    if (kernel.header.kind == CW_KIND_QP_DESTROY)
        return {};
    std::array fields = {
        differ("new state", unsigned{kernel.new_state}, unsigned{verbs.new_state}),
        differ("port", unsigned{kernel.port}, unsigned{verbs.port}),
        differ("user handle", kernel.user_handle, verbs.user_handle),
        differ("fields", kernel.flags & COMPARED_FLAGS, verbs.flags & COMPARED_FLAGS),
        differ("destination", kernel.dest_qpn, verbs.dest_qpn),
        differ("path MTU", unsigned{kernel.path_mtu}, unsigned{verbs.path_mtu}),
        differ_bytes("remote GID", kernel.dgid, verbs.dgid),
        differ_bytes("local GID", kernel.sgid, verbs.sgid),
        differ("GID type", unsigned{kernel.gid_type}, unsigned{verbs.gid_type}),
        differ("GID index", unsigned{kernel.sgid_index}, unsigned{verbs.sgid_index}),
        differ("LID", kernel.dlid, verbs.dlid),
        differ("service level", unsigned{kernel.service_level}, unsigned{verbs.service_level}),
        differ("traffic class", unsigned{kernel.traffic_class}, unsigned{verbs.traffic_class}),
        differ("static rate", unsigned{kernel.static_rate}, unsigned{verbs.static_rate}),
        differ("flow label", kernel.flow_label, verbs.flow_label),
        differ("receive PSN", kernel.rq_psn, verbs.rq_psn),
        differ("send PSN", kernel.sq_psn, verbs.sq_psn),
        differ("Q key", kernel.qkey, verbs.qkey),
        differ("P key index", unsigned{kernel.pkey_index}, unsigned{verbs.pkey_index}),
        differ("timeout", unsigned{kernel.timeout}, unsigned{verbs.timeout}),
        differ("retry count", unsigned{kernel.retry_count}, unsigned{verbs.retry_count}),
        differ("RNR retry", unsigned{kernel.rnr_retry}, unsigned{verbs.rnr_retry}),
        differ("RNR timer", unsigned{kernel.min_rnr_timer}, unsigned{verbs.min_rnr_timer}),
        differ("READs", unsigned{kernel.max_rd_atomic}, unsigned{verbs.max_rd_atomic}),
    };
    for (std::string &one : fields)
        if (!one.empty())
            return std::move(one);
    return {};
}

VerbsComparison::Call VerbsComparison::call_of(const cw_qp_event &event) {
    return {event.tid, event.header.kind, event.key.dev_index, event.key.qpn};
}

void VerbsComparison::add_kernel(const cw_qp_event &event) {
    if (!is_call(event.header.kind) ||
        (event.flags & (CW_QP_KERNEL | CW_QP_DEVX | CW_QP_FROM_VERBS)) != 0 || event.tgid == 0)
        return;
    if (n_waiting_ >= MAX_WAITING) {
        ++counts_.kernel_only;
        return;
    }
    waiting_[call_of(event)].push_back(event);
    ++n_waiting_;
}

void VerbsComparison::add_verbs(const cw_qp_event &event) {
    if (!is_call(event.header.kind))
        return;
    const auto found = waiting_.find(call_of(event));
    if (found == waiting_.end()) {
        // libibverbs, or the kernel before ib_core, may have refused the call.
        if (event.result == 0)
            ++counts_.verbs_only;
        return;
    }
    const cw_qp_event kernel = found->second.front();
    found->second.pop_front();
    --n_waiting_;
    if (found->second.empty())
        waiting_.erase(found);
    const std::string difference = first_difference(kernel, event);
    if (difference.empty()) {
        ++counts_.equal;
        return;
    }
    ++counts_.different;
    if (first_.empty())
        first_ = fmt::format("{} of queue pair {}: {}", name_of_call(event.header.kind),
                             event.key.qpn, difference);
}

void VerbsComparison::settle(std::uint64_t until_ns,
                             const std::function<bool(const cw_qp_event &)> &owner_has_exited) {
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
        std::deque<cw_qp_event> &events = entry->second;
        n_waiting_ -= std::erase_if(events, [&](const cw_qp_event &event) {
            if (event.header.time_ns >= until_ns)
                return false;
            const bool by_exit = event.header.kind == CW_KIND_QP_DESTROY && owner_has_exited(event);
            ++(by_exit ? counts_.by_exit : counts_.kernel_only);
            return true;
        });
        entry = events.empty() ? waiting_.erase(entry) : std::next(entry);
    }
}

VerbsComparison::Counts VerbsComparison::counts() const {
    return counts_;
}

bool VerbsComparison::agrees() const {
    return counts_.different == 0 && counts_.kernel_only == 0 && counts_.verbs_only == 0;
}

std::string VerbsComparison::text() const {
    std::string text = fmt::format(
        "compared with ib_core: {} calls equal, {} different, {} in ib_core only, {} in libibverbs "
        "only, {} ended by the exit of a process",
        counts_.equal, counts_.different, counts_.kernel_only, counts_.verbs_only, counts_.by_exit);
    if (!first_.empty())
        text += fmt::format(" (first: {}; ib_core's value first)", first_);
    return text;
}

} // namespace collwire::sources
