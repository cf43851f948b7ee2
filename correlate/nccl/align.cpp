// SPDX-License-Identifier: Apache-2.0
// One number for a collective on all ranks. A rank that was seen from the creation of its
// communicator counts from 0. One that was met later is placed by NCCL's own count of collectives,
// or, where its version has none, by the sequence of calls of the others.
#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "correlate/model/address.h"
#include "correlate/nccl/align_sequences.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/resolve.h"

namespace collwire::identity {

using model::Model;

namespace {

// Calls that are compared before a position is believed.
constexpr std::size_t MAX_COMPARED = 4096;
// Since 2.26 NCCL counts for each communicator, and not what was captured.
constexpr std::uint32_t FIRST_WITH_OWN_COUNT = 22600;

// No program gets there.
constexpr std::uint64_t MAX_POSITION = 1ULL << 48U;

struct Item {
    std::uint64_t signature = 0;
    std::uint64_t time_ns = 0; // monotonic
    bool is_counted = false;   // by NCCL
};

class Aligner {
public:
    explicit Aligner(Model &model) : nccl_(model.nccl), clock_(model) {
        for (const Instance &instance : nccl_.instances)
            if (instance.record.proxy_state != 0)
                ++sharing_[{instance.session, instance.record.tgid, instance.record.proxy_state}];
    }

    void run(const Communicator &comm) {
        for (const Index index : comm.instances) {
            Instance &instance = nccl_.instances[index];
            if (instance.created) {
                instance.seq_base = SeqBase::Creation;
                instance.is_joined = true;
            }
        }
        choose_reference(comm);
        if (reference_ == NONE)
            return;
        for (const Index index : comm.instances)
            if (index != reference_ && nccl_.instances[index].seq_base != SeqBase::Creation)
                place(nccl_.instances[index]);
    }

private:
    using SharingKey = std::tuple<Index, std::uint32_t, std::uint64_t>;

    // The one that all others are compared with: seen from the creation, else met first.
    void choose_reference(const Communicator &comm) {
        reference_ = NONE;
        std::uint64_t best_position = 0;
        for (const Index index : comm.instances) {
            const Instance &instance = nccl_.instances[index];
            if (instance.n_collectives == 0)
                continue;
            const Known position = instance.created ? Known(0) : position_of(instance);
            if (reference_ == NONE) {
                reference_ = index;
                best_position = position.value_or(UINT64_MAX);
                continue;
            }
            const Instance &best = nccl_.instances[reference_];
            const auto rank = [](const Instance &of, std::uint64_t at) {
                return std::tuple(of.created, of.created ? of.n_collectives : 0, ~at,
                                  of.n_collectives);
            };
            const std::uint64_t at = position.value_or(UINT64_MAX);
            if (rank(instance, at) > rank(best, best_position)) {
                reference_ = index;
                best_position = at;
            }
        }
        if (reference_ == NONE)
            return;
        Instance &reference = nccl_.instances[reference_];
        reference.is_joined = true;
        items_ = items_of(reference);
        counted_.clear();
        for (std::uint32_t i = 0; i < items_.size(); ++i)
            if (items_[i].is_counted)
                counted_.push_back(i);
        reference_position_ = reference.created ? Known(0) : position_of(reference);
        if (!reference.created && reference_position_) {
            reference.seq_base = SeqBase::Launched;
            reference.seq_of_first = *reference_position_;
        }
    }

    [[nodiscard]] std::vector<Item> items_of(const Instance &instance) const {
        std::vector<Item> items;
        items.reserve(instance.n_collectives);
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        const std::vector<CallJoin> &joins = nccl_.call_joins[instance.stream];
        for (std::uint32_t i = instance.first_call; i < instance.first_call + instance.n_calls;
             ++i) {
            const Call &call = stream.calls[i];
            if (is_failed(call) || !is_collective(call.func))
                continue;
            const bool is_captured =
                joins[i].launch != NONE &&
                (stream.launches[joins[i].launch].flags & CW_NCCL_LAUNCH_GRAPH) != 0;
            // Each rank of AllGatherV has a count of its own.
            const std::uint64_t count = call.func == CW_NCCL_ALL_GATHER_V ? 0 : call.count;
            items.push_back(
                {model::mix(model::mix(count) ^
                            (std::uint64_t{call.func} << 40U | std::uint64_t{call.datatype} << 32U |
                             static_cast<std::uint32_t>(call.root))),
                 call.time_ns,
                 is_counted_by_nccl(call) && !is_captured &&
                     !is_grouped_broadcast(nccl_, instance, i)});
        }
        return items;
    }

    [[nodiscard]] bool has_own_count(const Instance &instance) const {
        if (instance.version == 0 || instance.version >= FIRST_WITH_OWN_COUNT)
            return true;
        const auto sharing =
            sharing_.find({instance.session, instance.record.tgid, instance.record.proxy_state});
        return (instance.record.flags & CW_NCCL_COMM_SHARED) == 0 &&
               (sharing == sharing_.end() || sharing->second == 1);
    }

    // How many collectives NCCL had counted before the first one here. No more have been started
    // than were called, and at some moment all of them were.
    [[nodiscard]] Known position_of(const Instance &instance) const {
        if (!has_own_count(instance))
            return std::nullopt;
        Known position;
        if ((instance.record.flags & CW_NCCL_COMM_LAUNCHED) != 0)
            position = instance.record.launched;
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        const std::vector<Item> items = items_of(instance);
        std::size_t item = 0;
        std::uint64_t counted = 0;
        for (std::uint32_t i = 0; i < instance.n_launches; ++i) {
            const Launch &launch = stream.launches[instance.first_launch + i];
            if ((launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0 && instance.version != 0 &&
                instance.version < FIRST_WITH_OWN_COUNT)
                return std::nullopt; // repetitions are counted, too
            for (; item < items.size() && items[item].time_ns <= launch.time_ns; ++item)
                counted += items[item].is_counted ? 1 : 0;
            if ((launch.flags & CW_NCCL_LAUNCH_LAUNCHED) != 0)
                position = std::max(position.value_or(0),
                                    model::subtract_or_zero(launch.launched, counted));
        }
        return position.value_or(0) <= MAX_POSITION ? position : std::nullopt;
    }

    void place(Instance &instance) {
        const std::vector<Item> items = items_of(instance);
        if (items.empty())
            return;
        if (const Known seq = seq_by_count(instance, items); seq && agrees(items, *seq)) {
            instance.seq_base = SeqBase::Launched;
            instance.seq_of_first = *seq;
            instance.is_joined = true;
            return;
        }
        const auto sequence = [&](const std::vector<Item> &from, Index host) {
            std::vector<SequenceItem> result;
            result.reserve(from.size());
            for (const Item &item : from)
                result.push_back({item.signature, clock_.time_ns(host, item.time_ns)});
            return result;
        };
        const Instance &reference = nccl_.instances[reference_];
        const auto found =
            align_sequences(sequence(items_, reference.host), sequence(items, instance.host));
        const auto base = static_cast<std::int64_t>(reference.seq_of_first);
        if (!found || base + found->offset < 0)
            return;
        instance.is_joined = true;
        instance.seq_base = SeqBase::Aligned;
        instance.seq_of_first = static_cast<std::uint64_t>(base + found->offset);
        instance.confidence = found->confidence;
    }

    // By the place of the same count in the reference.
    [[nodiscard]] Known seq_by_count(const Instance &instance,
                                     const std::vector<Item> &items) const {
        const Known position = position_of(instance);
        if (!position || !reference_position_ || *position < *reference_position_)
            return std::nullopt;
        std::uint64_t uncounted = 0; // before the first that is counted
        while (uncounted < items.size() && !items[uncounted].is_counted)
            ++uncounted;
        if (uncounted == items.size())
            return std::nullopt;
        const std::uint64_t wanted = *position - *reference_position_;
        std::uint64_t place = 0;
        if (wanted < counted_.size())
            place = counted_[wanted];
        else
            place = items_.size() + (wanted - counted_.size());
        const std::uint64_t seq = nccl_.instances[reference_].seq_of_first + place;
        return seq >= uncounted ? Known(seq - uncounted) : std::nullopt;
    }

    [[nodiscard]] bool agrees(const std::vector<Item> &items, std::uint64_t seq) const {
        const std::uint64_t reference_seq = nccl_.instances[reference_].seq_of_first;
        const std::uint64_t begin = std::max(seq, reference_seq);
        const std::uint64_t end = std::min(seq + items.size(), reference_seq + items_.size());
        if (begin >= end)
            return true;
        const std::uint64_t stride = std::max<std::uint64_t>(1, (end - begin) / MAX_COMPARED);
        for (std::uint64_t at = begin; at < end; at += stride)
            if (items[at - seq].signature != items_[at - reference_seq].signature)
                return false;
        return true;
    }

    Identity &nccl_;
    CommonClock clock_;
    std::map<SharingKey, std::uint32_t> sharing_; // communicators by state of their proxy
    Index reference_ = NONE;
    std::vector<Item> items_;            // of the reference
    std::vector<std::uint32_t> counted_; // those of them that NCCL counts
    Known reference_position_;
};

} // namespace

void align(Model &model) {
    Aligner aligner(model);
    for (const Communicator &comm : model.nccl.communicators)
        aligner.run(comm);
}

} // namespace collwire::identity
