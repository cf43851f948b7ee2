// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/uncaptured_calls.h"

#include <algorithm>
#include <tuple>
#include <utility>

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
        if (const Call one = of.stream->calls[call]; is_collective(one.func) && !is_failed(one))
            of.calls.push_back(call);
    }
    return of;
}

bool is_alike(const Call &a, const Call &b) {
    return std::tie(a.func, a.datatype, a.count) == std::tie(b.func, b.datatype, b.count);
}

} // namespace

void UncapturedCalls::note(const NcclFacts &nccl, Index stream, std::uint32_t call) {
    std::vector<bool> &of = calls_[stream];
    of.resize(nccl.gathered.streams[stream].calls.size());
    of[call] = true;
}

void UncapturedCalls::share(const NcclFacts &nccl, const Communicator &comm) {
    std::vector<Collectives> ranks;
    std::size_t most = 0;
    for (const Index index : comm.instances)
        if (nccl.instances[index].created) {
            ranks.push_back(collectives_of(nccl, nccl.instances[index]));
            most = std::max(most, ranks.back().calls.size());
        }
    for (std::size_t place = 0; place < most; ++place) {
        const Collectives *first = nullptr;
        bool is_noted = false;
        for (const Collectives &rank : ranks) {
            if (place >= rank.calls.size())
                continue;
            const std::uint32_t call = rank.calls[place];
            if (first == nullptr)
                first = &rank;
            // Not one order: a rank made other calls.
            else if (!is_alike(first->stream->calls[first->calls[place]], rank.stream->calls[call]))
                return;
            is_noted = is_noted || contains(rank.stream_index, call);
        }
        if (!is_noted)
            continue;
        for (const Collectives &rank : ranks)
            if (place < rank.calls.size())
                note(nccl, rank.stream_index, rank.calls[place]);
    }
}

bool UncapturedCalls::contains(Index stream, std::uint32_t call) const {
    const auto found = calls_.find(stream);
    return found != calls_.end() && call < found->second.size() && found->second[call];
}

} // namespace collwire::nccl
