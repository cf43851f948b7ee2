// SPDX-License-Identifier: Apache-2.0
// What is recorded of a network or an NCCL that fails: counters of ports that grow, and an error
// that NCCL keeps.
#include <algorithm>
#include <vector>

#include "base/set_text.h"
#include "collwire/nccl_error_records.h"
#include "collwire/port_records.h"
#include "collwire/record_kinds.h"
#include "tools/trace-gen/job_inventory.h"
#include "tools/trace-gen/made_record.h"

namespace collwire::trace_gen {
namespace {

constexpr std::uint32_t PORT = 1;
constexpr std::uint32_t FIRST_ERROR_COUNTER = 1000;
constexpr std::uint32_t NCCL_REMOTE_ERROR = 6;

} // namespace

void JobInventory::port_error_counters(source::RecordSink &sink) const {
    const std::vector<PortErrors> &all = plan_.options().port_errors;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
        if (all[i].node != node_)
            continue;
        auto counter = make<cw_counter_def>(CW_KIND_COUNTER_DEF, clock_.boot_ns);
        counter.id = FIRST_ERROR_COUNTER + i;
        counter.dev_index = all[i].nic;
        counter.port = PORT;
        counter.source = CW_COUNTER_PORT;
        set_text(counter.name, all[i].counter);
        sink.append(counter.header);
    }
}

void JobInventory::signs(source::RecordSink &sink, std::uint64_t true_ns) const {
    const std::uint64_t now_ns = clock_.monotonic_ns(true_ns);
    struct Sample {
        cw_counter_samples head;
        cw_counter_sample sample;
    };
    const std::vector<PortErrors> &all = plan_.options().port_errors;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
        if (all[i].node != node_)
            continue;
        Sample record{.head = make<cw_counter_samples>(CW_KIND_COUNTER_SAMPLES, now_ns),
                      .sample = {}};
        record.head.header.length_bytes = sizeof(record);
        record.head.read_begin_ns = now_ns - 1000;
        record.head.n = 1;
        record.sample.id = FIRST_ERROR_COUNTER + i;
        const std::uint64_t grown_until_ns = std::clamp(true_ns, all[i].from_ns, all[i].to_ns);
        record.sample.value = (grown_until_ns - all[i].from_ns) / SAMPLE_NS;
        sink.append(record.head.header);
    }
    for (const KeptError &kept : plan_.options().kept_errors) {
        if (kept.rank / GPUS != node_ || kept.at_ns > true_ns || kept.at_ns + SAMPLE_NS <= true_ns)
            continue;
        auto result = make<cw_nccl_result>(CW_KIND_NCCL_RESULT, now_ns);
        result.tgid = pid_of_rank(kept.rank);
        result.comm = comm_address(plan_.membership(JobRole::Data, kept.rank).comm);
        result.before_ns = now_ns - SAMPLE_NS;
        result.result = NCCL_REMOTE_ERROR;
        sink.append(result.header);
    }
}

} // namespace collwire::trace_gen
