// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/steps.h"

#include <utility>

#include "base/clock.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/foreign/foreign.h"

namespace collwire::sources {
namespace {

constexpr std::size_t MAX_CONNECTIONS = 65536; // of a process

} // namespace

void NcclSteps::add(const cw_nccl_connection &connection, const cw_nccl_layout &bpf_layout,
                    bool is_lasting, bool counts_starts) {
    if (connection.first != 0)
        return; // more of its endpoints
    Process &process = processes_[connection.tgid];
    const auto known = process.connections.find(connection.connection);
    const bool is_known = known != process.connections.end();
    if (is_known && known->second.counter.net_comm == connection.net_comm) {
        if (is_lasting)
            known->second.comm = 0; // another communicator has it, too
        return;
    }
    const auto counter = nccl::find_step_counter(
        process::ProcessView{static_cast<pid_t>(connection.tgid)}, bpf_layout, connection);
    if (!counter || (!is_known && process.connections.size() >= MAX_CONNECTIONS))
        return;
    process.state_offset = counts_starts ? bpf_layout.args_state : CW_NCCL_NO_FIELD;
    process.connections[connection.connection] = {
        *counter, is_lasting ? 0 : std::uint64_t{connection.comm}, {}, 0};
}

std::uint64_t NcclSteps::address_of(std::uint32_t tgid, std::uint64_t connection) const {
    const auto process = processes_.find(tgid);
    if (process == processes_.end())
        return 0;
    const auto known = process->second.connections.find(connection);
    return known == process->second.connections.end() ? 0 : known->second.counter.steps_at;
}

void NcclSteps::forget(std::uint32_t tgid, std::uint64_t comm) {
    if (const auto process = processes_.find(tgid); process != processes_.end())
        std::erase_if(process->second.connections,
                      [comm](const auto &entry) { return entry.second.comm == comm; });
}

void NcclSteps::poll(bool everything) {
    for (auto &[tgid, process] : processes_)
        if (foreign::answers(static_cast<pid_t>(tgid)))
            poll(tgid, process, everything);
}

bool NcclSteps::is_stalled(std::uint64_t for_ns) const {
    for (const auto &[tgid, process] : processes_)
        for (const auto &[address, connection] : process.connections)
            if ((connection.sampled.flags & CW_NCCL_STEPS_BUSY) != 0 &&
                connection.same_ns - connection.since_ns >= for_ns)
                return true;
    return false;
}

void NcclSteps::append(source::RecordSink &sink) {
    for (const cw_nccl_steps &record : std::exchange(samples_, {}))
        sink.append(record.header);
}

void NcclSteps::poll(std::uint32_t tgid, Process &process, bool everything) {
    std::vector<nccl::StepCounter> counters;
    counters.reserve(process.connections.size());
    for (const auto &[address, connection] : process.connections)
        counters.push_back(connection.counter);
    const std::uint64_t read_ns = monotonic_ns();
    const auto readings = nccl::read_step_counters(process::ProcessView{static_cast<pid_t>(tgid)},
                                                   counters, process.state_offset);
    const std::uint64_t now_ns = monotonic_ns();
    if (!foreign::answers(static_cast<pid_t>(tgid)))
        return; // not read, and not over
    auto at = process.connections.begin();
    for (const auto &reading : readings) {
        if (!reading) {
            at = process.connections.erase(at);
            continue;
        }
        Connection &connection = at->second;
        cw_nccl_steps record = {};
        record.header = {sizeof(record), CW_KIND_NCCL_STEPS, CW_CPU_USERSPACE, now_ns};
        record.connection = at->first;
        record.steps = reading->steps;
        record.read_ns = read_ns;
        record.tgid = tgid;
        record.flags = (reading->is_idle ? std::uint32_t{CW_NCCL_STEPS_IDLE} : 0U) |
                       (reading->is_busy ? std::uint32_t{CW_NCCL_STEPS_BUSY} : 0U);
        record.unchanged_ns = connection.same_ns;
        const bool is_same = connection.same_ns != 0 && connection.sampled.steps == record.steps &&
                             connection.sampled.flags == record.flags;
        if (!is_same || everything) {
            samples_.push_back(record);
            connection.sampled = record;
        }
        if (!is_same)
            connection.since_ns = read_ns;
        connection.same_ns = read_ns;
        ++at;
    }
}

} // namespace collwire::sources
