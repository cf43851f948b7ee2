// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/process_watch.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/process.h"
#include "userspace/process/process_view.h"

namespace collwire::sources {

cw_nccl_process ProcessWatch::record_of(const LibraryUser &user, const Process &process) {
    cw_nccl_process record = {};
    record.header = {sizeof(record), CW_KIND_NCCL_PROCESS, CW_CPU_USERSPACE, monotonic_ns()};
    record.tgid = user.tgid;
    record.image_id = user.image_id;
    record.start_boottime_ns = process.start_boottime_ns;
    return record;
}

bool ProcessWatch::add(const cw_nccl_comm &record) {
    const LibraryUser user = {record.tgid, record.image_id};
    const auto [entry, is_new] = processes_.try_emplace(user);
    Process &process = entry->second;
    if (!is_new && inventory::same_start(process.start_boottime_ns, record.start_boottime_ns))
        return false;
    process = {process::start_ticks(static_cast<pid_t>(record.tgid)).value_or(0),
               record.start_boottime_ns, monotonic_ns()};
    pending_.add(record_of(user, process));
    return true;
}

std::vector<ProcessWatch::Exited> ProcessWatch::poll() {
    const std::uint64_t now_ns = monotonic_ns();
    std::vector<Exited> exited;
    for (auto at = processes_.begin(); at != processes_.end();) {
        auto &[user, process] = *at;
        if (!process::has_ended(static_cast<pid_t>(user.tgid), process.start_ticks)) {
            process.there_ns = now_ns;
            ++at;
            continue;
        }
        cw_nccl_process record = record_of(user, process);
        record.gone_ns = now_ns;
        record.there_ns = process.there_ns;
        exited_.push_back(record);
        exited.push_back({user, process.start_boottime_ns});
        at = processes_.erase(at);
    }
    return exited;
}

std::set<std::uint32_t> ProcessWatch::tgids() const {
    std::set<std::uint32_t> all;
    for (const auto &[user, process] : processes_)
        all.insert(user.tgid);
    return all;
}

bool ProcessWatch::uses(std::uint32_t image_id) const {
    return std::ranges::any_of(
        processes_, [image_id](const auto &entry) { return entry.first.image_id == image_id; });
}

void ProcessWatch::append_exited(source::RecordSink &sink) {
    for (const cw_nccl_process &record : std::exchange(exited_, {}))
        sink.append(record.header);
}

} // namespace collwire::sources
