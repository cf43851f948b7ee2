// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/plugins.h"

#include <algorithm>
#include <string_view>

#include "base/clock.h"
#include "base/set_text.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/nccl/memory/plugin_memory.h"

namespace collwire::sources {
namespace {

constexpr unsigned MAX_TRIES = 3;
// Each search reads the mappings of processes and all queue pairs of the node.
constexpr std::uint64_t PAUSE_NS = 20'000'000;
constexpr std::uint64_t PAUSES_PER_SEARCH = 4;
// Of one process: far more than NCCL has.
constexpr std::size_t MAX_WANTED = 16384;

void append(const cw_nccl_connection &connection, const NcclPlugins::Owner &owner,
            const std::vector<nccl::PluginQp> &qps, NcclPlugins::Found &found) {
    cw_nccl_connection record = connection;
    record.header.time_ns = monotonic_ns();
    record.header.cpu = CW_CPU_USERSPACE;
    record.flags |= CW_NCCL_CONNECTION_FOUND;
    record.n_endpoints = static_cast<std::uint32_t>(qps.size());
    const std::uint8_t role = nccl::plugin_role(record);
    for (std::size_t first = 0; first < qps.size(); first += CW_NCCL_ENDPOINTS) {
        record.first = static_cast<std::uint32_t>(first);
        record.n = 0;
        for (std::size_t i = first; i < qps.size() && record.n < CW_NCCL_ENDPOINTS; ++i)
            record.endpoints[record.n++] = {qps[i].address, qps[i].number, 0, role, qps[i].depth};
        found.connections.emplace_back(owner, record);
    }
}

} // namespace

void NcclPlugins::add(const cw_nccl_connection &connection, const Owner &owner,
                      std::uint32_t image_id, std::uint64_t net) {
    if (connection.transport != CW_NCCL_TRANSPORT_PLUGIN || connection.n_endpoints != 0 ||
        connection.net_comm == 0)
        return;
    std::vector<Wanted> &wanted = wanted_[connection.tgid];
    if (wanted.size() < MAX_WANTED) {
        wanted.push_back({owner, connection, 0, 0});
        due_ns_ = 0;
    } else {
        ++n_dropped_;
    }
    if (net == 0)
        return;
    const auto [entry, is_new] = networks_.try_emplace({connection.tgid, net});
    if (!is_new)
        return;
    cw_nccl_network &network = entry->second.record;
    network.header = {sizeof(network), CW_KIND_NCCL_NETWORK, CW_CPU_USERSPACE, monotonic_ns()};
    network.net = net;
    network.tgid = connection.tgid;
    network.image_id = image_id;
}

void NcclPlugins::read_networks(const process::ProcessView &process, Found &found) {
    const auto tgid = static_cast<std::uint32_t>(process.pid());
    for (auto at = networks_.lower_bound({tgid, 0});
         at != networks_.end() && at->first.first == tgid; ++at) {
        Network &network = at->second;
        if (network.is_emitted)
            continue;
        const auto read = nccl::read_plugin_network(process, network.record.net);
        if (!read && ++network.tries < MAX_TRIES)
            continue;
        if (read) {
            set_text(network.record.name, read->name);
            set_text(network.record.path, read->path);
        }
        network.is_emitted = true;
        found.networks.push_back(network.record);
    }
}

bool NcclPlugins::search_process(std::uint32_t tgid, std::vector<Wanted> &wanted,
                                 const QpNumbers *numbers, std::uint64_t until_ns, Found &found) {
    process::ProcessView process{static_cast<pid_t>(tgid)};
    if (!process.refresh())
        return false;
    read_networks(process, found);
    if (numbers == nullptr)
        return true; // that was no try
    static const std::unordered_set<std::uint32_t> none;
    const auto of_process = numbers->find(tgid);
    const auto &own = of_process == numbers->end() ? none : of_process->second;
    std::vector<Wanted> left;
    bool is_first = true;
    for (Wanted &one : wanted) {
        const std::uint64_t now_ns = monotonic_ns();
        if (one.due_ns > now_ns || (!is_first && now_ns >= until_ns)) {
            left.push_back(one);
            continue;
        }
        is_first = false;
        const auto qps = nccl::find_plugin_qps(process, one.connection.net_comm, own);
        if (!qps.empty()) {
            append(one.connection, one.owner, qps, found);
        } else if (++one.tries < MAX_TRIES) {
            one.due_ns = now_ns + times_.retry_ns;
            left.push_back(one);
        }
    }
    wanted = std::move(left);
    return true;
}

NcclPlugins::Found NcclPlugins::search() {
    Found found;
    if (wanted_.empty())
        return found;
    const std::uint64_t begin_ns = monotonic_ns();
    const auto numbers = read_numbers_();
    const std::uint64_t until_ns = monotonic_ns() + times_.search_ns;
    // Continues after the process that was searched last, so that each gets its turn.
    for (std::size_t left = wanted_.size(); left != 0 && !wanted_.empty(); --left) {
        auto process = wanted_.upper_bound(last_tgid_);
        if (process == wanted_.end())
            process = wanted_.begin();
        last_tgid_ = process->first;
        if (!search_process(process->first, process->second, numbers ? &*numbers : nullptr,
                            until_ns, found)) {
            drop(process->second);
            process->second.clear();
        }
        if (process->second.empty())
            wanted_.erase(process);
        if (monotonic_ns() >= until_ns)
            break;
    }
    searched_ns_ = monotonic_ns();
    took_ns_ = searched_ns_ - begin_ns;
    due_ns_ = UINT64_MAX;
    for (const auto &[tgid, wanted] : wanted_)
        for (const Wanted &one : wanted)
            due_ns_ = std::min(due_ns_, one.due_ns);
    return found;
}

bool NcclPlugins::is_due() const {
    const std::uint64_t now_ns = monotonic_ns();
    return now_ns >= due_ns_ &&
           now_ns - searched_ns_ >= std::max(PAUSE_NS, PAUSES_PER_SEARCH * took_ns_);
}

std::size_t NcclPlugins::unsearched() const {
    std::size_t n = 0;
    for (const auto &[tgid, wanted] : wanted_)
        n += static_cast<std::size_t>(std::ranges::count(wanted, 0U, &Wanted::tries));
    return n;
}

void NcclPlugins::drop(const std::vector<Wanted> &wanted) {
    n_dropped_ += static_cast<std::size_t>(std::ranges::count(wanted, 0U, &Wanted::tries));
}

std::vector<cw_nccl_network> NcclPlugins::networks() const {
    std::vector<cw_nccl_network> all;
    for (const auto &[key, network] : networks_)
        if (network.is_emitted)
            all.push_back(network.record);
    return all;
}

void NcclPlugins::forget(std::uint32_t tgid) {
    if (const auto found = wanted_.find(tgid); found != wanted_.end()) {
        drop(found->second);
        wanted_.erase(found);
    }
    forget_if([tgid](const Owner &owner) { return owner.first == tgid; });
    std::erase_if(networks_, [tgid](const auto &network) { return network.first.first == tgid; });
}

void NcclPlugins::forget(const Owner &owner) {
    forget_if([&owner](const Owner &of) { return of == owner; });
}

void NcclPlugins::forget_if(const std::function<bool(const Owner &)> &is_gone) {
    for (auto &[tgid, wanted] : wanted_) {
        n_dropped_ +=
            static_cast<std::size_t>(std::ranges::count_if(wanted, [&is_gone](const Wanted &one) {
                return one.tries == 0 && is_gone(one.owner);
            }));
        std::erase_if(wanted, [&is_gone](const Wanted &one) { return is_gone(one.owner); });
    }
    std::erase_if(wanted_, [](const auto &of_process) { return of_process.second.empty(); });
}

} // namespace collwire::sources
