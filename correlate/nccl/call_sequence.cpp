// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/call_sequence.h"

#include <algorithm>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/model/address.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

namespace {

// Beyond every real program.
constexpr std::uint64_t MAX_POSITION = 1ULL << 48U;

class CallSequenceReader {
public:
    CallSequenceReader(const NcclFacts &nccl, const Instance &instance)
        : nccl_(nccl), instance_(instance), stream_(nccl.gathered.streams[instance.stream]),
          joins_(nccl.call_joins[instance.stream]) {}

    CallSequence read(bool has_counts) {
        read_items();
        if (has_counts)
            read_counts();
        return std::move(sequence_);
    }

private:
    void read_items() {
        sequence_.items.reserve(instance_.n_collectives);
        for (std::uint32_t i = instance_.first_call; i < instance_.first_call + instance_.n_calls;
             ++i) {
            const Call &call = stream_.calls[i];
            if (is_failed(call) || !is_collective(call.func))
                continue;
            const std::uint32_t launch = joins_.launch(i);
            const bool is_captured =
                launch != NONE && (stream_.launches[launch].flags & CW_NCCL_LAUNCH_GRAPH) != 0;
            // Each rank of AllGatherV has its own count.
            const std::uint64_t count = call.func == CW_NCCL_ALL_GATHER_V ? 0 : call.count;
            sequence_.items.push_back(
                {model::mix(model::mix(count) ^
                            (std::uint64_t{call.func} << 40U | std::uint64_t{call.datatype} << 32U |
                             static_cast<std::uint32_t>(call.root))),
                 call.time_ns,
                 is_counted_by_nccl(call) && !is_captured &&
                     !is_grouped_broadcast(nccl_, instance_, i)});
            launches_.push_back(launch);
            if (call.time_ns < instance_.calls_whole_until_ns)
                ++sequence_.n_whole;
        }
    }

    // A thread launches its calls before it calls again. So the last launch before the next call is
    // such a moment, provided that every call since the previous one has a recorded launch. A
    // captured call is exempt: NCCL may launch it without a probe hit.
    void read_counts() {
        if (instance_.created)
            sequence_.counted_at.push_back({0, 0});
        std::uint32_t call = instance_.first_call;
        std::uint32_t item = 0;
        std::uint64_t counted_before = instance_.record.launched;
        bool is_counted_before = (instance_.record.flags & CW_NCCL_COMM_LAUNCHED) != 0;
        for (std::uint32_t i = 0; i < instance_.n_launches; ++i) {
            const std::uint32_t index = instance_.first_launch + i;
            const Launch &launch = stream_.launches[index];
            if ((launch.flags & CW_NCCL_LAUNCH_GRAPH) != 0)
                continue;
            const std::uint32_t end = instance_.first_call + instance_.n_calls;
            while (call < end && stream_.calls[call].time_ns <= launch.time_ns)
                ++call;
            const std::uint64_t next_call_ns =
                call < end ? stream_.calls[call].time_ns : UINT64_MAX;
            if (next_launch_ns(i) < next_call_ns)
                continue;
            const Batch batch = batch_until(item, launch.time_ns, index);
            const bool is_known =
                (launch.flags & CW_NCCL_LAUNCH_LAUNCHED) != 0 && launch.launched <= MAX_POSITION;
            // If calls may be missing, one of these may be, and the numbers would shift.
            const bool is_all_here =
                batch.last < sequence_.n_whole || sequence_.is_whole() ||
                (is_counted_before &&
                 model::subtract_or_zero(launch.launched, counted_before) == batch.n_counted);
            if (is_known && batch.n_counted != 0 && batch.is_launched && is_all_here &&
                launch.launched >= batch.n_counted)
                sequence_.counted_at.push_back({batch.last + 1, launch.launched});
            item = batch.end;
            is_counted_before = is_known;
            counted_before = launch.launched;
        }
    }

    [[nodiscard]] std::uint64_t next_launch_ns(std::uint32_t i) const {
        while (++i < instance_.n_launches) {
            const Launch &launch = stream_.launches[instance_.first_launch + i];
            if ((launch.flags & CW_NCCL_LAUNCH_GRAPH) == 0)
                return launch.time_ns;
        }
        return UINT64_MAX;
    }

    // The calls between two moments.
    struct Batch {
        std::uint32_t end = 0;
        std::uint32_t last = 0; // counted by NCCL
        std::uint64_t n_counted = 0;
        bool is_launched = true; // all counted ones
    };
    [[nodiscard]] Batch batch_until(std::uint32_t first, std::uint64_t time_ns,
                                    std::uint32_t launch) const {
        Batch batch;
        for (batch.end = first;
             batch.end < sequence_.items.size() && sequence_.items[batch.end].time_ns <= time_ns;
             ++batch.end) {
            if (!sequence_.items[batch.end].is_counted)
                continue;
            batch.last = batch.end;
            ++batch.n_counted;
            batch.is_launched =
                batch.is_launched && launches_[batch.end] != NONE && launches_[batch.end] <= launch;
        }
        return batch;
    }

    const NcclFacts &nccl_;
    const Instance &instance_;
    const CommStream &stream_;
    const CallJoins &joins_;
    CallSequence sequence_;
    std::vector<std::uint32_t> launches_; // by item
};

} // namespace

bool CallSequence::is_consistent(const CountedAt &from, const CountedAt &to) const {
    const auto begin = items.begin() + from.items;
    const auto counted = std::count_if(begin, items.begin() + to.items,
                                       [](const CallItem &item) { return item.is_counted; });
    return to.counted == from.counted + static_cast<std::uint64_t>(counted);
}

CallSequence call_sequence(const NcclFacts &nccl, const Instance &instance, bool has_counts) {
    return CallSequenceReader(nccl, instance).read(has_counts);
}

} // namespace collwire::nccl
