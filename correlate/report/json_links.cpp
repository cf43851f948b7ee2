// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_links.h"

#include <algorithm>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "collwire/nccl_connection_records.h"
#include "collwire/socket_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/report/names.h"

namespace collwire::report {

using model::Index;
using model::Model;
using model::NONE;
using topology::Tier;

namespace {

// Channels and connections of one flow: far more than NCCL makes.
constexpr std::size_t MAX_NUMBERS = 512;
// Limit of entries for channels and connections, queue pairs and addresses.
constexpr std::size_t MAX_NICS = 2048;

const char *direction_name(const nccl::Link &link) {
    return link.is_send() ? "send" : "recv";
}

// Channel and conn_index of its connections; only the channels if it is known from its other end.
std::set<std::pair<std::int32_t, std::int32_t>> numbers_of(const nccl::NcclFacts &nccl,
                                                           const nccl::Link &link) {
    std::set<std::pair<std::int32_t, std::int32_t>> numbers;
    for (const Index connection : link.connections) {
        const cw_nccl_connection &head = nccl.gathered.connections[connection].head;
        if (numbers.size() == MAX_NUMBERS)
            break;
        if (std::find(link.channels.begin(), link.channels.end(), head.channel) !=
            link.channels.end())
            numbers.insert({head.channel, head.conn_index});
    }
    if (link.connections.empty())
        for (const std::int32_t channel : link.channels)
            numbers.insert({channel, -1});
    return numbers;
}

Json nic_json(const nccl::Link &link, std::int32_t connection) {
    return {{"rank", link.rank},
            {"peer_rank", link.peer},
            {"direction", direction_name(link)},
            {"connection", connection < 0 ? Json(nullptr) : Json(connection)},
            {"transport", nccl::transport_name(link.transport)},
            {"device", nullptr},
            {"port", nullptr},
            {"netdev", nullptr},
            {"address", nullptr}};
}

Json netdev_of(const Model &model, Index port) {
    return port == NONE ? Json(nullptr) : text_or_null(model.ports[port].netdev);
}

} // namespace

void add_link(Json &json, const nccl::NcclFacts &nccl, const nccl::Link *link) {
    const Index comm = link == nullptr ? NONE : nccl::only_communicator(nccl, *link);
    const auto of_link = [&](bool is_known, std::int64_t value) {
        return is_known ? Json(value) : Json(nullptr);
    };
    json["comm"] = of_link(comm != NONE, comm);
    json["rank"] = of_link(link != nullptr && link->rank >= 0, link == nullptr ? 0 : link->rank);
    json["peer_rank"] =
        of_link(link != nullptr && link->peer >= 0, link == nullptr ? 0 : link->peer);
    const bool has_one = link != nullptr && link->channels.size() == 1;
    json["channel"] = of_link(has_one, has_one ? link->channels.front() : 0);
    if (link != nullptr && !has_one)
        json["channels"] = link->channels;
}

std::vector<std::pair<std::int32_t, Json>> nics_json(const Model &model, const nccl::Link &link) {
    std::vector<Json> nics;
    for (const Index index : link.qps) {
        const model::Qp &qp = model.qps[index];
        if (qp.device == NONE)
            continue;
        Json nic = nic_json(link, -1);
        nic["device"] = model.devices[qp.device].name;
        nic["port"] = qp.port_number;
        nic["netdev"] = netdev_of(model, qp.port);
        nics.push_back(std::move(nic));
    }
    std::set<std::pair<Index, std::string>> places;
    for (const Index index : link.sockets)
        places.insert({model.nccl.sockets[index].port,
                       nccl::address_text(model.nccl.gathered.sockets[index].last.local_address)});
    for (const auto &[port, address] : places) {
        Json nic = nic_json(link, -1);
        nic["netdev"] = netdev_of(model, port);
        nic["address"] = address;
        nics.push_back(std::move(nic));
    }
    if (link.transport == CW_NCCL_TRANSPORT_SOCKET && link.sockets.empty())
        nics.push_back(nic_json(link, -1));
    const auto numbers = numbers_of(model.nccl, link);
    std::vector<std::pair<std::int32_t, Json>> by_channel;
    for (const Json &nic : nics)
        for (const auto &[channel, connection] : numbers) {
            if (by_channel.size() == MAX_NICS)
                return by_channel;
            by_channel.emplace_back(channel, nic);
            if (connection >= 0)
                by_channel.back().second["connection"] = connection;
        }
    return by_channel;
}

Json connection_number(const Model &model, Index connection) {
    if (connection == NONE)
        return nullptr;
    const std::int32_t number = model.nccl.gathered.connections[connection].head.conn_index;
    return number < 0 ? Json(nullptr) : Json(number);
}

Json socket_ends_json(const Model &model, Index index) {
    const cw_tcp_socket &socket = model.nccl.gathered.sockets[index].last;
    return {{"local", nccl::endpoint_text(socket.local_address, socket.local_port)},
            {"remote", nccl::endpoint_text(socket.remote_address, socket.remote_port)}};
}

Json socket_json(const Model &model, Index index) {
    const nccl::Socket &socket = model.nccl.gathered.sockets[index];
    const nccl::SocketIdentity &identity = model.nccl.sockets[index];
    const nccl::Link *link = identity.link == NONE ? nullptr : &model.nccl.links[identity.link];
    const model::Host &host = model.hosts[model.sessions[socket.session].host];
    Json json;
    json["host"] = host.name;
    json["pid"] = socket.tgid;
    json.update(socket_ends_json(model, index));
    json["remote_host"] = text_or_null(identity.remote_host);
    json["netdev"] = netdev_of(model, identity.port);
    json["role"] = text_or_null(nccl::socket_role_name(identity));
    add_link(json, model.nccl, link);
    json["direction"] = link == nullptr ? Json(nullptr) : Json(direction_name(*link));
    json["identity_rung"] = link == nullptr ? "process" : nccl::rung_name(link->rung);
    json["tier"] = topology::tier_name(identity.tier);
    json["tx_payload_bytes"] = known(identity.tx_bytes);
    json["rx_payload_bytes"] = known(identity.rx_bytes);
    json["retransmitted_bytes"] = known(identity.retransmitted_bytes);
    json["rtt_us"] = number_or_null(socket.last.rtt_us);
    json["source"] = "tcp_info";
    json["counted_from_realtime_ns"] = identity.counted_from_ns == 0
                                           ? Json(nullptr)
                                           : Json(host.realtime_ns(identity.counted_from_ns));
    json["counted_until_realtime_ns"] = host.realtime_ns(socket.last.header.time_ns);
    json["closed"] = (socket.last.flags & CW_TCP_SOCKET_GONE) != 0;
    json["cut_short"] = identity.is_cut_short;
    json["paired"] = identity.peer != NONE;
    return json;
}

Json tiers_of_communicator(const Model &model, Index comm) {
    Json json = Json::object();
    for (const Tier tier : ALL_TIERS) {
        const auto found = model.nccl.tiers.find({comm, tier});
        if (found != model.nccl.tiers.end())
            json[std::string(topology::tier_name(tier))] = {
                {"tx_payload_bytes", found->second.payload_bytes},
                {"tx_wire_bytes", known(found->second.wire_bytes)}};
    }
    return json;
}

} // namespace collwire::report
