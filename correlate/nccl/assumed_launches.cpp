// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/assumed_launches.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "correlate/capture/nccl_names.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/bytes_by_kind.h"
#include "correlate/nccl/resolve.h"

namespace collwire::identity {

using model::Model;

namespace {

// What NCCL chooses algorithm, protocol and channels by, and which ranks send: function, count,
// type, reduction, root.
using Kind = std::tuple<std::uint8_t, std::uint64_t, std::uint8_t, std::int32_t, std::int32_t>;

constexpr std::uint64_t LAST_CHUNKS_BYTES = 65536;

// A link, and who is at its other end by the communicator's own count.
struct Way {
    Index link = NONE;
    std::int32_t peer = -1;
};

class Assumer {
public:
    explicit Assumer(Model &model) : model_(model), nccl_(model.nccl) {}

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
    // A communicator (its hash, how many ranks) in a process (session, number).
    using Place = std::tuple<std::uint64_t, std::int32_t, Index, std::uint32_t>;

    void find_ranks() {
        for (const Instance &instance : nccl_.instances)
            ranks_.try_emplace({instance.record.comm_hash, instance.record.n_ranks,
                                instance.session, instance.record.tgid},
                               instance.record.rank);
    }

    [[nodiscard]] std::int32_t peer_of(const Instance &instance, const Link &link) const {
        const model::Qp &other = model_.qps[model_.qps[link.qps.front()].peer];
        const auto rank = ranks_.find(
            {instance.record.comm_hash, instance.record.n_ranks, other.session, other.tgid});
        return rank == ranks_.end() ? -1 : rank->second;
    }

    // More kinds of collectives than any link is solved with: what they carry is told of none.
    [[nodiscard]] bool has_too_many_kinds(const Instance &instance) const {
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        std::set<Kind> kinds;
        for (std::uint32_t i = 0; i < instance.n_calls; ++i)
            if (const Call &call = stream.calls[instance.first_call + i];
                !is_p2p(call.func) && kinds.insert(kind_of(call)).second &&
                kinds.size() > KindSums::MAX_KINDS)
                return true;
        return false;
    }

    static Kind kind_of(const Call &call) {
        return {call.func, call.count, call.datatype, call.reduction, call.root};
    }

    void add_launches(Instance &instance, const std::vector<Way> &ways) {
        if (!instance.is_calls_only || instance.n_launches != 0 || has_too_many_kinds(instance)) {
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

    // What a rank can send for it over one connection: over all of them it is what a ring or a tree
    // makes it pass on, twice that by LL, whose flags are as long as the data, and something for
    // the last chunks.
    static std::uint64_t most_bytes(const Call &call, const Instance &instance) {
        const std::uint64_t bytes =
            model::multiply_saturating(call.count, capture::nccl_datatype_bytes(call.datatype));
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

    static Shape shape_of(const Call &call, const Instance &instance, const std::vector<Way> &ways,
                          std::uint32_t kind) {
        Shape shape;
        shape.is_assumed = true;
        shape.is_complete = true;
        shape.func = call.func;
        shape.is_p2p = is_p2p(call.func);
        shape.tasks.resize(1); // nothing is told of it
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
            op.data_bytes = shape.is_p2p
                                ? model::multiply_saturating(
                                      call.count, capture::nccl_datatype_bytes(call.datatype))
                                : 0;
            shape.ops.push_back(op);
        }
        return shape;
    }

    Model &model_;
    Identity &nccl_;
    std::map<Place, std::int32_t> ranks_;
};

} // namespace

void assume_launches(Model &model) {
    Assumer(model).run();
}

} // namespace collwire::identity
