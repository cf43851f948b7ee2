// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/uncaptured_calls.h"

#include <set>
#include <tuple>

#include "correlate/nccl/resolve.h"

namespace collwire::nccl {
namespace {

struct Collectives {
    const CommStream *stream = nullptr;
    Index stream_index = NONE;
    std::vector<std::uint32_t> calls; // in order
};

Collectives collectives_of(const NcclFacts &nccl, const Instance &instance) {
    Collectives of{&nccl.gathered.streams[instance.stream], instance.stream, {}};
    for (std::uint32_t i = 0; i < instance.n_calls; ++i) {
        const std::uint32_t call = instance.first_call + i;
        const Call one = of.stream->calls[call];
        // From then on calls may be missing.
        if (one.time_ns >= instance.calls_whole_until_ns)
            break;
        if (is_collective(one.func))
            of.calls.push_back(call);
    }
    return of;
}

bool is_alike(const Call &a, const Call &b) {
    return std::tie(a.func, a.datatype, a.count) == std::tie(b.func, b.datatype, b.count);
}

} // namespace

bool may_lack_launches(const NcclFacts &nccl, const Instance &instance) {
    if (instance.record.local_ranks < 2)
        return false;
    std::set<std::int32_t> recorded;
    if (instance.comm != NONE)
        for (const Index index : nccl.communicators[instance.comm].instances)
            if (const Instance &of = nccl.instances[index];
                of.created && of.record.node == instance.record.node)
                recorded.insert(of.record.rank);
    return std::ssize(recorded) < instance.record.local_ranks;
}

void UncapturedCalls::note(const NcclFacts &nccl, Index stream, std::uint32_t call) {
    std::vector<bool> &of = calls_[stream];
    of.resize(nccl.gathered.streams[stream].calls.size());
    of[call] = true;
}

void UncapturedCalls::share(const NcclFacts &nccl, const Communicator &comm) {
    std::vector<Collectives> ranks;
    for (const Index index : comm.instances)
        if (nccl.instances[index].created)
            ranks.push_back(collectives_of(nccl, nccl.instances[index]));
    for (std::size_t place = 0;; ++place) {
        std::erase_if(ranks, [place](const Collectives &of) { return place >= of.calls.size(); });
        if (ranks.size() < 2)
            return;
        const Call first = ranks.front().stream->calls[ranks.front().calls[place]];
        bool is_noted = false;
        for (const Collectives &rank : ranks) {
            const std::uint32_t call = rank.calls[place];
            // Not one order: a rank made other calls.
            if (!is_alike(first, rank.stream->calls[call]))
                return;
            is_noted = is_noted || contains(rank.stream_index, call);
        }
        if (!is_noted)
            continue;
        for (const Collectives &rank : ranks)
            note(nccl, rank.stream_index, rank.calls[place]);
    }
}

bool UncapturedCalls::contains(Index stream, std::uint32_t call) const {
    const auto found = calls_.find(stream);
    return found != calls_.end() && call < found->second.size() && found->second[call];
}

} // namespace collwire::nccl
