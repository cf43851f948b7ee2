// SPDX-License-Identifier: Apache-2.0
// Gives a collective one number on all ranks. A rank recorded from its communicator's creation
// counts from 0. A rank discovered later is placed by NCCL's own count of collectives or, if its
// version has none, by the other ranks' sequence of calls.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/align_sequences.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/count_places.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::Model;

namespace {

// Most calls that are compared to confirm a position.
constexpr std::size_t MAX_COMPARED = 4096;
// Since 2.26 NCCL counts per communicator and excludes captured calls.
constexpr std::uint32_t FIRST_WITH_OWN_COUNT = 22600;

class Aligner {
public:
    explicit Aligner(Model &model) : nccl_(model.nccl), clock_(model) {
        for (const Instance &instance : nccl_.instances)
            if (instance.record.proxy_state != 0)
                ++sharing_[{instance.session, instance.record.tgid, instance.record.proxy_state}];
    }

    void run(const Communicator &comm) {
        has_counts_ = std::all_of(comm.instances.begin(), comm.instances.end(), [&](Index index) {
            return has_own_count(nccl_.instances[index]);
        });
        for (const Index index : comm.instances)
            if (nccl_.instances[index].created)
                join(nccl_.instances[index], 0, SeqBase::Creation);
        choose_reference(comm);
        if (reference_ == NONE)
            return;
        places_ = {};
        add_places(nccl_.instances[reference_], sequence_);
        for (const Index index : comm.instances)
            if (const Instance &instance = nccl_.instances[index];
                instance.created && index != reference_ &&
                places_.ends_before(last_count(instance)))
                add_places(instance, sequence_of(instance));
        place_by_counts(comm);
        bool is_aligned = false;
        for (const Index index : comm.instances)
            if (Instance &instance = nccl_.instances[index]; !instance.is_joined)
                is_aligned = place_by_sequence(comm, instance) || is_aligned;
        if (Instance &reference = nccl_.instances[reference_];
            is_aligned && reference.seq_base == SeqBase::Recording) {
            reference.seq_base = SeqBase::Aligned;
            reference.confidence = 1;
        }
        is_numbered_ = nccl_.instances[reference_].seq_base >= SeqBase::Launched;
        divide(comm);
    }

private:
    using SharingKey = std::tuple<Index, std::uint32_t, std::uint64_t>;

    static void join(Instance &instance, std::uint64_t seq, SeqBase base) {
        instance.seq_base = base;
        instance.seq_of_first = seq;
        instance.is_joined = true;
    }

    [[nodiscard]] CallSequence sequence_of(const Instance &instance) const {
        return call_sequence(nccl_, instance, has_counts_);
    }

    // The rank that all others are compared with: recorded from the creation, else discovered
    // first.
    void choose_reference(const Communicator &comm) {
        reference_ = NONE;
        std::tuple<bool, bool, std::uint64_t, std::uint64_t, std::uint64_t> best;
        for (const Index index : comm.instances) {
            const Instance &instance = nccl_.instances[index];
            if (instance.n_collectives == 0)
                continue;
            const std::uint64_t position =
                instance.created ? 0 : seq_by_own_count(sequence_of(instance)).value_or(UINT64_MAX);
            const auto rank = std::tuple(
                instance.created, instance.calls_whole_until_ns == UINT64_MAX,
                instance.created ? instance.n_collectives : 0, ~position, instance.n_collectives);
            if (reference_ != NONE && rank <= best)
                continue;
            reference_ = index;
            best = rank;
        }
        if (reference_ == NONE)
            return;
        Instance &reference = nccl_.instances[reference_];
        sequence_ = sequence_of(reference);
        if (reference.created)
            return;
        if (const Known seq = seq_by_own_count(sequence_))
            join(reference, *seq, SeqBase::Launched);
        else
            join(reference, 0, SeqBase::Recording);
    }

    // Used if no rank has better evidence: assumes that NCCL counted every collective.
    static Known seq_by_own_count(const CallSequence &sequence) {
        for (const CountedAt &at : sequence.counted_at)
            if (at.items != 0 && at.items <= sequence.n_whole)
                return model::subtract_or_zero(at.counted, at.items);
        return std::nullopt;
    }

    [[nodiscard]] bool has_own_count(const Instance &instance) const {
        if (instance.version == 0 || instance.version >= FIRST_WITH_OWN_COUNT)
            return true;
        const auto sharing =
            sharing_.find({instance.session, instance.record.tgid, instance.record.proxy_state});
        if (instance.is_shared() || (sharing != sharing_.end() && sharing->second != 1))
            return false;
        // Repetitions of graphs count as well.
        const auto first =
            nccl_.gathered.streams[instance.stream].launches.begin() + instance.first_launch;
        return std::none_of(first, first + instance.n_launches, [](const Launch &launch) {
            return (launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0;
        });
    }

    [[nodiscard]] std::uint64_t last_count(const Instance &instance) const {
        const CommStream &stream = nccl_.gathered.streams[instance.stream];
        for (std::uint32_t i = instance.n_launches; i > 0; --i)
            if (const Launch &launch = stream.launches[instance.first_launch + i - 1];
                (launch.flags & CW_NCCL_LAUNCH_LAUNCHED) != 0)
                return launch.launched;
        return 0;
    }

    void add_places(const Instance &instance, const CallSequence &sequence) {
        places_.add(sequence, sequence.n_whole, instance.seq_of_first);
    }

    // One placed rank may supply another's missing evidence.
    void place_by_counts(const Communicator &comm) {
        if (!has_counts_)
            return;
        for (bool is_changed = true; std::exchange(is_changed, false);)
            for (const Index index : comm.instances) {
                Instance &instance = nccl_.instances[index];
                if (instance.is_joined)
                    continue;
                const CallSequence sequence = sequence_of(instance);
                const Known seq = places_.seq_of(sequence, sequence.n_whole);
                if (!seq || !agrees(sequence, *seq))
                    continue;
                join(instance, *seq, SeqBase::Launched);
                add_places(instance, sequence);
                is_changed = true;
            }
    }

    // Without NCCL's count numbers begin with the reference's first call. A rank that was
    // discovered a call earlier moves them all.
    void move_numbers(const Communicator &comm, std::uint64_t by) {
        for (const Index index : comm.instances)
            if (Instance &instance = nccl_.instances[index]; instance.is_joined)
                instance.seq_of_first += by;
    }

    bool place_by_sequence(const Communicator &comm, Instance &instance) {
        const CallSequence own = sequence_of(instance);
        if (own.n_whole == 0)
            return false;
        const auto sequence = [&](const CallSequence &from, Index host) {
            std::vector<SequenceItem> result;
            result.reserve(from.n_whole);
            for (std::uint32_t i = 0; i < from.n_whole; ++i)
                result.push_back(
                    {from.items[i].signature, clock_.time_ns(host, from.items[i].time_ns)});
            return result;
        };
        const Instance &reference = nccl_.instances[reference_];
        const auto found =
            align_sequences(sequence(sequence_, reference.host), sequence(own, instance.host));
        if (!found)
            return false;
        std::int64_t seq = static_cast<std::int64_t>(reference.seq_of_first) + found->offset;
        if (seq < 0) {
            if (reference.seq_base != SeqBase::Recording)
                return false;
            move_numbers(comm, static_cast<std::uint64_t>(-seq));
            seq = 0;
        }
        join(instance, static_cast<std::uint64_t>(seq), SeqBase::Aligned);
        instance.confidence = found->confidence;
        return true;
    }

    [[nodiscard]] bool agrees(const CallSequence &of, std::uint64_t seq) const {
        const std::uint64_t reference_seq = nccl_.instances[reference_].seq_of_first;
        const std::uint64_t begin = std::max(seq, reference_seq);
        const std::uint64_t end = std::min(seq + of.n_whole, reference_seq + sequence_.n_whole);
        if (begin >= end)
            return true;
        const std::uint64_t stride = std::max<std::uint64_t>(1, (end - begin) / MAX_COMPARED);
        for (std::uint64_t at = begin; at < end; at += stride)
            if (of.items[at - seq].signature != sequence_.items[at - reference_seq].signature)
                return false;
        return true;
    }

    // ---- ranks with missing calls

    // Collectives before the first possibly missing one have known numbers; from there on only
    // NCCL's count places them.
    void divide(const Communicator &comm) {
        const bool has_gaps =
            std::any_of(comm.instances.begin(), comm.instances.end(), [&](Index index) {
                return nccl_.instances[index].calls_whole_until_ns != UINT64_MAX;
            });
        if (!has_gaps)
            return;
        is_all_counted_ =
            std::all_of(comm.instances.begin(), comm.instances.end(), [&](Index index) {
                const CallSequence sequence = sequence_of(nccl_.instances[index]);
                return std::all_of(sequence.items.begin(), sequence.items.end(),
                                   [](const CallItem &item) { return item.is_counted; });
            });
        for (const Index index : comm.instances)
            if (Instance &instance = nccl_.instances[index];
                instance.calls_whole_until_ns != UINT64_MAX)
                divide(instance, sequence_of(instance));
    }

    void divide(Instance &instance, const CallSequence &sequence) {
        if (sequence.is_whole())
            return;
        std::vector<SeqRun> &runs = instance.runs;
        if (instance.is_joined && sequence.n_whole != 0)
            runs.push_back({0, sequence.n_whole, instance.seq_of_first, instance.seq_base});
        const CountedAt *before = nullptr;
        for (const CountedAt &at : sequence.counted_at) {
            const CountedAt *last = std::exchange(before, &at);
            if (at.items <= sequence.n_whole)
                continue;
            const std::uint32_t item = at.items - 1;
            const Known seq = seq_at(CallSequence::position(at), sequence.items[item].signature);
            if (!seq) {
                before = nullptr;
                continue;
            }
            const std::uint64_t next_seq = runs.empty() ? 0 : runs.back().seq + runs.back().n;
            const std::uint32_t next = runs.empty() ? 0 : runs.back().first + runs.back().n;
            const bool is_known = !runs.empty() || instance.created;
            if (is_known && (item < next || *seq < next_seq + (item - next)))
                continue;
            const bool is_all_here = is_known && last != nullptr && last->items <= next &&
                                     *seq == next_seq + (item - next) &&
                                     sequence.is_consistent(*last, at);
            add_run(runs, is_all_here ? SeqRun{next, at.items - next, next_seq, SeqBase::Launched}
                                      : SeqRun{item, 1, *seq, SeqBase::Launched});
        }
        sum_up(instance);
    }

    static void add_run(std::vector<SeqRun> &runs, const SeqRun &run) {
        if (!runs.empty() && runs.back().base == run.base &&
            runs.back().first + runs.back().n == run.first &&
            runs.back().seq + runs.back().n == run.seq)
            runs.back().n += run.n;
        else
            runs.push_back(run);
    }

    // If all ranks miss calls, no rank shows the collectives that NCCL does not count: assume none
    // if none was ever recorded.
    [[nodiscard]] Known seq_at(std::uint64_t position, std::uint64_t signature) const {
        if (!is_numbered_)
            return std::nullopt;
        if (const CountPlaces::Place *place = places_.find(position); place != nullptr)
            return place->signature == signature ? Known(place->seq) : std::nullopt;
        return is_all_counted_ ? Known(position) : std::nullopt;
    }

    static void sum_up(Instance &instance) {
        std::uint64_t joined = 0;
        for (const SeqRun &run : instance.runs) {
            instance.seq_base = std::min(instance.seq_base, run.base);
            joined += run.n;
        }
        instance.is_joined = joined == instance.n_collectives;
        if (!instance.is_joined)
            instance.seq_base = SeqBase::Recording;
    }

    NcclFacts &nccl_;
    CommonClock clock_;
    std::map<SharingKey, std::uint32_t> sharing_; // communicators by their proxy state
    bool has_counts_ = false;                     // NCCL's counts are of this communicator only
    bool is_numbered_ = false;                    // from the creation, or by NCCL's count
    bool is_all_counted_ = false;
    Index reference_ = NONE;
    CallSequence sequence_; // of the reference
    CountPlaces places_;
};

} // namespace

void align(Model &model) {
    Aligner aligner(model);
    for (const Communicator &comm : model.nccl.communicators)
        aligner.run(comm);
}

} // namespace collwire::nccl
