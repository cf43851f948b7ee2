// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/profiler_counters.h"

#include "tests/cuda_double/library.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

// Up to 2.25 one number per channel; then a ring of numbers and times per channel.
struct CountersLayout {
    bool exists = false;
    bool has_rings = false;
    Field work_counter; // of the channel
    std::int64_t ring_bytes = 0, entry_bytes = 0, entries = 0;
    Field number, time;
};

CountersLayout read_counters_layout() {
    const Layout &layout = library().layout();
    CountersLayout known;
    known.work_counter = layout.field("ncclDevChannel.workCounter");
    known.exists = known.work_counter && communicator_layout().work_started;
    const auto ring_bytes = layout.size_bytes("ncclDevProfiler");
    if (!known.exists || !ring_bytes)
        return known;
    known.has_rings = true;
    known.ring_bytes = *ring_bytes;
    known.entry_bytes = layout.element_bytes("ncclDevProfiler.data");
    known.entries = layout.required("ncclDevProfiler.data").size_bytes() / known.entry_bytes;
    known.number = layout.required("ncclDevProfiler.data[].counter");
    known.time = layout.required("ncclDevProfiler.data[].timestamp");
    return known;
}

const CountersLayout &counters_layout() {
    static const CountersLayout known = read_counters_layout();
    return known;
}

} // namespace

ProfilerCounters::ProfilerCounters(const Communicator &communicator, const Channel &channel)
    : communicator_(communicator.device()), channel_(channel.device()), channel_id_(channel.id()) {
    if (counters_layout().work_counter)
        works_ = counters_layout().work_counter.read(channel_);
}

void ProfilerCounters::batch_ended(const std::vector<bool> &profiled) {
    write(false, profiled);
    works_ += profiled.size();
}

void ProfilerCounters::kernel_ended() const {
    if (counters_layout().work_counter)
        counters_layout().work_counter.write(channel_, works_);
}

void ProfilerCounters::write(bool is_start, const std::vector<bool> &profiled) const {
    const CountersLayout &layout = counters_layout();
    if (!layout.exists)
        return;
    const Field &table_field =
        is_start ? communicator_layout().work_started : communicator_layout().work_completed;
    char *table = table_field.pointer<char>(communicator_);
    if (table == nullptr)
        return;
    std::uint64_t number = works_;
    for (const bool is_wanted : profiled) {
        number++;
        if (!is_wanted)
            continue;
        if (!layout.has_rings) {
            auto *numbers = reinterpret_cast<std::uint64_t *>(table);
            __atomic_store_n(&numbers[channel_id_], number, __ATOMIC_RELEASE);
            continue;
        }
        const auto place = static_cast<std::int64_t>(number) % layout.entries;
        char *entry = table + channel_id_ * layout.ring_bytes + place * layout.entry_bytes;
        layout.time.write(entry, now_ns());
        layout.number.write(entry, number);
    }
}

} // namespace collwire::cuda_double
