// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/error_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "correlate/capture/kinds.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/warning_text.h"

namespace collwire::nccl {

using model::Model;

namespace {

constexpr std::size_t SHOWN = 8;

template <typename T> std::string list_of(const std::set<T> &values) {
    std::string list;
    std::size_t shown = 0;
    for (const T &value : values) {
        if (shown == SHOWN)
            return list + fmt::format(" and {} more", values.size() - shown);
        list += fmt::format("{}{}", shown++ == 0 ? "" : ", ", value);
    }
    return list;
}

std::int32_t peer_of_qp(const NcclFacts &nccl, Index qp) {
    const Index link = qp < nccl.qps.size() ? nccl.qps[qp].link : NONE;
    return link == NONE ? -1 : nccl.links[link].peer;
}

std::string other_end(const Model &model, const NcclError &error) {
    std::string text;
    std::set<std::int32_t> peers;
    std::set<std::string> hosts;
    for (const Index index : error.qps) {
        if (const std::int32_t peer = peer_of_qp(model.nccl, index); peer >= 0)
            peers.insert(peer);
        if (!model.qps[index].remote_host.empty())
            hosts.insert(model.qps[index].remote_host);
    }
    if (const std::int32_t peer = peer_of(model.nccl, error); peer >= 0)
        peers = {peer};
    if (!peers.empty())
        text = fmt::format(" to rank{} {}", peers.size() == 1 ? "" : "s", list_of(peers));
    if (!hosts.empty())
        text += fmt::format(" {} {}", text.empty() ? "to" : "on", list_of(hosts));
    if (error.link == NONE)
        return text;
    const auto &channels = model.nccl.links[error.link].channels;
    const std::set<std::int32_t> all(channels.begin(), channels.end());
    return all.empty()
               ? text
               : text + fmt::format(", channel{} {}", all.size() == 1 ? "" : "s", list_of(all));
}

// "queue pairs 17, 18 of rxe0 to rank 1 on node1, channel 0"
std::string queue_pairs_text(const Model &model, const NcclError &error) {
    std::set<std::uint32_t> numbers;
    std::set<std::string> devices;
    for (const Index index : error.qps) {
        const model::Qp &qp = model.qps[index];
        numbers.insert(qp.key.qpn);
        if (qp.device != NONE)
            devices.insert(model.devices[qp.device].name);
    }
    std::string text =
        fmt::format("queue pair{} {}", numbers.size() == 1 ? "" : "s", list_of(numbers));
    if (!devices.empty())
        text += " of " + list_of(devices);
    return text + other_end(model, error);
}

std::string what_of(const Model &model, const NcclError &error) {
    switch (error.kind) {
    case ErrorKind::Ended:
        return "its process exited without destroying its communicators" +
               (error.qps.empty() ? std::string{} : ", with " + queue_pairs_text(model, error));
    case ErrorKind::QueuePairs: {
        const bool is_one = error.qps.size() == 1;
        std::string text = queue_pairs_text(model, error);
        if (error.is_destroyed)
            return text + (is_one ? " was destroyed in use" : " were destroyed in use");
        text += is_one ? " is in error" : " are in error";
        const std::string_view event =
            error.event ? capture::async_event_name(*error.event) : std::string_view{};
        return event.empty() ? text : text + fmt::format(" ({})", event);
    }
    case ErrorKind::Result:
        return error.link == NONE ? "NCCL gave up"
                                  : "NCCL gave up on the connection" + other_end(model, error);
    case ErrorKind::Warning:
        break;
    }
    return "NCCL warns";
}

} // namespace

std::string_view error_kind_name(ErrorKind kind) {
    switch (kind) {
    case ErrorKind::Ended:
        return "process_ended";
    case ErrorKind::QueuePairs:
        return "queue_pairs";
    case ErrorKind::Result:
        return "result";
    case ErrorKind::Warning:
        break;
    }
    return "warning";
}

std::string_view error_order_name(ErrorOrder order) {
    switch (order) {
    case ErrorOrder::First:
        return "first";
    case ErrorOrder::Follows:
        return "follows";
    case ErrorOrder::Unknown:
        break;
    }
    return {};
}

std::int32_t peer_of(const NcclFacts &nccl, const NcclError &error) {
    return error.link == NONE ? -1 : nccl.links[error.link].peer;
}

std::string error_text(const Model &model, const NcclError &error) {
    std::string text = what_of(model, error);
    if (error.operation != NONE) {
        const Operation &operation = error.is_pair ? model.nccl.p2p[error.operation]
                                                   : model.nccl.collectives[error.operation];
        text += fmt::format(", {} {} {}", error.is_under_way ? "in" : "perhaps in",
                            func_text(operation.func), operation.seq);
        if (error.is_pair)
            text += fmt::format(" from rank {} to {}", operation.source, operation.destination);
    }
    if (!error.waiting.empty()) {
        const std::set<std::int32_t> ranks(error.waiting.begin(), error.waiting.end());
        text += fmt::format("; rank{} {} {} for it", ranks.size() == 1 ? "" : "s", list_of(ranks),
                            ranks.size() == 1 ? "waits" : "wait");
    }
    if (error.result != 0)
        text += fmt::format("; {}", result_text(error.result));
    if (error.status && error.text.find("IBV_WC_") == std::string::npos)
        text += fmt::format("; {}", wc_status_name(*error.status));
    if (!error.text.empty())
        text += fmt::format(": \"{}\"", error.text);
    return text;
}

} // namespace collwire::nccl
