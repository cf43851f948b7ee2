// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/world.h"

#include <algorithm>
#include <string_view>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/reader.h"

namespace collwire::stream {
namespace {

constexpr std::string_view CALL_FUNCTION = "ncclEnqueueCheck"; // NCCL's, of all calls
constexpr std::int32_t MAX_RANKS = 1 << 20;
constexpr std::size_t MAX_EARLY = 4096; // records of a node
constexpr std::uint64_t EARLY_NS = 1'000'000'000;

} // namespace

RankTrack *World::find(Node &node, const Address &address, std::uint64_t time_ns,
                       std::span<const std::byte> record) {
    for (const Node::Ended &ended : node.ended)
        if (ended.address == address && time_ns <= ended.end_ns)
            return ended.rank.get();
    if (node.last != nullptr && node.last_address == address)
        return node.last;
    const auto found = node.ranks.find(address);
    if (found == node.ranks.end()) {
        if (node.n_early < MAX_EARLY) {
            ++node.n_early;
            node.early[address].emplace_back(record.begin(), record.end());
        } else {
            ++counts_.orphans;
        }
        return nullptr;
    }
    node.last_address = address;
    node.last = found->second.get();
    return node.last;
}

void World::give(Node &node, const cw_header &header, std::span<const std::byte> record) {
    if (header.kind == CW_KIND_NCCL_CALL) {
        const auto value = capture::record_as<cw_nccl_call>(record);
        node.called_ns = std::max<std::uint64_t>(node.called_ns, header.time_ns);
        if (RankTrack *rank = find(node, {value.tgid, value.comm}, header.time_ns, record);
            rank != nullptr) {
            if (node.has_returns)
                rank->hold(value, node.offset_ns);
            else
                rank->add(value, node.offset_ns);
        }
    } else if (header.kind == CW_KIND_NCCL_RETURN) {
        const auto value = capture::record_as<cw_nccl_return>(record);
        if (RankTrack *rank = find(node, {value.tgid, value.comm}, value.call_ns, record);
            rank != nullptr)
            rank->add(value);
    } else if (header.kind == CW_KIND_NCCL_LAUNCH) {
        const auto value = capture::record_as<cw_nccl_launch>(record);
        if (RankTrack *rank = find(node, {value.tgid, value.comm}, header.time_ns, record);
            rank != nullptr)
            rank->add(value, node.offset_ns);
    } else {
        const auto value = capture::record_as<cw_nccl_launch_tasks>(record);
        if (RankTrack *rank = find(node, {value.tgid, value.comm}, header.time_ns, record);
            rank != nullptr)
            rank->add(value, node.offset_ns);
    }
}

// Those of the moment before are its own.
void World::give_early(Node &node, const cw_nccl_comm &comm) {
    const auto found = node.early.find({comm.tgid, comm.comm});
    if (found == node.early.end())
        return;
    const std::vector<std::vector<std::byte>> records = std::move(found->second);
    node.early.erase(found);
    node.n_early -= records.size();
    for (const std::vector<std::byte> &record : records) {
        const auto header = capture::record_as<cw_header>(record);
        if (header.time_ns + EARLY_NS < comm.header.time_ns)
            ++counts_.orphans;
        else
            give(node, header, record);
    }
}

void World::add_comm(Node &node, std::span<const std::byte> record) {
    const auto comm = capture::record_as<cw_nccl_comm>(record);
    if (comm.rank < 0 || comm.n_ranks <= comm.rank || comm.n_ranks > MAX_RANKS)
        return;
    const Address address{comm.tgid, comm.comm};
    retire_ended(node, comm.header.time_ns);
    if (const auto found = node.ranks.find(address); found != node.ranks.end()) {
        const cw_nccl_comm &known = found->second->comm();
        if (known.comm_hash == comm.comm_hash && known.rank == comm.rank &&
            known.n_ranks == comm.n_ranks)
            return; // each segment repeats it
        end_comm(node, address, comm.header.time_ns);
    }
    Joined &joined = joined_[{comm.comm_hash, comm.n_ranks}];
    joined.has_rank.resize(static_cast<std::size_t>(comm.n_ranks));
    const auto rank = static_cast<std::size_t>(comm.rank);
    if (!joined.tracker || joined.has_rank[rank]) {
        // The next one with this hash, of a job that was started again.
        if (joined.tracker)
            former_.push_back(std::move(joined.tracker));
        joined.tracker = std::make_unique<OperationTracker>(
            Communicator{comm.comm_hash, comm.n_ranks, comm.n_nodes, next_id_++}, sink_);
        joined.has_rank.assign(joined.has_rank.size(), false);
    }
    joined.has_rank[rank] = true;
    const auto version = node.versions.find(comm.image_id);
    node.ranks.emplace(address, std::make_unique<RankTrack>(
                                    comm, version == node.versions.end() ? 0 : version->second,
                                    node.number, *joined.tracker, node.shapes));
    give_early(node, comm);
}

void World::end_comm(Node &node, const Address &address, std::uint64_t end_ns) {
    const auto found = node.ranks.find(address);
    if (found == node.ranks.end())
        return;
    found->second->leave();
    node.ended.push_back({address, end_ns, std::move(found->second)});
    node.ranks.erase(found);
    node.last = nullptr;
}

void World::retire_ended(Node &node, std::uint64_t now_ns) {
    std::erase_if(node.ended, [&](const Node::Ended &ended) {
        if (ended.end_ns + EARLY_NS > now_ns)
            return false;
        ended.rank->flush();
        counts_.unmatched += ended.rank->unmatched();
        counts_.replays += ended.rank->replays();
        return true;
    });
}

void World::begin(std::size_t capture, std::span<const std::byte> record) {
    const auto value = capture::record_as<cw_node>(record);
    std::string boot(capture::text_of(value.boot_id));
    if (boot.empty())
        boot = capture::text_of(value.hostname);
    const auto [session, is_new] =
        sessions_.try_emplace({std::move(boot), value.session_id}, nodes_.size());
    if (is_new)
        nodes_.emplace_back().number = static_cast<std::uint32_t>(session->second);
    const auto [segment, is_first] =
        segments_.try_emplace({session->second, value.segment}, capture);
    if (is_first || segment->second == capture)
        node_of_[capture] = session->second;
}

bool World::is_ahead(std::size_t capture) {
    if (is_left_out(capture))
        return false;
    Node &node = nodes_[node_of_[capture]];
    if (node.wait && node.wait->tracker->is_waiting(*node.wait))
        return true;
    node.wait.reset();
    for (auto rank = node.ranks.begin(); rank != node.ranks.end() && !node.wait; ++rank)
        node.wait = rank->second->find_wait(node.called_ns);
    return node.wait.has_value();
}

void World::give_up(std::size_t capture) {
    if (is_left_out(capture) || !nodes_[node_of_[capture]].wait)
        return;
    RankWait &wait = *nodes_[node_of_[capture]].wait;
    wait.tracker->give_up(wait);
    ++counts_.abandoned;
}

void World::end(std::size_t capture) {
    if (is_left_out(capture))
        return;
    for (const auto &[address, rank] : nodes_[node_of_[capture]].ranks)
        rank->leave();
}

bool World::is_left_out(std::size_t capture) const {
    return capture >= node_of_.size() || node_of_[capture] == SIZE_MAX;
}

void World::add(std::size_t capture, const cw_header &header, std::span<const std::byte> record) {
    if (capture >= node_of_.size())
        node_of_.resize(capture + 1, SIZE_MAX);
    if (header.kind == CW_KIND_NODE)
        begin(capture, record);
    if (node_of_[capture] == SIZE_MAX)
        return;
    Node &node = nodes_[node_of_[capture]];
    switch (header.kind) {
    case CW_KIND_NODE: {
        const auto value = capture::record_as<cw_node>(record);
        node.offset_ns = static_cast<std::int64_t>(value.realtime_ns - header.time_ns);
        break;
    }
    case CW_KIND_CLOCK: {
        retire_ended(node, header.time_ns);
        const auto value = capture::record_as<cw_clock>(record);
        node.offset_ns = static_cast<std::int64_t>(value.realtime_ns - header.time_ns);
        break;
    }
    case CW_KIND_NCCL_IMAGE: {
        const auto value = capture::record_as<cw_nccl_image>(record);
        node.versions[value.image_id] = value.version;
        break;
    }
    case CW_KIND_NCCL_COMM:
        add_comm(node, record);
        break;
    case CW_KIND_NCCL_COMM_END: {
        const auto value = capture::record_as<cw_nccl_comm_end>(record);
        retire_ended(node, header.time_ns);
        end_comm(node, {value.tgid, value.comm}, header.time_ns);
        break;
    }
    case CW_KIND_PROBE: {
        const auto value = capture::record_as<cw_probe>(record);
        if (value.probe_kind == CW_PROBE_URETPROBE &&
            capture::text_of(value.function) == CALL_FUNCTION)
            node.has_returns = true;
        break;
    }
    case CW_KIND_NCCL_CALL:
    case CW_KIND_NCCL_RETURN:
    case CW_KIND_NCCL_LAUNCH:
    case CW_KIND_NCCL_LAUNCH_TASKS:
        give(node, header, record);
        break;
    case CW_KIND_NCCL_SHAPE_TASK:
        node.shapes.add(capture::record_as<cw_nccl_shape_task>(record));
        break;
    case CW_KIND_NCCL_SHAPE_OPS:
        node.shapes.add(capture::record_as<cw_nccl_shape_ops>(record));
        break;
    case CW_KIND_NCCL_CONNECTION:
        node.shapes.add(capture::record_as<cw_nccl_connection>(record));
        break;
    case CW_KIND_NCCL_NVLS:
        node.shapes.add(capture::record_as<cw_nccl_nvls>(record));
        break;
    default:
        break;
    }
}

void World::flush() {
    for (Node &node : nodes_) {
        while (!node.ranks.empty())
            end_comm(node, node.ranks.begin()->first, 0);
        retire_ended(node, UINT64_MAX);
    }
    for (auto &[key, joined] : joined_)
        joined.tracker->flush();
    for (const auto &tracker : former_)
        tracker->flush();
}

World::Counts World::counts() const {
    Counts counts = counts_;
    for (const Node &node : nodes_) {
        counts.orphans += node.n_early;
        for (const auto &[address, rank] : node.ranks) {
            counts.unmatched += rank->unmatched();
            counts.replays += rank->replays();
        }
    }
    const auto add = [&](const OperationTracker &tracker) {
        counts.late += tracker.late_calls();
        counts.cut += tracker.cut();
    };
    for (const auto &[key, joined] : joined_)
        add(*joined.tracker);
    for (const auto &tracker : former_)
        add(*tracker);
    return counts;
}

} // namespace collwire::stream
