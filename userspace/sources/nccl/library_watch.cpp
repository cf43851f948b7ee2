// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/library_watch.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/set_text.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/source/probe_record.h"

namespace collwire::sources {

std::vector<pid_t> LibraryWatch::scan_all() {
    std::vector<pid_t> pids = libraries_.processes();
    unfinished_ = libraries_.scan(pids).unfinished;
    return pids;
}

void LibraryWatch::on_file_mapped(const cw_file_mapped &record) {
    mapped_.push_back({static_cast<pid_t>(record.tgid), record.inode, false});
    scan({mapped_.back().pid});
}

// Other processes may have mapped a new library, too, and have communicators by now. Communicators
// in earlier libraries are known, or have ended: their memory may still be in forked processes.
void LibraryWatch::scan(const std::vector<pid_t> &pids) {
    const std::size_t before = libraries_.all().size();
    const std::uint32_t last_known = libraries_.last_id();
    const auto scanned = libraries_.scan(pids);
    unfinished_.insert(unfinished_.end(), scanned.unfinished.begin(), scanned.unfinished.end());
    for (Mapped &mapped : mapped_)
        mapped.is_known = mapped.is_known || scanned.inodes.contains(mapped.inode);
    if (libraries_.all().size() != before)
        options_.on_new_libraries(last_known);
}

void LibraryWatch::poll(bool starts_segment) {
    const auto retry = libraries_.take_retry_pids();
    unfinished_.insert(unfinished_.end(), retry.begin(), retry.end());
    scan_mapped();
    if (const auto before = libraries_.place_waiting())
        options_.on_new_libraries(*before);
    if (!starts_segment)
        forget_libraries();
    if (const auto again = libraries_.release_unused(monotonic_ns());
        !again.empty() && options_.rearm_mappings)
        options_.rearm_mappings(again);
    if (!options_.has_mapping_records())
        poll_processes();
    else
        polls_.clear();
}

void LibraryWatch::scan_mapped() {
    // A process may not have completed its mapping when its record came.
    std::vector<pid_t> pids = std::exchange(unfinished_, {});
    for (const Mapped &mapped : mapped_)
        if (std::ranges::find(pids, mapped.pid) == pids.end())
            pids.push_back(mapped.pid);
    if (!pids.empty())
        scan(pids);
    // The process may have exited before it was scanned. Others will map its file.
    NcclLibraries::Inodes unknown;
    for (const Mapped &mapped : mapped_)
        if (!mapped.is_known)
            unknown.insert(mapped.inode);
    mapped_.clear();
    if (!unknown.empty() && options_.rearm_mappings)
        options_.rearm_mappings(unknown);
}

void LibraryWatch::poll_processes() {
    scan(polls_.due(libraries_.processes()));
}

void LibraryWatch::forget_libraries() {
    libraries_.forget([this](const NcclLibrary &library) {
        return library.id <= last_written_ && !options_.is_used(library.id);
    });
}

void LibraryWatch::append(source::RecordSink &sink, bool everything) {
    for (const auto &each : libraries_.all()) {
        const NcclLibrary &library = *each;
        if (!everything && library.id <= last_written_)
            continue;
        last_written_ = std::max(last_written_, library.id);
        cw_nccl_image record = {};
        record.header = {sizeof(record), CW_KIND_NCCL_IMAGE, CW_CPU_USERSPACE, monotonic_ns()};
        record.image_id = library.id;
        record.version = nccl::version_number(library.layout.version);
        record.inode = library.status.identity.inode;
        nccl::put_rungs(library.layout, record);
        set_text(record.build_id, library.layout.build_id);
        set_text(record.path, library.path);
        set_text(record.reason, library.problem);
        if (library.problem.empty() || library.placed_ns != 0)
            set_text(record.basis,
                     nccl::basis_of(library.layout, "operations", sizeof(record.basis) - 1));
        sink.append(record.header);
        if (everything)
            continue; // the recorder writes the probes itself
        for (const source::PlannedProbe &probe : library.probes) {
            const cw_probe placed = probe_record(probe, library.placed_ns);
            sink.append(placed.header);
        }
    }
}

} // namespace collwire::sources
