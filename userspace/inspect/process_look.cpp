// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/process_look.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "correlate/capture/nccl_names.h"
#include "userspace/inspect/operation_pool.h"
#include "userspace/inspect/plugin_endpoints.h"
#include "userspace/inspect/thread_number.h"
#include "userspace/inventory/process.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/memory/channels.h"
#include "userspace/nccl/memory/plugin_memory.h"
#include "userspace/nccl/memory/scan_comms.h"
#include "userspace/nccl/memory/step_counters.h"

namespace collwire::inspect {
namespace {

constexpr std::size_t CHANNEL_BYTES = 8U << 20U; // rings of all communicators of a process
constexpr std::size_t LAST_ERROR_BYTES = 1024;
// For the queue pairs of a process's plugins.
constexpr std::chrono::milliseconds MOST_SEARCHING{500};

std::string text_of(const char *text, std::size_t most) {
    return {text, strnlen(text, most)};
}

std::string bus_id_text(std::uint64_t id) {
    // domain:bus:device.function, as ncclComm.busId packs it: a nibble for the function.
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", id >> 20U, (id >> 12U) & 0xff,
                       (id >> 4U) & 0xff, id & 0xf);
}

bool is_plugins(const cw_nccl_connection &connection) {
    return connection.transport == CW_NCCL_TRANSPORT_PLUGIN;
}

std::uint32_t field_bytes(const nccl::LibraryLayout &layout, const std::string &name) {
    const auto found = layout.offsets.find(name);
    return found == layout.offsets.end() ? 0 : static_cast<std::uint32_t>(found->second.size_bytes);
}

} // namespace

ProcessLook::ProcessLook(pid_t pid, const std::vector<Image> &images, std::vector<UsedImage> used)
    : images_(images), used_(std::move(used)), view_(pid), calls_(view_, images_, used_) {
    process_.pid = static_cast<std::uint32_t>(pid);
    process_.start_ticks = process::start_ticks(pid).value_or(0);
    for (const UsedImage &one : used_) {
        const Image &image = images_[one.image];
        Library library;
        library.path = one.path;
        library.version = image.layout.version;
        library.build_id = image.layout.build_id;
        library.problem = image.problem;
        if (image.problem.empty())
            library.source = nccl::basis_of(image.layout, "communicators");
        process_.libraries.push_back(std::move(library));
    }
    if (const auto read = inventory::read_process("", process_.pid, {})) {
        process_.command = text_of(read->argv0, sizeof(read->argv0));
        if (const std::string script = text_of(read->script, sizeof(read->script)); !script.empty())
            process_.command += " " + script;
        process_.slurm_job = text_of(read->slurm_job, sizeof(read->slurm_job));
        process_.slurm_step = text_of(read->slurm_step, sizeof(read->slurm_step));
        process_.pod_uid = text_of(read->pod_uid, sizeof(read->pod_uid));
        process_.container_id = text_of(read->container_id, sizeof(read->container_id));
        process_.namespace_pid = read->namespace_pid;
    } else {
        process_.problem = read.failure().message;
    }
}

void ProcessLook::prepare(nccl::CommCopies &copies,
                          std::chrono::steady_clock::time_point scan_until) {
    if (!process_.problem.empty() || !view_.refresh())
        return;
    for (std::size_t i = 0; i < used_.size(); ++i) {
        const Image &image = image_of(i);
        if (!image.bpf_layout)
            continue;
        nccl::LiveComms live =
            nccl::read_comms(view_, image.layout, *image.bpf_layout, used_[i].bias);
        // No list, or an empty one: RAS keeps it, which may be switched off.
        if (live.comms.empty() && nccl::can_scan(image.layout)) {
            // A worker that was forked from a rank has a copy of its memory.
            const bool is_worker = copies.is_descendant(static_cast<pid_t>(process_.pid));
            const auto scanned = nccl::scan_comms(
                view_, image.layout, is_worker ? std::chrono::steady_clock::now() : scan_until);
            live = nccl::read_comms_at(view_, image.layout, *image.bpf_layout, used_[i].bias,
                                       scanned.addresses);
            live.is_cut = live.is_cut || scanned.is_cut;
            scanned_.insert(scanned_.end(), scanned.addresses.begin(), scanned.addresses.end());
            process_.was_scanned = true;
        }
        process_.is_cut = process_.is_cut || live.is_cut;
        for (nccl::LiveComm one : live.comms) {
            one.comm.tgid = process_.pid;
            one.comm.image_id = static_cast<std::uint32_t>(used_[i].image);
            if (copies.is_copy(one.comm))
                continue;
            copies.add(one.comm);
            add_comm(i, one);
        }
        read_last_error(i);
    }
    say_why_empty();
}

void ProcessLook::add_comm(std::size_t used, const nccl::LiveComm &live) {
    const cw_nccl_comm &comm = live.comm;
    Communicator into;
    into.address = comm.comm;
    into.hash = comm.comm_hash;
    into.name = text_of(comm.name, sizeof(comm.name));
    into.rank = comm.rank;
    into.n_ranks = comm.n_ranks;
    into.node = comm.node;
    into.n_nodes = comm.n_nodes;
    into.local_rank = comm.local_rank;
    into.local_ranks = comm.local_ranks;
    into.device = comm.cuda_dev;
    if (comm.bus_id != 0)
        into.bus_id = bus_id_text(comm.bus_id);
    into.proxy_state = comm.proxy_state;
    into.is_shared = (comm.flags & CW_NCCL_COMM_SHARED) != 0;
    std::map<std::uint64_t, std::vector<const cw_nccl_connection *>> by_address;
    for (const cw_nccl_connection &connection : live.connections)
        by_address[connection.connection].push_back(&connection);
    has_queue_pairs_ = has_queue_pairs_ || std::ranges::any_of(live.connections, is_plugins);
    into.n_connections = by_address.size();
    for (const auto &[address, records] : by_address) {
        auto endpoints = endpoints_of(records);
        for (const Endpoint &endpoint : endpoints) {
            has_queue_pairs_ = has_queue_pairs_ || !endpoint.is_socket;
            if (endpoint.inode != 0)
                inodes_.push_back(endpoint.inode);
        }
        endpoints_.insert_or_assign(address, std::move(endpoints));
    }
    read_rings(used, comm, into);
    process_.communicators.push_back(std::move(into));
    comms_.push_back({used, comm, {}});
    if (comm.proxy_state == 0)
        return;
    auto proxy = std::ranges::find(proxies_, comm.proxy_state, &LookedProxy::address);
    if (proxy == proxies_.end()) {
        proxies_.push_back({used, comm.proxy_state, {}, {}});
        proxy = std::prev(proxies_.end());
    }
    // Communicators that share a proxy share connections, too.
    for (const auto &[address, records] : by_address)
        if (std::ranges::find(proxy->connections, address, &cw_nccl_connection::connection) ==
            proxy->connections.end())
            proxy->connections.push_back(*records.front());
}

void ProcessLook::read_idle(const LookedProxy &looked, Proxy &proxy) {
    std::set<std::uint64_t> busy;
    for (const Operation &operation : proxy.operations)
        for (const Transfer &transfer : operation.transfers)
            busy.insert(transfer.connection);
    std::vector<nccl::StepCounter> counters;
    std::vector<const cw_nccl_connection *> counted;
    for (const cw_nccl_connection &connection : looked.connections) {
        if (busy.contains(connection.connection))
            continue;
        if (const auto counter =
                nccl::find_step_counter(view_, *image_of(looked.used).bpf_layout, connection)) {
            counters.push_back(*counter);
            counted.push_back(&connection);
        }
    }
    const auto readings = nccl::read_step_counters(view_, counters, CW_NCCL_NO_FIELD);
    for (std::size_t i = 0; i < readings.size(); ++i)
        if (readings[i] && readings[i]->is_idle && readings[i]->steps != 0)
            proxy.idle.push_back({(counted[i]->flags & CW_NCCL_CONNECTION_SEND) != 0,
                                  counted[i]->rank, counted[i]->peer, counted[i]->channel,
                                  counted[i]->conn_index, readings[i]->steps});
}

void ProcessLook::read_rings(std::size_t used, const cw_nccl_comm &comm, Communicator &into) {
    for (const std::vector<std::byte> &bytes :
         nccl::read_channels(view_, image_of(used).layout, comm, CHANNEL_BYTES)) {
        cw_nccl_channel record;
        if (bytes.size() < sizeof(record))
            continue;
        std::memcpy(&record, bytes.data(), sizeof(record));
        const auto channel = static_cast<std::int32_t>(record.channel);
        into.rings.push_back({channel, record.ring_prev, record.ring_next});
        into.trees.push_back({channel,
                              record.tree_up,
                              {record.tree_down[0], record.tree_down[1], record.tree_down[2]}});
    }
}

void ProcessLook::read_last_error(std::size_t used) {
    const nccl::LibraryLayout &layout = image_of(used).layout;
    const auto at = layout.data.find("ncclLastError");
    std::array<char, LAST_ERROR_BYTES> text{};
    if (at == layout.data.end() ||
        !view_.read(at->second + used_[used].bias, std::as_writable_bytes(std::span{text})))
        return;
    if (std::string said = text_of(text.data(), text.size()); !said.empty())
        process_.last_error = std::move(said);
}

void ProcessLook::say_why_empty() {
    if (!process_.communicators.empty())
        return;
    for (std::size_t i = 0; i < used_.size(); ++i) {
        const Image &image = image_of(i);
        if (!image.bpf_layout)
            process_.problem = image.problem;
        else if (!nccl::can_scan(image.layout))
            process_.problem = fmt::format("NCCL {}: communicators cannot be found in its memory. "
                                           "Fix: use NCCL 2.21 or later, or collwire record",
                                           image.layout.version);
    }
}

void ProcessLook::first_look() {
    thread_times_ = thread_times("", process_.pid);
    throttled_ = throttled_times("", process_.pid);
    sockets_ = look_at_sockets(process_.pid, inodes_);
    calls_.first_look();
    for (Comm &one : comms_) {
        const Image &image = image_of(one.used);
        nccl::read_counts(view_, image.layout, *image.bpf_layout, one.comm);
        one.was_pool_empty = is_pool_empty(view_, image.layout, one.comm);
    }
    for (LookedProxy &looked : proxies_) {
        const Image &image = image_of(looked.used);
        ProxyReader reader{view_, image.layout, *image.bpf_layout, used_[looked.used].bias};
        looked.first = reader.read(looked.address, false);
    }
}

void ProcessLook::second_look(const QueuePairs &queue_pairs) {
    std::map<std::uint32_t, std::string> roles;
    const SocketLook sockets = look_at_sockets(process_.pid, inodes_);
    for (LookedProxy &looked : proxies_) {
        const Image &image = image_of(looked.used);
        ProxyReader reader{view_, image.layout, *image.bpf_layout, used_[looked.used].bias};
        Proxy proxy = reader.read(looked.address, true);
        merge_first_look(looked.first, proxy);
        read_idle(looked, proxy);
        find_threads(looked, proxy, roles);
        describe_endpoints(proxy, queue_pairs, sockets);
        process_.proxies.push_back(std::move(proxy));
    }
    for (std::size_t i = 0; i < comms_.size(); ++i)
        read_comm_again(comms_[i], process_.communicators[i]);
    read_pools();
    read_calls();
    for (const NcclCall &call : process_.calls)
        roles.emplace(call.tid, "nccl");
    for (const UnreadyComm &comm : process_.unready)
        if (comm.tid != 0)
            roles.emplace(comm.tid, "nccl");
    process_.threads = read_threads("", process_.pid, roles, thread_times_, process_.n_threads);
    process_.throttling = throttling_between(throttled_, throttled_times("", process_.pid));
    // Another one may have its number.
    if (process::start_ticks(static_cast<pid_t>(process_.pid)) != process_.start_ticks) {
        Process ended;
        ended.pid = process_.pid;
        ended.start_ticks = process_.start_ticks;
        ended.command = process_.command;
        ended.problem = "the process exited while it was read";
        process_ = std::move(ended);
    }
}

void ProcessLook::look_at_plugins(const QueuePairs &queue_pairs) {
    std::vector<const cw_nccl_connection *> through_plugins;
    for (const LookedProxy &looked : proxies_)
        for (const cw_nccl_connection &connection : looked.connections)
            if (is_plugins(connection))
                through_plugins.push_back(&connection);
    if (through_plugins.empty() || !process_.problem.empty() || !view_.refresh())
        return;
    read_networks();
    const auto found =
        plugin_endpoints(view_, through_plugins, queue_pairs.numbers_of(process_.pid),
                         std::chrono::steady_clock::now() + MOST_SEARCHING);
    for (Proxy &proxy : process_.proxies)
        for (Operation &operation : proxy.operations)
            for (Transfer &transfer : operation.transfers) {
                const auto own = found.find(transfer.connection);
                if (!transfer.endpoints.empty() || own == found.end())
                    continue;
                transfer.endpoints = own->second;
                for (Endpoint &endpoint : transfer.endpoints)
                    queue_pairs.describe(process_.pid, endpoint);
            }
}

void ProcessLook::read_networks() {
    for (const LookedProxy &looked : proxies_) {
        const auto n = std::ranges::count_if(looked.connections, is_plugins);
        const std::uint32_t offset = image_of(looked.used).bpf_layout->proxy_state_net;
        if (n == 0)
            continue;
        const auto net = offset == CW_NCCL_NO_FIELD
                             ? std::nullopt
                             : view_.read<std::uint64_t>(looked.address + offset);
        const auto read = net ? nccl::read_plugin_network(view_, *net) : std::nullopt;
        const nccl::PluginNetwork network = read.value_or(nccl::PluginNetwork{});
        auto known = std::ranges::find_if(process_.networks, [&network](const Network &one) {
            return one.plugin == network.name && one.file == network.path;
        });
        if (known == process_.networks.end())
            known = process_.networks.insert(known, {network.name, network.path, 0});
        known->n_connections += static_cast<std::uint64_t>(n);
    }
}

void ProcessLook::read_comm_again(const Comm &one, Communicator &into) {
    const Image &image = image_of(one.used);
    const nccl::LibraryLayout &layout = image.layout;
    const cw_nccl_layout &bpf_layout = *image.bpf_layout;
    cw_nccl_comm comm = one.comm;
    nccl::read_counts(view_, layout, bpf_layout, comm);
    into.has_launched = comm.launched != one.comm.launched || comm.op_count != one.comm.op_count;
    if ((comm.flags & CW_NCCL_COMM_LAUNCHED) != 0)
        into.launched = comm.launched;
    const auto at = [&layout](const char *name) { return nccl::field_offset(layout, name); };
    const auto number = [&](std::uint32_t offset) {
        return offset == CW_NCCL_NO_FIELD ? std::nullopt
                                          : view_.read<std::int32_t>(comm.comm + offset);
    };
    if (bpf_layout.comm_op_count != CW_NCCL_NO_FIELD)
        into.starts = view_.read<std::uint64_t>(comm.comm + bpf_layout.comm_op_count);
    if (bpf_layout.seq_numbers_count != 0 && bpf_layout.comm_seq_number != CW_NCCL_NO_FIELD)
        into.launched_by_function =
            view_.read<std::array<std::uint64_t, 5>>(comm.comm + bpf_layout.comm_seq_number);
    if (const auto result = number(at("ncclComm.asyncResult")))
        into.async_result = capture::nccl_result_name(static_cast<std::uint64_t>(*result));
    if (const std::uint32_t offset = at("ncclComm.abortFlag"); offset != CW_NCCL_NO_FIELD)
        if (const auto flag = view_.read<std::uint64_t>(comm.comm + offset); flag && *flag != 0)
            if (const auto value = view_.read<std::uint32_t>(*flag))
                into.is_aborted = *value != 0;
    if (const auto revoked = number(at("ncclComm.revokedFlag")))
        into.is_revoked = *revoked != 0;
    if (field_bytes(layout, "ncclComm.finalizeCalled") == 1)
        if (const auto flag = view_.read<std::uint8_t>(comm.comm + at("ncclComm.finalizeCalled")))
            into.is_finalized = *flag != 0;
    if (const auto destroyed = number(at("ncclComm.destroyFlag")))
        into.is_destroyed = *destroyed != 0;
    if (const auto refs = number(at("ncclComm.localPersistentRefs|ncclComm.persistentRefs"));
        refs && *refs >= 0)
        into.graph_refs = static_cast<std::uint64_t>(*refs);
}

void ProcessLook::read_pools() {
    for (const Comm &one : comms_) {
        const auto proxy =
            std::ranges::find(process_.proxies, one.comm.proxy_state, &Proxy::address);
        const auto is_empty = is_pool_empty(view_, image_of(one.used).layout, one.comm);
        if (proxy == process_.proxies.end() || !is_empty || !one.was_pool_empty)
            continue;
        proxy->is_pool_empty =
            proxy->is_pool_empty.value_or(false) || (*is_empty && *one.was_pool_empty);
    }
}

void ProcessLook::read_calls() {
    const std::vector<CallFound> found = calls_.second_look();
    process_.unready = unready_comms(view_, images_, used_, found, scanned_);
    process_.roots = bootstrap_roots(images_, used_, found);
    std::map<std::uint64_t, std::uint64_t> hashes; // by address
    for (const Communicator &comm : process_.communicators)
        hashes.emplace(comm.address, comm.hash);
    for (UnreadyComm &comm : process_.unready)
        if (const auto parent = hashes.find(comm.parent); parent != hashes.end())
            comm.parent_hash = parent->second;
    for (const CallFound &one : found) {
        // NCCL's own threads wait by design.
        const bool is_own = std::ranges::any_of(process_.proxies, [&one](const Proxy &proxy) {
            return one.tid == proxy.service_tid || one.tid == proxy.progress_tid;
        });
        const bool is_root =
            std::ranges::find(process_.roots, one.tid, &BootstrapRoot::tid) != process_.roots.end();
        const bool is_job =
            std::ranges::find(one.stack.inside, "ncclAsyncJobMain") != one.stack.inside.end();
        if (is_own || is_root || (one.stack.called.empty() && !is_job))
            continue;
        NcclCall call{one.tid, one.stack.called, one.stack.inside, 0};
        // The innermost one on its stack.
        for (const std::uint64_t word : one.words) {
            const bool is_unready =
                std::ranges::find(process_.unready, word, &UnreadyComm::address) !=
                process_.unready.end();
            if (word != 0 && (is_unready || hashes.contains(word))) {
                call.comm = word;
                break;
            }
        }
        process_.calls.push_back(std::move(call));
    }
}

void ProcessLook::find_threads(const LookedProxy &looked, Proxy &proxy,
                               std::map<std::uint32_t, std::string> &roles) {
    const ProxyLayout proxy_layout{image_of(looked.used).layout};
    const ThreadNumbers threads = thread_numbers(view_.pid());
    const auto find = [&](std::uint32_t offset) -> std::uint32_t {
        if (offset == CW_NCCL_NO_FIELD)
            return 0;
        const auto pthread = view_.read<std::uint64_t>(looked.address + offset);
        return pthread ? thread_number(view_, threads, *pthread) : 0;
    };
    proxy.service_tid = find(proxy_layout.state_thread);
    proxy.progress_tid = find(proxy_layout.progress_thread);
    if (proxy.service_tid != 0)
        roles.emplace(proxy.service_tid, "service");
    if (proxy.progress_tid != 0)
        roles.emplace(proxy.progress_tid, "progress");
}

void ProcessLook::describe_endpoints(Proxy &proxy, const QueuePairs &queue_pairs,
                                     const SocketLook &sockets) {
    for (Operation &operation : proxy.operations)
        for (Transfer &transfer : operation.transfers) {
            const auto found = endpoints_.find(transfer.connection);
            if (found == endpoints_.end())
                continue;
            transfer.endpoints = found->second;
            for (Endpoint &endpoint : transfer.endpoints) {
                queue_pairs.describe(process_.pid, endpoint);
                describe_socket(sockets_, sockets, endpoint);
            }
        }
}

} // namespace collwire::inspect
