// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/foreign_text.h"
#include "correlate/inspect/json.h"
#include "correlate/inspect/waits.h"

namespace collwire::inspect {
namespace {

using Json = nlohmann::ordered_json;

template <typename T> Json or_null(const std::optional<T> &value) {
    return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string &text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

// -1 is NCCL's value for no rank.
Json rank_or_null(std::int32_t rank) {
    return rank < 0 ? Json(nullptr) : Json(rank);
}

std::string hexadecimal(std::uint64_t value) {
    return fmt::format("{:#018x}", value);
}

std::string_view slot_name(Slot slot) {
    switch (slot) {
    case Slot::Empty:
        return "empty";
    case Slot::Partial:
        return "partial";
    case Slot::Filled:
        return "filled";
    case Slot::Unknown:
        break;
    }
    return "unknown";
}

Json progress_json(const Progress &progress, bool is_send) {
    Json json = {{"posted", progress.posted}};
    if (!is_send)
        json["received"] = progress.received;
    json["transmitted"] = progress.transmitted;
    json["done"] = progress.done;
    return json;
}

Json endpoint_json(const Endpoint &endpoint) {
    if (!endpoint.is_socket)
        return {{"qpn", endpoint.number},
                {"role", endpoint.role},
                {"device", text_or_null(endpoint.device)},
                {"port", endpoint.port == 0 ? Json(nullptr) : Json(endpoint.port)},
                {"state", text_or_null(endpoint.state)},
                {"remote_qpn", or_null(endpoint.remote_qpn)}};
    return {{"fd", endpoint.number},
            {"role", endpoint.role},
            {"inode", endpoint.inode == 0 ? Json(nullptr) : Json(endpoint.inode)},
            {"state", text_or_null(endpoint.state)},
            {"local", text_or_null(endpoint.local)},
            {"remote", text_or_null(endpoint.remote)},
            {"unread_bytes", or_null(endpoint.unread_bytes)},
            {"unsent_bytes", or_null(endpoint.unsent_bytes)},
            {"unacked_segments", or_null(endpoint.unacked_segments)},
            {"timeouts", or_null(endpoint.timeouts)},
            {"acked_bytes", or_null(endpoint.acked_bytes)},
            {"received_bytes", or_null(endpoint.received_bytes)},
            {"retransmitted_bytes", or_null(endpoint.retransmitted_bytes)}};
}

Json transfer_json(const Transfer &transfer) {
    Json endpoints = Json::array();
    for (const Endpoint &endpoint : transfer.endpoints)
        endpoints.push_back(endpoint_json(endpoint));
    Json json = {{"direction", transfer.is_send ? "send" : "recv"},
                 {"channel", rank_or_null(transfer.channel)},
                 {"conn_index", rank_or_null(transfer.conn_index)},
                 {"rank", rank_or_null(transfer.rank)},
                 {"peer_rank", rank_or_null(transfer.peer)},
                 {"waits_for", wait_name(transfer.wait)},
                 {"moved", transfer.wait == Wait::Moving},
                 {"transport", text_or_null(transfer.transport)},
                 {"connection", hexadecimal(transfer.connection)},
                 {"nsteps", transfer.nsteps},
                 {"base_steps", transfer.base},
                 {"max_depth_steps", transfer.max_depth},
                 {"nbytes", or_null(transfer.nbytes)},
                 {"loop_bytes", or_null(transfer.loop_size)},
                 {"first", transfer.was_there ? progress_json(transfer.first, transfer.is_send)
                                              : Json(nullptr)},
                 {"last", progress_json(transfer.last, transfer.is_send)}};
    if (transfer.is_send) {
        json["next_slot"] = slot_name(transfer.slot);
        json["has_credit"] = or_null(transfer.has_credit);
    } else {
        json["taken_steps"] = or_null(transfer.taken);
        json["kernel_began"] = or_null(transfer.is_kernel_there);
    }
    json["endpoints"] = std::move(endpoints);
    return json;
}

Json operation_json(const Operation &operation) {
    Json transfers = Json::array();
    for (const Transfer &transfer : operation.transfers)
        transfers.push_back(transfer_json(transfer));
    return {{"function", text_or_null(operation.function)},
            {"p2p", operation.is_p2p},
            {"algorithm", text_or_null(operation.algorithm)},
            {"protocol", text_or_null(operation.protocol)},
            {"pattern", text_or_null(operation.pattern)},
            {"datatype", text_or_null(operation.datatype)},
            {"reduction", text_or_null(operation.reduction)},
            {"op_count", operation.op_count},
            {"address", hexadecimal(operation.address)},
            {"slice_steps", operation.slice_steps},
            {"begun", operation.is_begun},
            {"queued", operation.is_queued},
            {"transfers", std::move(transfers)}};
}

Json waits_json(const std::vector<WaitsFor> &waits) {
    Json list = Json::array();
    for (const WaitsFor &one : waits)
        list.push_back({{"peer_rank", rank_or_null(one.peer)},
                        {"channel", rank_or_null(one.channel)},
                        {"direction", one.is_send ? "send" : "recv"},
                        {"waits_for", wait_name(one.wait)}});
    return list;
}

Json proxy_json(const Proxy &proxy, const Process &process) {
    Json operations = Json::array();
    for (const Operation &operation : proxy.operations)
        operations.push_back(operation_json(operation));
    Json idle = Json::array();
    for (const IdleConnection &one : proxy.idle)
        idle.push_back({{"direction", one.is_send ? "send" : "recv"},
                        {"channel", rank_or_null(one.channel)},
                        {"conn_index", rank_or_null(one.conn_index)},
                        {"rank", rank_or_null(one.rank)},
                        {"peer_rank", rank_or_null(one.peer)},
                        {"steps", one.steps}});
    const ProxyStanding standing = standing_of(proxy, process);
    const auto tid = [](std::uint32_t number) {
        return number == 0 ? Json(nullptr) : Json(number);
    };
    return {{"address", hexadecimal(proxy.address)},
            {"rank", rank_or_null(proxy.rank)},
            {"service_tid", tid(proxy.service_tid)},
            {"progress_tid", tid(proxy.progress_tid)},
            {"async_result", text_or_null(proxy.async_result)},
            {"verdict", standing_name(standing.standing)},
            {"verdict_text", sentence_of(standing)},
            {"waits", waits_json(standing.waits_for)},
            {"truncated", proxy.is_cut},
            {"pool_empty", or_null(proxy.is_pool_empty)},
            {"operations", std::move(operations)},
            {"idle_connections", std::move(idle)}};
}

Json communicator_json(const Communicator &comm) {
    Json rings = Json::array(), trees = Json::array();
    for (const Communicator::Ring &ring : comm.rings)
        rings.push_back({{"channel", ring.channel},
                         {"prev", rank_or_null(ring.prev)},
                         {"next", rank_or_null(ring.next)}});
    for (const Communicator::Tree &tree : comm.trees) {
        Json down = Json::array();
        for (const std::int32_t rank : tree.down)
            if (rank >= 0)
                down.push_back(rank);
        trees.push_back(
            {{"channel", tree.channel}, {"up", rank_or_null(tree.up)}, {"down", std::move(down)}});
    }
    Json launched = nullptr;
    if (comm.launched_by_function)
        launched = {{"Broadcast", (*comm.launched_by_function)[0]},
                    {"Reduce", (*comm.launched_by_function)[1]},
                    {"AllGather", (*comm.launched_by_function)[2]},
                    {"ReduceScatter", (*comm.launched_by_function)[3]},
                    {"AllReduce", (*comm.launched_by_function)[4]}};
    return {{"hash", hexadecimal(comm.hash)},
            {"address", hexadecimal(comm.address)},
            {"name", text_or_null(comm.name)},
            {"rank", comm.rank},
            {"n_ranks", comm.n_ranks},
            {"node", rank_or_null(comm.node)},
            {"n_nodes", comm.n_nodes},
            {"local_rank", rank_or_null(comm.local_rank)},
            {"local_ranks", comm.local_ranks},
            {"device", rank_or_null(comm.device)},
            {"bus_id", text_or_null(comm.bus_id)},
            {"proxy", hexadecimal(comm.proxy_state)},
            {"shared", comm.is_shared},
            {"launched", or_null(comm.launched)},
            {"launched_by_function", std::move(launched)},
            {"starts", or_null(comm.starts)},
            {"async_result", text_or_null(comm.async_result)},
            {"aborted", or_null(comm.is_aborted)},
            {"revoked", or_null(comm.is_revoked)},
            {"finalized", or_null(comm.is_finalized)},
            {"destroyed", or_null(comm.is_destroyed)},
            {"launched_between", or_null(comm.has_launched)},
            {"graph_refs", or_null(comm.graph_refs)},
            {"connections", comm.n_connections},
            {"rings", std::move(rings)},
            {"trees", std::move(trees)}};
}

Json thread_json(const Thread &thread) {
    return {{"tid", thread.tid},
            {"name", thread.name},
            {"role", text_or_null(thread.role)},
            {"state", std::string(1, thread.state)},
            {"wait_channel", text_or_null(thread.wait_channel)},
            {"run_ns", or_null(thread.run_ns)},
            {"runnable_ns", or_null(thread.runnable_ns)},
            {"kernel_stack", thread.stack}};
}

Json unready_json(const UnreadyComm &comm) {
    Json awaits = Json::array();
    for (const Awaited &one : comm.awaits)
        awaits.push_back({{"rank", rank_or_null(one.rank)},
                          {"address", text_or_null(one.address)},
                          {"reason", one.reason}});
    const auto number = [](std::uint64_t value) {
        return value == 0 ? Json(nullptr) : Json(hexadecimal(value));
    };
    return {
        {"address", hexadecimal(comm.address)},
        {"hash", number(comm.hash)},
        {"magic", number(comm.magic)},
        {"rank", rank_or_null(comm.rank)},
        {"n_ranks", comm.n_ranks == 0 ? Json(nullptr) : Json(comm.n_ranks)},
        {"device", rank_or_null(comm.device)},
        {"phase", phase_name(comm.phase)},
        {"phase_text", sentence_of(comm)},
        {"awaits", std::move(awaits)},
        {"root", text_or_null(comm.root)},
        {"parent", number(comm.parent)},
        {"parent_hash", comm.parent_hash ? Json(hexadecimal(*comm.parent_hash)) : Json(nullptr)},
        {"tid", comm.tid == 0 ? Json(nullptr) : Json(comm.tid)},
        {"for_ns", or_null(comm.for_ns)},
        {"async_result", text_or_null(comm.async_result)}};
}

Json process_json(const Process &process) {
    Json libraries = Json::array(), comms = Json::array(), proxies = Json::array(),
         threads = Json::array();
    for (const Library &library : process.libraries)
        libraries.push_back({{"path", library.path},
                             {"version", text_or_null(library.version)},
                             {"build_id", text_or_null(library.build_id)},
                             {"source", text_or_null(library.source)},
                             {"problem", text_or_null(library.problem)}});
    Json networks = Json::array();
    for (const Network &network : process.networks)
        networks.push_back({{"plugin", text_or_null(network.plugin)},
                            {"file", text_or_null(network.file)},
                            {"connections", network.n_connections}});
    for (const Communicator &comm : process.communicators)
        comms.push_back(communicator_json(comm));
    Json unready = Json::array(), roots = Json::array(), calls = Json::array();
    for (const UnreadyComm &comm : process.unready)
        unready.push_back(unready_json(comm));
    for (const BootstrapRoot &root : process.roots)
        roots.push_back({{"tid", root.tid},
                         {"n_ranks", root.n_ranks == 0 ? Json(nullptr) : Json(root.n_ranks)},
                         {"last_rank", or_null(root.last_rank)}});
    for (const NcclCall &call : process.calls)
        calls.push_back(
            {{"tid", call.tid},
             {"function", text_or_null(call.function)},
             {"inside", call.inside},
             {"communicator", call.comm == 0 ? Json(nullptr) : Json(hexadecimal(call.comm))}});
    for (const Proxy &proxy : process.proxies)
        proxies.push_back(proxy_json(proxy, process));
    for (const Thread &thread : process.threads)
        threads.push_back(thread_json(thread));
    Json throttling = nullptr;
    if (process.throttling)
        throttling = {{"cgroup", process.throttling->cgroup},
                      {"periods", process.throttling->periods},
                      {"throttled_ns", process.throttling->throttled_ns}};
    return {
        {"pid", process.pid},
        {"start_ticks", process.start_ticks},
        {"command", text_or_null(process.command)},
        {"namespace_pid", process.namespace_pid == 0 ? Json(nullptr) : Json(process.namespace_pid)},
        {"slurm_job", text_or_null(process.slurm_job)},
        {"slurm_step", text_or_null(process.slurm_step)},
        {"pod_uid", text_or_null(process.pod_uid)},
        {"container_id", text_or_null(process.container_id)},
        {"problem", text_or_null(process.problem)},
        {"scanned", process.was_scanned},
        {"truncated", process.is_cut},
        {"last_error", text_or_null(process.last_error)},
        {"libraries", std::move(libraries)},
        {"networks", std::move(networks)},
        {"communicators", std::move(comms)},
        {"unready", std::move(unready)},
        {"bootstrap_roots", std::move(roots)},
        {"calls", std::move(calls)},
        {"proxies", std::move(proxies)},
        {"n_threads", process.n_threads},
        {"threads", std::move(threads)},
        {"throttling", std::move(throttling)}};
}

Json port_json(const Port &port) {
    Json changes = Json::object();
    for (const Port::Change &change : port.changes)
        changes[change.counter] = change.by;
    return {{"device", port.device},
            {"port", port.port},
            {"netdev", text_or_null(port.netdev)},
            {"state", text_or_null(port.state)},
            {"tx_bytes", or_null(port.tx_bytes)},
            {"rx_bytes", or_null(port.rx_bytes)},
            {"changes", std::move(changes)}};
}

} // namespace

std::string render_json(const Inspection &inspection) {
    Json processes = Json::array(), ports = Json::array();
    for (const Process &process : inspection.processes)
        processes.push_back(process_json(process));
    for (const Port &port : inspection.ports)
        ports.push_back(port_json(port));
    const Json document = {{"schema", "collwire-inspect"},
                           {"schema_version", inspect_schema_version},
                           {"schema_minor", inspect_schema_minor},
                           {"tool_version", inspection.tool_version},
                           {"host", inspection.host},
                           {"boot_id", text_or_null(inspection.boot_id)},
                           {"realtime_ns", inspection.realtime_ns},
                           {"between_ns", inspection.between_ns},
                           {"processes", std::move(processes)},
                           {"ports", std::move(ports)}};
    // Names come from processes and files: bytes that are not UTF-8 must not throw.
    return escaped_json(document.dump(1, ' ', false, Json::error_handler_t::replace)) + "\n";
}

} // namespace collwire::inspect
