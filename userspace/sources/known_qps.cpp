// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/known_qps.h"

#include <cstring>

#include "base/clock.h"
#include "collwire/record_kinds.h"
#include "userspace/netlink/rdma_netlink.h"

namespace collwire::sources {
namespace {

constexpr std::uint8_t STATE_SQE = 5, STATE_ERR = 6; // enum ib_qp_state
constexpr std::uint64_t NS_PER_S = 1'000'000'000;

// Takes over what a later event says and leaves the rest as it was.
void merge(cw_qp_event &known, const cw_qp_event &event) {
    constexpr std::uint32_t attributes = CW_QP_ADDRESS | CW_QP_GRH | CW_QP_SGID | CW_QP_DEST |
                                         CW_QP_PATH_MTU | CW_QP_PSN_RQ | CW_QP_PSN_SQ |
                                         CW_QP_UDP_SPORT;
    const auto before = known;
    known = event;
    known.flags = (before.flags & ~attributes) | event.flags | (before.flags & attributes);
    if ((event.flags & CW_QP_ADDRESS) != 0 && (event.flags & CW_QP_FROM_NCCL) == 0)
        known.flags &= ~std::uint32_t{CW_QP_FROM_NCCL};
    const auto keep = [&](std::uint32_t flag, auto member) {
        if ((event.flags & flag) == 0)
            std::memcpy(&(known.*member), &(before.*member), sizeof(known.*member));
    };
    keep(CW_QP_ADDRESS, &cw_qp_event::dgid);
    keep(CW_QP_ADDRESS, &cw_qp_event::dlid);
    keep(CW_QP_ADDRESS, &cw_qp_event::dmac);
    keep(CW_QP_ADDRESS, &cw_qp_event::service_level);
    keep(CW_QP_ADDRESS, &cw_qp_event::static_rate);
    keep(CW_QP_ADDRESS, &cw_qp_event::flow_label);
    keep(CW_QP_ADDRESS, &cw_qp_event::hop_limit);
    keep(CW_QP_ADDRESS, &cw_qp_event::traffic_class);
    keep(CW_QP_SGID, &cw_qp_event::sgid);
    keep(CW_QP_SGID, &cw_qp_event::gid_type);
    keep(CW_QP_SGID, &cw_qp_event::sgid_index);
    keep(CW_QP_DEST, &cw_qp_event::dest_qpn);
    keep(CW_QP_PATH_MTU, &cw_qp_event::path_mtu);
    keep(CW_QP_PSN_RQ, &cw_qp_event::rq_psn);
    keep(CW_QP_PSN_SQ, &cw_qp_event::sq_psn);
    keep(CW_QP_UDP_SPORT, &cw_qp_event::udp_sport);
    const auto keep_unset = [&](auto member) {
        if (event.*member == 0)
            known.*member = before.*member;
    };
    keep_unset(&cw_qp_event::user_handle);
    keep_unset(&cw_qp_event::qkey);
    keep_unset(&cw_qp_event::pkey_index);
    keep_unset(&cw_qp_event::timeout);
    keep_unset(&cw_qp_event::retry_count);
    keep_unset(&cw_qp_event::rnr_retry);
    keep_unset(&cw_qp_event::min_rnr_timer);
    keep_unset(&cw_qp_event::max_rd_atomic);
    keep_unset(&cw_qp_event::port);
}

} // namespace

void KnownQps::take(const cw_qp_event &event) {
    if (event.header.kind == CW_KIND_QP_DESTROY) {
        known_.erase(event.key);
        return;
    }
    if (event.result != 0)
        return;
    const auto [known, is_new] = known_.try_emplace(event.key, event);
    if (!is_new)
        merge(known->second, event);
}

void KnownQps::append_all(source::RecordSink &sink) const {
    for (const auto &[key, event] : known_) {
        cw_qp_event record = event;
        record.header.kind = CW_KIND_QP_EXISTING;
        record.header.cpu = CW_CPU_USERSPACE;
        record.header.time_ns = monotonic_ns();
        record.attr_mask = 0;
        sink.append(record.header);
    }
}

void KnownQps::forget(const std::function<bool(const cw_qp_event &)> &is_gone) {
    std::erase_if(known_, [&is_gone](const auto &known) { return is_gone(known.second); });
}

void KnownQps::append_errors(source::RecordSink &sink) {
    if (looks_ns_.empty() || looks_ns_.back() > monotonic_ns())
        return;
    looks_ns_.pop_back();
    for (const cw_qp_event &found : find_errors())
        sink.append(found.header);
}

// Retries of others may be over later, and NCCL says nothing any more.
void KnownQps::look_for_errors() {
    const std::uint64_t now_ns = monotonic_ns();
    if (!looks_ns_.empty())
        return; // they are under way
    for (const std::uint64_t after_s : {30U, 10U, 5U, 2U, 1U, 0U})
        looks_ns_.push_back(now_ns + after_s * NS_PER_S);
}

// No event reports that a queue pair went into error for what it had to send: its owner learns it
// from a completion, which is in user space.
std::vector<cw_qp_event> KnownQps::find_errors() {
    auto netlink = netlink::RdmaNetlink::open();
    auto devices = netlink ? netlink->devices()
                           : Result<std::vector<netlink::NetlinkDevice>>{netlink.failure()};
    if (!devices)
        return {};
    std::unordered_map<std::uint64_t, std::uint8_t> states;
    for (const auto &device : *devices)
        if (auto qps = netlink->dump_qps(device.dev_index))
            for (const netlink::NetlinkQp &qp : *qps)
                if (qp.state == STATE_SQE || qp.state == STATE_ERR)
                    states.emplace(device_and_qpn(qp.dev_index, qp.lqpn & CW_QPN_MASK), qp.state);
    std::vector<cw_qp_event> found;
    if (states.empty())
        return found;
    const std::uint64_t now_ns = monotonic_ns();
    for (auto &[key, known] : known_) {
        const auto state = states.find(device_and_qpn(key.dev_index, key.qpn));
        if (state == states.end() || known.new_state == state->second)
            continue;
        known.old_state = known.new_state;
        known.new_state = state->second;
        cw_qp_event record = known;
        record.header.kind = CW_KIND_QP_STATE;
        record.header.cpu = CW_CPU_USERSPACE;
        record.header.time_ns = now_ns;
        record.tid = 0;
        record.attr_mask = 0;
        record.flags |= CW_QP_FROM_NETLINK;
        found.push_back(record);
    }
    return found;
}

} // namespace collwire::sources
