// SPDX-License-Identifier: Apache-2.0
#include "correlate/inspect/waits.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace collwire::inspect {
namespace {

constexpr std::array<std::pair<Wait, std::string_view>, 10> WAITS{{
    {Wait::Done, "done"},
    {Wait::Queued, "queued"},
    {Wait::Moving, "moving"},
    {Wait::Gpu, "gpu"},
    {Wait::Credit, "credit"},
    {Wait::Sender, "sender"},
    {Wait::Network, "network"},
    {Wait::Flush, "flush"},
    {Wait::Proxy, "proxy"},
    {Wait::Unknown, "unknown"},
}};

constexpr std::size_t CHANNELS_NAMED = 8;

bool is_over_sockets(const Transfer &transfer) {
    return std::ranges::any_of(transfer.endpoints, &Endpoint::is_socket);
}

std::uint64_t sum_of(const Transfer &transfer, std::optional<std::uint64_t> Endpoint::*member) {
    std::uint64_t sum = 0;
    for (const Endpoint &endpoint : transfer.endpoints)
        sum += (endpoint.*member).value_or(0);
    return sum;
}

bool any_known(const Transfer &transfer, std::optional<std::uint64_t> Endpoint::*member) {
    return std::ranges::any_of(transfer.endpoints,
                               [member](const Endpoint &one) { return (one.*member).has_value(); });
}

// Bytes that TCP has and NCCL does not count as done. A peer that does not read closes its window:
// all sent bytes are acknowledged then and the rest is unsent.
Wait wait_of_sockets(const Transfer &transfer) {
    if (!any_known(transfer, &Endpoint::unsent_bytes) ||
        !any_known(transfer, &Endpoint::unacked_segments))
        return Wait::Unknown;
    if (sum_of(transfer, &Endpoint::acked_bytes) != 0)
        return Wait::Moving;
    if (sum_of(transfer, &Endpoint::unacked_segments) != 0)
        return Wait::Network;
    return sum_of(transfer, &Endpoint::unsent_bytes) != 0 ? Wait::Credit : Wait::Proxy;
}

// NCCL counts a step as done once TCP has taken it, delivered or not. A late acknowledgement alone
// causes no timeout.
bool is_lost_by_tcp(const Transfer &transfer) {
    return std::ranges::any_of(transfer.endpoints, [](const Endpoint &one) {
        return one.is_socket && one.unacked_segments.value_or(0) != 0 && one.acked_bytes == 0 &&
               one.timeouts.value_or(0) != 0;
    });
}

Wait wait_of_send(const Transfer &transfer) {
    const Progress &now = transfer.last;
    if (now.done < now.transmitted)
        return is_over_sockets(transfer) ? wait_of_sockets(transfer) : Wait::Network;
    if (is_lost_by_tcp(transfer))
        return Wait::Network;
    if (now.posted < transfer.nsteps && now.posted < now.done + transfer.max_depth)
        return Wait::Proxy;
    switch (transfer.slot) {
    case Slot::Empty:
    case Slot::Partial:
        return Wait::Gpu;
    case Slot::Unknown:
        return Wait::Unknown;
    case Slot::Filled:
        break;
    }
    // Over sockets the kernel takes a step whether the peer reads or not.
    if (is_over_sockets(transfer) || transfer.has_credit == true)
        return Wait::Proxy;
    return Wait::Credit;
}

// Data that the kernel has not taken yet comes first, even if more may still arrive.
Wait wait_of_receive(const Transfer &transfer) {
    const Progress &now = transfer.last;
    if (now.done < now.transmitted) {
        if (!transfer.taken)
            return Wait::Unknown;
        return *transfer.taken > now.done ? Wait::Proxy : Wait::Gpu;
    }
    if (now.transmitted < now.received)
        return Wait::Flush;
    if (now.received < now.posted) {
        const bool is_there = sum_of(transfer, &Endpoint::unread_bytes) != 0;
        return is_there ? Wait::Proxy : Wait::Sender;
    }
    // There is a free buffer for the next step.
    return transfer.is_kernel_there == false ? Wait::Gpu : Wait::Proxy;
}

bool is_held_up(Wait wait) {
    return wait != Wait::Done && wait != Wait::Moving;
}

bool is_for_others(Wait wait) {
    return wait == Wait::Credit || wait == Wait::Sender || wait == Wait::Network;
}

// All threads of the process, or the one that drives the proxy.
bool is_stopped(const Proxy &proxy, const Process &process) {
    return std::ranges::any_of(process.threads, [&](const Thread &thread) {
        return (thread.state == 'T' || thread.state == 't') &&
               (thread.tid == process.pid || thread.tid == proxy.progress_tid);
    });
}

std::string channels_text(const std::set<std::int32_t> &channels) {
    std::string text = channels.size() == 1 ? "channel" : "channels";
    std::size_t n = 0;
    for (const std::int32_t channel : channels) {
        if (n == CHANNELS_NAMED)
            return text + fmt::format(" and {} more", channels.size() - n);
        text += fmt::format("{} {}", n++ == 0 ? "" : ",", channel);
    }
    return text;
}

std::string_view reason_of(Wait wait, bool is_send) {
    switch (wait) {
    case Wait::Credit:
        return "it has announced no buffer for more data";
    case Wait::Sender:
        return "no data arrives from it";
    case Wait::Network:
        return is_send ? "data sent to it is not acknowledged" : "no data arrives from it";
    default:
        return "reason unknown";
    }
}

} // namespace

std::string_view wait_name(Wait wait) {
    for (const auto &[value, name] : WAITS)
        if (value == wait)
            return name;
    return "unknown";
}

Wait wait_of_name(std::string_view name) {
    for (const auto &[value, text] : WAITS)
        if (text == name)
            return value;
    return Wait::Unknown;
}

std::string_view standing_name(Standing standing) {
    switch (standing) {
    case Standing::Idle:
        return "idle";
    case Standing::Moving:
        return "moving";
    case Standing::Starting:
        return "starting";
    case Standing::Stopped:
        return "stopped";
    case Standing::Proxy:
        return "proxy";
    case Standing::Kernel:
        return "kernel";
    case Standing::Peers:
        return "peers";
    case Standing::Network:
        return "network";
    case Standing::Unknown:
        break;
    }
    return "unknown";
}

Wait wait_of(const Transfer &transfer) {
    if (transfer.last.done >= transfer.nsteps)
        return Wait::Done;
    if (!transfer.was_there || transfer.first != transfer.last)
        return Wait::Moving;
    return transfer.is_send ? wait_of_send(transfer) : wait_of_receive(transfer);
}

void judge(Inspection &inspection) {
    for (Process &process : inspection.processes)
        for (Proxy &proxy : process.proxies)
            for (Operation &operation : proxy.operations)
                for (Transfer &transfer : operation.transfers)
                    transfer.wait = operation.is_queued ? Wait::Queued
                                    : operation.is_begun || !transfer.was_there
                                        ? wait_of(transfer)
                                        : Wait::Proxy; // not started at either sample
}

ProxyStanding standing_of(const Proxy &proxy, const Process &process) {
    ProxyStanding standing;
    bool any = false, moving = false, unknown = false;
    struct Channel {
        bool others = false, kernel = false, proxy = false, moving = false;
    };
    std::map<std::int32_t, Channel> channels;
    for (const Operation &operation : proxy.operations)
        for (const Transfer &transfer : operation.transfers) {
            if (transfer.wait == Wait::Done || transfer.wait == Wait::Queued)
                continue;
            any = true;
            Channel &channel = channels[transfer.channel];
            moving = moving || transfer.wait == Wait::Moving;
            channel.moving = channel.moving || transfer.wait == Wait::Moving;
            if (is_for_others(transfer.wait)) {
                channel.others = true;
                standing.waits_for.push_back({transfer.peer, transfer.channel, transfer.is_send,
                                              transfer.wait, transfer.connection});
            } else if (transfer.wait == Wait::Gpu) {
                channel.kernel = true;
            } else if (transfer.wait == Wait::Proxy || transfer.wait == Wait::Flush) {
                channel.proxy = true;
            } else if (is_held_up(transfer.wait)) {
                unknown = true;
            }
        }
    if (is_stopped(proxy, process)) {
        standing.standing = Standing::Stopped;
        standing.waits_for.clear();
        return standing;
    }
    if (!any)
        return standing;
    std::ranges::sort(standing.waits_for, {}, [](const WaitsFor &one) {
        return std::tuple(one.peer, one.is_send, one.channel, one.connection);
    });
    const auto put_channels = [&](auto chosen) {
        for (const auto &[number, channel] : channels)
            if (chosen(channel))
                standing.channels.push_back(number);
    };
    const auto is_stuck = [](const Channel &channel) {
        return channel.kernel && !channel.others && !channel.proxy && !channel.moving;
    };
    put_channels(is_stuck);
    const bool network = std::ranges::any_of(
        standing.waits_for, [](const WaitsFor &one) { return one.wait == Wait::Network; });
    if (moving) {
        standing.standing = Standing::Moving;
    } else if (network) {
        standing.standing = Standing::Network;
    } else if (!standing.channels.empty()) {
        standing.standing = Standing::Kernel;
    } else if (!standing.waits_for.empty()) {
        standing.standing = Standing::Peers;
    } else if (std::ranges::any_of(channels,
                                   [](const auto &entry) { return entry.second.proxy; })) {
        standing.standing = Standing::Proxy;
        put_channels([](const Channel &channel) { return channel.proxy; });
    } else {
        standing.standing = unknown ? Standing::Unknown : Standing::Starting;
    }
    return standing;
}

std::string sentence_of(const ProxyStanding &standing) {
    switch (standing.standing) {
    case Standing::Idle:
        return "no operation is in flight";
    case Standing::Moving:
        return "operations are in flight and make progress";
    case Standing::Starting:
        return "operations have just started";
    case Standing::Stopped:
        return "the process is stopped (state T)";
    case Standing::Unknown:
        return "operations are in flight and make no progress; what they wait for could not be "
               "read";
    case Standing::Proxy:
        return fmt::format("NCCL's proxy thread has work to do and does not do it ({})",
                           channels_text({standing.channels.begin(), standing.channels.end()}));
    case Standing::Kernel:
        return fmt::format("waits for this rank's own GPU kernel, or for a rank of the same node "
                           "that the kernel waits for ({})",
                           channels_text({standing.channels.begin(), standing.channels.end()}));
    case Standing::Peers:
    case Standing::Network:
        break;
    }
    std::map<std::tuple<std::int32_t, std::string_view>, std::set<std::int32_t>> reasons;
    for (const WaitsFor &one : standing.waits_for)
        if (standing.standing == Standing::Peers || one.wait == Wait::Network)
            reasons[{one.peer, reason_of(one.wait, one.is_send)}].insert(one.channel);
    std::string text = "waits for ";
    bool first = true;
    for (const auto &[key, channels] : reasons) {
        const auto &[peer, reason] = key;
        text += fmt::format("{}rank {}: {} ({})", first ? "" : "; ", peer, reason,
                            channels_text(channels));
        first = false;
    }
    return text;
}

} // namespace collwire::inspect
