// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_communicators.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "correlate/nccl/describe.h"
#include "correlate/report/json_links.h"
#include "correlate/report/names.h"
#include "correlate/report/units.h"
#include "correlate/roles/guess_roles.h"

namespace collwire::report {

using model::Index;
using model::Model;
using model::NONE;
using nccl::Communicator;
using nccl::Instance;

namespace {

// At most this many ranks without a capture get an entry each.
constexpr std::int32_t MAX_MISSING_RANKS = 1024;
// Far more than a communicator has channels.
constexpr std::size_t MAX_CHANNELS = 256;

Json utc_or_null(std::uint64_t realtime_ns) {
    return realtime_ns == 0 ? Json(nullptr) : Json(utc(realtime_ns));
}

Json rank_json(const Model &model, Index index) {
    const Instance &instance = model.nccl.instances[index];
    const nccl::Lateness &lateness = model.nccl.lateness[index];
    const model::Host &host = model.hosts[instance.host];
    Json json;
    json["rank"] = instance.record.rank;
    json["host"] = host.name;
    json["pid"] = instance.record.tgid;
    json["device"] = instance.record.cuda_dev;
    json["missing"] = false;
    json["bus_id"] = instance.record.bus_id == 0 ? Json(nullptr)
                                                 : Json(nccl::bus_id_text(instance.record.bus_id));
    json["node"] = instance.record.node;
    json["version"] = text_or_null(nccl::library_version_text(instance.version));
    json["from_creation"] = instance.created;
    json["first_seen"] = utc(host.realtime_ns(instance.begin_ns));
    json["ended"] = instance.ended ? Json(utc(host.realtime_ns(instance.end_ns))) : Json(nullptr);
    json["seq_base"] = nccl::seq_base_name(instance.seq_base);
    json["seq_confidence"] =
        instance.seq_base == nccl::SeqBase::Aligned ? Json(instance.confidence) : Json(nullptr);
    json["joined"] = instance.is_joined || instance.n_collectives == 0;
    json["calls"] = instance.n_calls;
    json["failed_calls"] = instance.failed_calls;
    json["returned_calls"] = instance.returned_calls;
    json["launches"] = instance.is_calls_only ? Json(nullptr) : Json(instance.n_launches);
    json["compared_calls"] = lateness.compared;
    json["last_calls"] = lateness.last;
    json["late_calls"] = lateness.late;
    json["median_late_ns"] = number_or_null(lateness.median_late_ns);
    json["sum_late_ns"] = lateness.sum_late_ns;
    return json;
}

Json ranks_json(const Model &model, const Communicator &comm) {
    Json ranks = Json::array();
    std::int32_t next = 0;
    const auto add_missing = [&](std::int32_t until) {
        for (; next < until && next < MAX_MISSING_RANKS; ++next)
            ranks.push_back({{"rank", next},
                             {"host", nullptr},
                             {"pid", nullptr},
                             {"device", nullptr},
                             {"missing", true}});
    };
    for (const Index index : comm.instances) {
        const Instance &instance = model.nccl.instances[index];
        add_missing(instance.record.rank);
        ranks.push_back(rank_json(model, index));
        next = std::max(next, instance.record.rank) + (instance.record.rank == INT32_MAX ? 0 : 1);
    }
    add_missing(comm.n_ranks);
    return ranks;
}

// As ranges, since a communicator may have many thousands of missing ranks.
Json missing_json(const Model &model, const Communicator &comm) {
    Json missing = Json::array();
    std::int64_t next = 0;
    const auto add = [&](std::int64_t until) {
        if (next < until)
            missing.push_back({{"first", next}, {"last", until - 1}});
    };
    for (const Index index : comm.instances) {
        const std::int64_t rank = model.nccl.instances[index].record.rank;
        add(std::min<std::int64_t>(rank, comm.n_ranks));
        next = std::max(next, rank + 1);
    }
    add(comm.n_ranks);
    return missing;
}

// Ring order from the lowest rank, trees by rank, and each channel's devices.
Json channels_json(const Model &model, Index comm_index) {
    const nccl::NcclFacts &nccl = model.nccl;
    const Communicator &comm = nccl.communicators[comm_index];
    std::map<std::uint32_t, Json> channels;
    const auto channel_of = [&](std::uint32_t number) -> Json & {
        Json &json = channels[number];
        if (json.is_null())
            json = {{"channel", number},
                    {"ring", nullptr},
                    {"tree", Json::array()},
                    {"nics", Json::array()}};
        return json;
    };
    for (const Index index : comm.instances) {
        const Instance &instance = nccl.instances[index];
        const std::uint64_t end_ns = instance.end_ns == 0 ? UINT64_MAX : instance.end_ns;
        const auto &recorded = nccl.gathered.streams[instance.stream].channels;
        const auto first =
            std::lower_bound(recorded.begin(), recorded.end(), instance.begin_ns,
                             [](const nccl::Channel &channel, std::uint64_t time_ns) {
                                 return channel.time_ns < time_ns;
                             });
        for (auto at = first; at != recorded.end() && at->time_ns <= end_ns &&
                              static_cast<std::size_t>(at - first) < MAX_CHANNELS;
             ++at) {
            const nccl::Channel &channel = *at;
            if (channel.record.channel > UINT8_MAX)
                continue;
            Json &json = channel_of(channel.record.channel);
            if (json["ring"].is_null() && !channel.order.empty())
                json["ring"] = channel.order.from_least();
            Json down = Json::array();
            for (const std::int32_t rank : channel.record.tree_down)
                if (rank >= 0)
                    down.push_back(rank);
            json["tree"].push_back(
                {{"rank", instance.record.rank},
                 {"up", channel.record.tree_up < 0 ? Json(nullptr) : Json(channel.record.tree_up)},
                 {"down", std::move(down)}});
        }
    }
    for (const Index link_index : comm.links) {
        const nccl::Link &link = nccl.links[link_index];
        for (auto &[number, nic] : nics_json(model, link))
            if (number >= 0 && number <= UINT8_MAX)
                channel_of(static_cast<std::uint32_t>(number))["nics"].push_back(std::move(nic));
    }
    Json array = Json::array();
    for (auto &[number, json] : channels)
        array.push_back(std::move(json));
    return array;
}

} // namespace

Json communicator_json(const Model &model, Index index, const roles::RoleGuess &guess,
                       bool detail) {
    const Communicator &comm = model.nccl.communicators[index];
    Json parameters = Json::object();
    for (const auto &[name, values] : nccl::params_of(model.nccl, comm)) {
        if (values.size() == 1) {
            if (detail)
                parameters[name] = values.begin()->first;
            continue;
        }
        for (const auto &[value, ranks] : values)
            parameters[name].push_back({{"value", value}, {"ranks", ranks}});
    }
    const auto seen = static_cast<std::size_t>(std::count_if(
        comm.instances.begin(), comm.instances.end(), [&, last = INT64_MIN](Index of) mutable {
            const std::int64_t rank = model.nccl.instances[of].record.rank;
            return std::exchange(last, rank) != rank;
        }));
    Json json;
    json["id"] = index;
    json["hash"] = nccl::hash_text(comm.hash);
    json["n_ranks"] = comm.n_ranks;
    json["name"] = text_or_null(comm.name);
    json["name_source"] = text_or_null(roles::name_source(comm, guess));
    json["guessed_role"] = text_or_null(roles::guessed_role_name(guess.role));
    json["guess_reason"] = text_or_null(guess.reason);
    json["n_nodes"] = comm.n_nodes <= 0 ? Json(nullptr) : Json(comm.n_nodes);
    json["parent"] = comm.parent == NONE ? Json(nullptr) : Json(comm.parent);
    json["parent_known"] = comm.parent_known;
    json["created"] = utc_or_null(comm.created_realtime_ns);
    json["ended"] = utc_or_null(comm.ended_realtime_ns);
    json["ranks_seen"] = seen;
    json["ranks"] = ranks_json(model, comm);
    json["missing_ranks"] = missing_json(model, comm);
    json["channels"] = channels_json(model, index);
    json["tiers"] = tiers_of_communicator(model, index);
    json["parameters"] = std::move(parameters);
    return json;
}

} // namespace collwire::report
