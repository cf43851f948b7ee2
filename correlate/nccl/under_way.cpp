// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/under_way.h"

#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "correlate/nccl/resolve.h"
#include "correlate/nccl/time_operations.h"

namespace collwire::nccl {
namespace {

struct Uncertain {
    PlaceOfOp place;
    std::size_t order = 0;
};

struct Candidate {
    std::optional<PlaceOfOp> place;
    bool is_certain = false;
    std::uint64_t seen_ns = 0;
    // The last one on each connection whose place is not known.
    std::unordered_map<Index, Uncertain> uncertain;
    std::size_t n_uncertain = 0;
};

void consider(Candidate &of, const UnderWay &asked, const PlaceOfOp &place, Index connection,
              std::uint64_t launch_ns, const OpTime &time) {
    const std::uint64_t end_ns = time.known == EndKnown::Measured ? time.end_ns : time.before_ns;
    const bool is_done = time.known != EndKnown::No && end_ns <= asked.time_ns;
    // A connection carries operations one after the other: those before it are done, too.
    if (is_done && connection != NONE)
        of.uncertain.erase(connection);
    if (launch_ns > asked.time_ns || is_done || of.is_certain)
        return;
    if (time.after_ns == 0) {
        of.uncertain[connection] = {place, ++of.n_uncertain};
        return;
    }
    // The first one with a known place, else the last one.
    of.is_certain = true;
    of.place = place;
    of.seen_ns = time.after_ns > launch_ns ? time.after_ns : 0;
}

void choose_uncertain(Candidate &of) {
    std::size_t last = 0;
    for (const auto &[connection, one] : of.uncertain)
        if (!of.is_certain && one.order > last) {
            last = one.order;
            of.place = one.place;
        }
}

} // namespace

void find_under_way(const model::Model &model, std::span<UnderWay> asked) {
    const NcclFacts &nccl = model.nccl;
    if (asked.empty())
        return;
    std::vector<Candidate> candidates(asked.size());
    std::unordered_map<Index, std::vector<std::size_t>> by_link, by_instance;
    for (std::size_t i = 0; i < asked.size(); ++i)
        if (asked[i].link != NONE)
            by_link[asked[i].link].push_back(i);
        else
            by_instance[asked[i].instance].push_back(i);
    OperationTimer(model).for_each([&](const OpVisit &of, const OpTime &time) {
        const PlaceOfOp &place = of.at;
        const Launch &launch = of.launch;
        const ShapeOp &op = of.op;
        const auto consider_all = [&](const auto &asks, Index key) {
            if (const auto found = asks.find(key); found != asks.end())
                for (const std::size_t i : found->second)
                    consider(candidates[i], asked[i], place, op.connection, launch.time_ns, time);
        };
        consider_all(by_link, op.link);
        consider_all(by_instance, place.instance);
    });
    for (std::size_t i = 0; i < asked.size(); ++i) {
        choose_uncertain(candidates[i]);
        if (!candidates[i].place)
            continue;
        const PlaceOfOp &place = *candidates[i].place;
        const Instance &instance = nccl.instances[place.instance];
        const Launch &launch = nccl.gathered.streams[instance.stream].launches[place.launch];
        asked[i].of_instance = place.instance;
        std::tie(asked[i].is_pair, asked[i].operation) = operation_of(
            nccl, instance, launch, nccl.shapes[launch.shape_index].ops[place.op].task);
        asked[i].is_certain = candidates[i].is_certain;
        asked[i].seen_ns = candidates[i].seen_ns;
    }
}

} // namespace collwire::nccl
