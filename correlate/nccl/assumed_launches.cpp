// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/assumed_launches.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/bytes_by_kind.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;

namespace {

// NCCL chooses algorithm, protocol, channels and sending ranks by these: function, count, type,
// reduction, root.
using Kind = std::tuple<std::uint8_t, std::uint64_t, std::uint8_t, std::int32_t, std::int32_t>;

constexpr std::uint64_t LAST_CHUNKS_BYTES = 65536;
constexpr std::uint64_t LL_SEND_BYTES = 16384; // NCCL_P2P_LL_THRESHOLD
constexpr std::uint64_t LL_DATA_BYTES = 8;     // of each 16
// Operations of one communicator on its flows.
constexpr std::uint64_t MAX_OPERATIONS = 20'000'000;

// A flow, and the rank at its other end in the communicator's own numbering.
struct Way {
    Index link = NONE;
    std::int32_t peer = -1;
};

class LaunchAssumer {
public:
    explicit LaunchAssumer(Model &model) : model_(model), nccl_(model.nccl) {}

    void run() {
        std::map<Index, std::vector<Way>> ways; // by instance
        for (Index index = 0; index < nccl_.links.size(); ++index)
            if (const Link &link = nccl_.links[index]; link.is_assumed)
                for (const Index instance : link.instances)
                    ways[instance].push_back({index, -1});
        if (ways.empty())
            return;
        find_ranks();
        for (auto &[instance, of_instance] : ways) {
            for (Way &way : of_instance)
                way.peer = peer_of(nccl_.instances[instance], nccl_.links[way.link]);
            add_launches(nccl_.instances[instance], of_instance);
        }
    }

private:
    // A communicator (hash, number of ranks) in a process (session, number).
    using Place = std::tuple<std::uint64_t, std::int32_t, Index, std::uint32_t>;

    void find_ranks() {
        for (const Instance &instance : nccl_.instances) {
            const cw_nccl_comm &record = instance.record;
            ranks_.try_emplace({record.comm_hash, record.n_ranks, instance.session, record.tgid},
                               record.rank);
            ranks_on_[{record.comm_hash, record.n_ranks, instance.host}].insert(record.rank);
        }
    }

    [[nodiscard]] std::int32_t peer_of(const Instance &instance, const Link &link) const {
        const model::Qp &other = model_.qps[model_.qps[link.qps.front()].peer];
        const auto rank = ranks_.find(
            {instance.record.comm_hash, instance.record.n_ranks, other.session, other.tgid});
        return rank == ranks_.end() ? -1 : rank->second;
    }

    // More kinds, of collectives or of sends to one peer, than a flow can be solved for: their
    // bytes stay unknown.
    [[nodiscard]] bool has_too_much(const Instance &instance, const std::vector<Way> &ways) const {
        if (std::uint64_t{instance.n_calls} * ways.size() > MAX_OPERATIONS)
            return true;
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        std::map<std::int32_t, std::set<Kind>> kinds; // by peer; -1: collectives
        for (std::uint32_t i = 0; i < instance.n_calls; ++i) {
            const Call &call = stream.calls[instance.first_call + i];
            std::set<Kind> &of_peer = kinds[is_p2p(call.func) ? call.root : -1];
            if (of_peer.insert(kind_of(call)).second && of_peer.size() > KindSums::MAX_KINDS)
                return true;
        }
        return false;
    }

    static Kind kind_of(const Call &call) {
        return {call.func, call.count, call.datatype, call.reduction, call.root};
    }

    void add_launches(Instance &instance, const std::vector<Way> &ways) {
        if (!instance.is_calls_only || instance.n_launches != 0 || has_too_much(instance, ways)) {
            for (const Way &way : ways)
                nccl_.links[way.link].is_unsolvable = true;
            return;
        }
        CommStream &stream = nccl_.gathered.streams[instance.stream];
        std::map<Kind, Index> shapes;
        instance.first_launch = static_cast<std::uint32_t>(stream.launches.size());
        for (std::uint32_t i = 0; i < instance.n_calls; ++i) {
            const Call &call = stream.calls[instance.first_call + i];
            if (never_launches(call, instance) || call.func == CW_NCCL_RECV)
                continue;
            const auto [shape, is_new] =
                shapes.try_emplace(kind_of(call), static_cast<Index>(nccl_.shapes.size()));
            if (is_new)
                nccl_.shapes.push_back(shape_of(call, instance, ways, shape->second));
            Launch launch;
            launch.time_ns = call.time_ns;
            launch.tid = call.tid;
            launch.n_ops = static_cast<std::uint32_t>(nccl_.shapes[shape->second].ops.size());
            launch.first_task = static_cast<std::uint32_t>(stream.tasks.size());
            launch.n_tasks = 1;
            launch.shape_index = shape->second;
            stream.tasks.push_back({call.arguments_hash, i});
            stream.launches.push_back(launch);
        }
        instance.n_launches =
            static_cast<std::uint32_t>(stream.launches.size()) - instance.first_launch;
    }

    static std::uint64_t bytes_of(const Call &call) {
        return model::multiply_saturating(call.count, capture::nccl_datatype_bytes(call.datatype));
    }

    // Upper bound of a rank's bytes for the call over one connection: over all connections a ring
    // or tree passes on at most this, twice that with LL, whose flags are as long as the data, and
    // something for the last chunks. Sends have their own length, doubled for small ones with LL;
    // but other local ranks' sends may use this connection too (PXN) and double it.
    [[nodiscard]] std::uint64_t most_bytes(const Call &call, const Instance &instance) const {
        const std::uint64_t bytes = bytes_of(call);
        if (is_p2p(call.func))
            return bytes <= LL_SEND_BYTES && is_alone(instance)
                       ? 2 * ((bytes + LL_DATA_BYTES - 1) / LL_DATA_BYTES * LL_DATA_BYTES)
                       : bytes;
        const auto n_ranks = static_cast<std::uint64_t>(std::max(instance.record.n_ranks, 1));
        const bool is_of_each = call.func == CW_NCCL_ALL_GATHER ||
                                call.func == CW_NCCL_REDUCE_SCATTER ||
                                call.func == CW_NCCL_GATHER || call.func == CW_NCCL_SCATTER;
        const std::uint64_t passed_on = call.func == CW_NCCL_ALL_REDUCE ? 2
                                        : is_of_each                    ? n_ranks
                                                                        : 1;
        return model::add_saturating(model::multiply_saturating(bytes, 2 * passed_on),
                                     LAST_CHUNKS_BYTES);
    }

    // The only rank of its communicator on its host.
    [[nodiscard]] bool is_alone(const Instance &instance) const {
        return ranks_on_.at({instance.record.comm_hash, instance.record.n_ranks, instance.host})
                   .size() == 1;
    }

    [[nodiscard]] Shape shape_of(const Call &call, const Instance &instance,
                                 const std::vector<Way> &ways, std::uint32_t kind) const {
        Shape shape;
        shape.is_assumed = true;
        shape.is_complete = true;
        shape.func = call.func;
        shape.is_p2p = is_p2p(call.func);
        shape.tasks.resize(1); // no task is known
        for (const Way &way : ways) {
            if (shape.is_p2p && way.peer != call.root)
                continue;
            ShapeOp op;
            op.link = way.link;
            op.peer = way.peer;
            op.channel = NO_CHANNEL;
            op.is_known = true;
            op.is_bound = true;
            op.kind = kind;
            op.payload_bytes = most_bytes(call, instance);
            op.data_bytes = shape.is_p2p ? bytes_of(call) : 0;
            shape.ops.push_back(op);
        }
        return shape;
    }

    Model &model_;
    NcclFacts &nccl_;
    std::map<Place, std::int32_t> ranks_;
    std::map<std::tuple<std::uint64_t, std::int32_t, Index>, std::set<std::int32_t>>
        ranks_on_; // of a communicator, on a host
};

} // namespace

void assume_launches(Model &model) {
    LaunchAssumer(model).run();
}

} // namespace collwire::nccl
