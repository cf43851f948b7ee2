// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "correlate/inspect/json.h"
#include "correlate/inspect/waits.h"
#include "correlate/topology/json_text.h"

namespace collwire::inspect {
namespace {

using Json = nlohmann::json;

// These throw if the document has another shape; parse_inspection catches.

std::string text_at(const Json &json, const char *name) {
    const Json &value = json.at(name);
    return value.is_null() ? std::string{} : value.get<std::string>();
}

template <typename T> std::optional<T> optional_at(const Json &json, const char *name) {
    const Json &value = json.at(name);
    return value.is_null() ? std::nullopt : std::optional{value.get<T>()};
}

// Unlike get<T>(), rejects a number that does not fit.
template <typename T> T number_of(const Json &value) {
    if (!value.is_number_integer())
        throw std::invalid_argument("a number is not an integer");
    if (value.is_number_unsigned()) {
        const auto number = value.get<std::uint64_t>();
        if (number <= static_cast<std::uint64_t>(std::numeric_limits<T>::max()))
            return static_cast<T>(number);
    } else if (const auto number = value.get<std::int64_t>();
               number >= static_cast<std::int64_t>(std::numeric_limits<T>::min()) &&
               (std::is_same_v<T, std::uint64_t> ||
                number <= static_cast<std::int64_t>(std::numeric_limits<T>::max()))) {
        return static_cast<T>(number);
    }
    throw std::invalid_argument("a number does not fit");
}

template <typename T> T number_at(const Json &json, const char *name) {
    return number_of<T>(json.at(name));
}

template <typename T> std::optional<T> maybe_at(const Json &json, const char *name) {
    const Json &value = json.at(name);
    return value.is_null() ? std::nullopt : std::optional{number_of<T>(value)};
}

// Of a field that earlier minor versions do not have.
template <typename T> std::optional<T> later_at(const Json &json, const char *name) {
    return json.contains(name) ? optional_at<T>(json, name) : std::nullopt;
}

std::int32_t rank_at(const Json &json, const char *name) {
    return maybe_at<std::int32_t>(json, name).value_or(-1);
}

std::uint64_t hexadecimal_at(const Json &json, const char *name) {
    const auto text = json.at(name).get<std::string>();
    std::uint64_t value = 0;
    const char *end = text.data() + text.size();
    if (!text.starts_with("0x") || text.size() < 3)
        throw std::invalid_argument(fmt::format("{} is not a 0x... number", name));
    const auto [at, problem] = std::from_chars(text.data() + 2, end, value, 16);
    if (problem != std::errc{} || at != end)
        throw std::invalid_argument(fmt::format("{} is not a 0x... number", name));
    return value;
}

std::uint64_t hexadecimal_or_none_at(const Json &json, const char *name) {
    return json.at(name).is_null() ? 0 : hexadecimal_at(json, name);
}

template <typename Read> auto list_at(const Json &json, const char *name, Read read) {
    std::vector<decltype(read(json))> list;
    const Json &array = json.at(name);
    if (!array.is_array())
        throw std::invalid_argument(fmt::format("{} is not a list", name));
    for (const Json &one : array)
        list.push_back(read(one));
    return list;
}

Slot slot_of(const std::string &name) {
    return name == "empty"     ? Slot::Empty
           : name == "partial" ? Slot::Partial
           : name == "filled"  ? Slot::Filled
                               : Slot::Unknown;
}

Progress progress_of(const Json &json) {
    Progress progress;
    progress.posted = number_at<std::uint64_t>(json, "posted");
    if (json.contains("received"))
        progress.received = number_at<std::uint64_t>(json, "received");
    progress.transmitted = number_at<std::uint64_t>(json, "transmitted");
    progress.done = number_at<std::uint64_t>(json, "done");
    return progress;
}

Endpoint endpoint_of(const Json &json) {
    Endpoint endpoint;
    endpoint.is_socket = json.contains("fd");
    endpoint.number = number_at<std::uint32_t>(json, endpoint.is_socket ? "fd" : "qpn");
    endpoint.role = text_at(json, "role");
    endpoint.state = text_at(json, "state");
    if (!endpoint.is_socket) {
        endpoint.device = text_at(json, "device");
        endpoint.port = maybe_at<std::uint32_t>(json, "port").value_or(0);
        endpoint.remote_qpn = maybe_at<std::uint32_t>(json, "remote_qpn");
        return endpoint;
    }
    endpoint.inode = maybe_at<std::uint64_t>(json, "inode").value_or(0);
    endpoint.local = text_at(json, "local");
    endpoint.remote = text_at(json, "remote");
    endpoint.unread_bytes = maybe_at<std::uint64_t>(json, "unread_bytes");
    endpoint.unsent_bytes = maybe_at<std::uint64_t>(json, "unsent_bytes");
    endpoint.unacked_segments = maybe_at<std::uint64_t>(json, "unacked_segments");
    endpoint.timeouts = maybe_at<std::uint64_t>(json, "timeouts");
    endpoint.acked_bytes = maybe_at<std::uint64_t>(json, "acked_bytes");
    endpoint.received_bytes = maybe_at<std::uint64_t>(json, "received_bytes");
    endpoint.retransmitted_bytes = maybe_at<std::uint64_t>(json, "retransmitted_bytes");
    return endpoint;
}

Transfer transfer_of(const Json &json) {
    Transfer transfer;
    transfer.is_send = json.at("direction") == "send";
    transfer.channel = rank_at(json, "channel");
    transfer.conn_index = rank_at(json, "conn_index");
    transfer.rank = rank_at(json, "rank");
    transfer.peer = rank_at(json, "peer_rank");
    transfer.wait = wait_of_name(text_at(json, "waits_for"));
    transfer.transport = text_at(json, "transport");
    transfer.connection = hexadecimal_at(json, "connection");
    transfer.nsteps = number_at<std::uint64_t>(json, "nsteps");
    transfer.base = number_at<std::uint64_t>(json, "base_steps");
    transfer.max_depth = number_at<std::uint64_t>(json, "max_depth_steps");
    transfer.nbytes = maybe_at<std::int64_t>(json, "nbytes");
    transfer.loop_size = maybe_at<std::int64_t>(json, "loop_bytes");
    transfer.was_there = !json.at("first").is_null();
    if (transfer.was_there)
        transfer.first = progress_of(json.at("first"));
    transfer.last = progress_of(json.at("last"));
    if (transfer.is_send) {
        transfer.slot = slot_of(text_at(json, "next_slot"));
        transfer.has_credit = optional_at<bool>(json, "has_credit");
    } else {
        transfer.taken = maybe_at<std::uint64_t>(json, "taken_steps");
        transfer.is_kernel_there = optional_at<bool>(json, "kernel_began");
    }
    transfer.endpoints = list_at(json, "endpoints", endpoint_of);
    return transfer;
}

Operation operation_of(const Json &json) {
    Operation operation;
    operation.function = text_at(json, "function");
    operation.is_p2p = json.at("p2p").get<bool>();
    operation.algorithm = text_at(json, "algorithm");
    operation.protocol = text_at(json, "protocol");
    operation.pattern = text_at(json, "pattern");
    operation.datatype = text_at(json, "datatype");
    operation.reduction = text_at(json, "reduction");
    operation.op_count = number_at<std::uint64_t>(json, "op_count");
    operation.address = hexadecimal_at(json, "address");
    operation.slice_steps = number_at<std::uint64_t>(json, "slice_steps");
    operation.is_begun = json.at("begun").get<bool>();
    operation.is_queued = json.at("queued").get<bool>();
    operation.transfers = list_at(json, "transfers", transfer_of);
    return operation;
}

Proxy proxy_of(const Json &json) {
    Proxy proxy;
    proxy.address = hexadecimal_at(json, "address");
    proxy.rank = rank_at(json, "rank");
    proxy.service_tid = maybe_at<std::uint32_t>(json, "service_tid").value_or(0);
    proxy.progress_tid = maybe_at<std::uint32_t>(json, "progress_tid").value_or(0);
    proxy.async_result = text_at(json, "async_result");
    proxy.is_cut = json.at("truncated").get<bool>();
    proxy.is_pool_empty = later_at<bool>(json, "pool_empty");
    proxy.operations = list_at(json, "operations", operation_of);
    proxy.idle = list_at(json, "idle_connections", [](const Json &one) {
        return IdleConnection{
            one.at("direction") == "send", rank_at(one, "rank"),
            rank_at(one, "peer_rank"),     rank_at(one, "channel"),
            rank_at(one, "conn_index"),    number_at<std::uint64_t>(one, "steps")};
    });
    return proxy;
}

Communicator::Tree tree_of(const Json &json) {
    Communicator::Tree tree;
    tree.channel = number_at<std::int32_t>(json, "channel");
    tree.up = rank_at(json, "up");
    const auto down = list_at(json, "down", number_of<std::int32_t>);
    for (std::size_t i = 0; i < std::min(down.size(), tree.down.size()); ++i)
        tree.down[i] = down[i];
    return tree;
}

Communicator communicator_of(const Json &json) {
    Communicator comm;
    comm.hash = hexadecimal_at(json, "hash");
    comm.address = hexadecimal_at(json, "address");
    comm.name = text_at(json, "name");
    comm.rank = number_at<std::int32_t>(json, "rank");
    comm.n_ranks = number_at<std::int32_t>(json, "n_ranks");
    comm.node = rank_at(json, "node");
    comm.n_nodes = number_at<std::int32_t>(json, "n_nodes");
    comm.local_rank = rank_at(json, "local_rank");
    comm.local_ranks = number_at<std::int32_t>(json, "local_ranks");
    comm.device = rank_at(json, "device");
    comm.bus_id = text_at(json, "bus_id");
    comm.proxy_state = hexadecimal_at(json, "proxy");
    comm.is_shared = json.at("shared").get<bool>();
    comm.launched = maybe_at<std::uint64_t>(json, "launched");
    if (const Json &counts = json.at("launched_by_function"); !counts.is_null())
        comm.launched_by_function = {number_at<std::uint64_t>(counts, "Broadcast"),
                                     number_at<std::uint64_t>(counts, "Reduce"),
                                     number_at<std::uint64_t>(counts, "AllGather"),
                                     number_at<std::uint64_t>(counts, "ReduceScatter"),
                                     number_at<std::uint64_t>(counts, "AllReduce")};
    comm.starts = maybe_at<std::uint64_t>(json, "starts");
    comm.async_result = text_at(json, "async_result");
    comm.is_aborted = optional_at<bool>(json, "aborted");
    comm.is_revoked = optional_at<bool>(json, "revoked");
    comm.is_finalized = optional_at<bool>(json, "finalized");
    comm.is_destroyed = later_at<bool>(json, "destroyed");
    comm.has_launched = later_at<bool>(json, "launched_between");
    comm.graph_refs =
        json.contains("graph_refs") ? maybe_at<std::uint64_t>(json, "graph_refs") : std::nullopt;
    comm.n_connections = number_at<std::uint64_t>(json, "connections");
    comm.rings = list_at(json, "rings", [](const Json &ring) {
        return Communicator::Ring{number_at<std::int32_t>(ring, "channel"), rank_at(ring, "prev"),
                                  rank_at(ring, "next")};
    });
    comm.trees = list_at(json, "trees", tree_of);
    return comm;
}

Thread thread_of(const Json &json) {
    Thread thread;
    thread.tid = number_at<std::uint32_t>(json, "tid");
    thread.name = text_at(json, "name");
    thread.role = text_at(json, "role");
    const std::string state = text_at(json, "state");
    thread.state = state.empty() ? '?' : state.front();
    thread.wait_channel = text_at(json, "wait_channel");
    thread.run_ns = maybe_at<std::uint64_t>(json, "run_ns");
    thread.runnable_ns = maybe_at<std::uint64_t>(json, "runnable_ns");
    thread.stack = json.at("kernel_stack").get<std::vector<std::string>>();
    return thread;
}

UnreadyComm unready_of(const Json &json) {
    UnreadyComm comm;
    comm.address = hexadecimal_at(json, "address");
    comm.hash = hexadecimal_or_none_at(json, "hash");
    comm.magic = hexadecimal_or_none_at(json, "magic");
    comm.rank = rank_at(json, "rank");
    comm.n_ranks = maybe_at<std::int32_t>(json, "n_ranks").value_or(0);
    comm.device = rank_at(json, "device");
    comm.phase = phase_of_name(text_at(json, "phase"));
    comm.awaits = list_at(json, "awaits", [](const Json &one) {
        return Awaited{rank_at(one, "rank"), text_at(one, "address"), text_at(one, "reason")};
    });
    comm.root = text_at(json, "root");
    comm.parent = hexadecimal_or_none_at(json, "parent");
    if (!json.at("parent_hash").is_null())
        comm.parent_hash = hexadecimal_at(json, "parent_hash");
    comm.tid = maybe_at<std::uint32_t>(json, "tid").value_or(0);
    comm.for_ns = maybe_at<std::uint64_t>(json, "for_ns");
    comm.async_result = text_at(json, "async_result");
    return comm;
}

BootstrapRoot root_of(const Json &json) {
    return {number_at<std::uint32_t>(json, "tid"),
            maybe_at<std::int32_t>(json, "n_ranks").value_or(0),
            maybe_at<std::int32_t>(json, "last_rank")};
}

NcclCall call_of(const Json &json) {
    return {number_at<std::uint32_t>(json, "tid"), text_at(json, "function"),
            json.at("inside").get<std::vector<std::string>>(),
            hexadecimal_or_none_at(json, "communicator")};
}

Process process_of(const Json &json) {
    Process process;
    process.pid = number_at<std::uint32_t>(json, "pid");
    process.start_ticks = number_at<std::uint64_t>(json, "start_ticks");
    process.command = text_at(json, "command");
    process.slurm_job = text_at(json, "slurm_job");
    process.pod_uid = text_at(json, "pod_uid");
    // Of a later minor version.
    if (json.contains("container_id")) {
        process.container_id = text_at(json, "container_id");
        process.slurm_step = text_at(json, "slurm_step");
        process.namespace_pid = maybe_at<std::uint32_t>(json, "namespace_pid").value_or(0);
    }
    process.problem = text_at(json, "problem");
    process.was_scanned = json.at("scanned").get<bool>();
    process.is_cut = json.at("truncated").get<bool>();
    process.last_error = text_at(json, "last_error");
    process.libraries = list_at(json, "libraries", [](const Json &library) {
        return Library{text_at(library, "path"), text_at(library, "version"),
                       text_at(library, "build_id"), text_at(library, "source"),
                       text_at(library, "problem")};
    });
    if (json.contains("networks"))
        process.networks = list_at(json, "networks", [](const Json &network) {
            return Network{text_at(network, "plugin"), text_at(network, "file"),
                           number_at<std::uint64_t>(network, "connections")};
        });
    process.communicators = list_at(json, "communicators", communicator_of);
    if (json.contains("unready")) {
        process.unready = list_at(json, "unready", unready_of);
        process.roots = list_at(json, "bootstrap_roots", root_of);
        process.calls = list_at(json, "calls", call_of);
    }
    process.proxies = list_at(json, "proxies", proxy_of);
    process.n_threads = number_at<std::uint32_t>(json, "n_threads");
    process.threads = list_at(json, "threads", thread_of);
    if (const Json &throttling = json.at("throttling"); !throttling.is_null())
        process.throttling = Throttling{text_at(throttling, "cgroup"),
                                        number_at<std::uint64_t>(throttling, "periods"),
                                        number_at<std::uint64_t>(throttling, "throttled_ns")};
    return process;
}

Port port_of(const Json &json) {
    Port port;
    port.device = text_at(json, "device");
    port.port = number_at<std::uint32_t>(json, "port");
    port.netdev = text_at(json, "netdev");
    port.state = text_at(json, "state");
    port.tx_bytes = maybe_at<std::uint64_t>(json, "tx_bytes");
    port.rx_bytes = maybe_at<std::uint64_t>(json, "rx_bytes");
    for (const auto &[name, by] : json.at("changes").items())
        port.changes.push_back({name, number_of<std::uint64_t>(by)});
    return port;
}

Inspection inspection_of(const Json &json) {
    Inspection inspection;
    inspection.tool_version = text_at(json, "tool_version");
    inspection.host = text_at(json, "host");
    inspection.boot_id = text_at(json, "boot_id");
    inspection.realtime_ns = number_at<std::uint64_t>(json, "realtime_ns");
    inspection.between_ns = number_at<std::uint64_t>(json, "between_ns");
    inspection.processes = list_at(json, "processes", process_of);
    inspection.ports = list_at(json, "ports", port_of);
    return inspection;
}

} // namespace

Result<Inspection> parse_inspection(std::string_view json) {
    auto document = topology::parse_json_text(json, nullptr);
    if (!document)
        return std::move(document).failure();
    try {
        if (!document->is_object() || document->at("schema") != "collwire-inspect")
            return error(ErrorKind::BadInput, "not the output of `collwire inspect --json`");
        if (document->at("schema_version") != inspect_schema_version)
            return error(ErrorKind::BadInput,
                         "written by another version of collwire. Fix: read it with that one");
        return inspection_of(*document);
    } catch (const std::exception &problem) {
        return error(
            ErrorKind::BadInput,
            fmt::format("not the output of `collwire inspect --json`: {}", problem.what()));
    }
}

} // namespace collwire::inspect
