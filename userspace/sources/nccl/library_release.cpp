// SPDX-License-Identifier: Apache-2.0
// NcclLibraries: releases the libraries that are no longer used, or that were written again.
#include "collwire/nccl_layout.h"
// After it: the skeleton names its type.
#include "nccl.skel.h"

#include <algorithm>
#include <utility>

#include "userspace/loader/take_off.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::sources {
namespace {

bool is_deleted(const NcclLibrary &library) {
    const auto status =
        library.file.is_open() ? library.file.status() : process::status_of(library.path);
    return !status || status->n_names == 0 ||
           (!library.file.is_open() && !library.names.contains(status->identity));
}

NcclLibraries::Inodes inodes_of(const NcclLibrary &library) {
    NcclLibraries::Inodes inodes;
    for (const process::FileIdentity &name : library.names)
        inodes.insert(name.inode);
    return inodes;
}

// True: there were some.
bool forget_ended_users(NcclLibrary &library) {
    return std::erase_if(library.users, [](const auto &user) {
               return process::start_ticks(user.first) != user.second;
           }) != 0;
}

} // namespace

NcclLibrary *NcclLibraries::longest_unused() const {
    // 0 (used at the last check) sorts last.
    const auto since = [](const NcclLibrary &library) { return library.unused_since_ns - 1; };
    NcclLibrary *found = nullptr;
    for (const auto &library : libraries_) {
        if (library->links.empty() || library->is_requested)
            continue;
        forget_ended_users(*library);
        if (library->users.empty() && (found == nullptr || since(*library) < since(*found)))
            found = library.get();
    }
    return found;
}

// rearm_mappings emits later mappings; release_due finds earlier ones.
bool NcclLibraries::make_room() {
    while (NcclLibrary *unused = longest_unused()) {
        if (rearm_mappings_)
            rearm_mappings_(inodes_of(*unused));
        unused->is_due = true;
        release_due();
        if (unused->links.empty())
            return true;
    }
    return false;
}

// The time or size may change without the code (touch, a remote file system), and the code without
// the time (rsync --times).
bool NcclLibraries::matches_its_layout(NcclLibrary &library) const {
    const auto now = library.file.status();
    if (now == library.status)
        return true;
    const process::FileIdentity &before = library.status.identity;
    if (!now || now->identity.device != before.device || now->identity.inode != before.inode)
        return false;
    auto layout = layout_of(library);
    if (!layout)
        return false;
    layout->file = library.path;
    if (nccl::render_json(*layout, "") != nccl::render_json(library.layout, ""))
        return false;
    adopt_status(library, *now);
    return !has_lost_breakpoints(library);
}

// The other names may be of this file, with its new time, or of copies with the old one.
void NcclLibraries::adopt_status(NcclLibrary &library, const process::FileStatus &now) {
    const process::FileIdentity before = std::exchange(library.status, now).identity;
    if (now.identity == before)
        return;
    const auto names = std::exchange(library.names, {now.identity});
    for (process::FileIdentity name : names) {
        if (name == before)
            continue;
        library.names.insert(name);
        if (name.written_ns == before.written_ns) {
            name.written_ns = now.identity.written_ns;
            library.names.insert(name);
        }
    }
}

void NcclLibraries::release(NcclLibrary &library) {
    loader::take_off(links_of(library), silent_users_of_probed());
    library.links.clear();
    library.programs.reset();
    for (source::PlannedProbe &probe : library.probes)
        probe.placed = false;
    library.file = process::MappedFile{};
    library.names.clear();
    library.users.clear();
    library.is_due = false;
    library.found_in.reset();
    for (const auto &[file, pid] : refused_) {
        retry_pids_.insert(pid);
        retry_inodes_.insert(file.inode);
    }
    refused_.clear();
}

void NcclLibraries::find_users() {
    for (const pid_t pid : processes()) {
        process::ProcessView view{pid};
        if (!view.refresh())
            continue;
        for (const process::Mapping &mapping : view.mappings())
            if (NcclLibrary *library = mapping.executable ? library_of(pid, mapping) : nullptr)
                add_user(*library, pid);
    }
}

void NcclLibraries::release_due() {
    std::vector<NcclLibrary *> due;
    for (const auto &library : libraries_)
        if (std::exchange(library->is_due, false))
            due.push_back(library.get());
    if (!due.empty())
        find_users(); // that mapped it without a record
    for (NcclLibrary *library : due)
        if (library->users.empty())
            release(*library);
}

NcclLibraries::Inodes NcclLibraries::release_unused(std::uint64_t now_ns) {
    Inodes anew;
    for (const auto &library : libraries_)
        if (!library->links.empty() && !matches_its_layout(*library)) {
            library->problem = "was written again while it was probed: its processes are no longer "
                               "recorded. Fix: install to a new file and rename it";
            anew.merge(inodes_of(*library));
            release(*library);
        }
    release_due();
    anew.merge(std::exchange(retry_inodes_, {}));
    if (now_ns - checked_unused_ns_ < spare_unused_ns_)
        return anew;
    checked_unused_ns_ = now_ns;
    for (const auto &library : libraries_) {
        const bool is_waiting = library->links.empty() && library->problem.empty();
        if (library->names.empty() || is_waiting)
            continue;
        const bool was_used = forget_ended_users(*library);
        if (!library->users.empty()) {
            library->unused_since_ns = 0;
        } else if (library->unused_since_ns == 0 || was_used) {
            library->unused_since_ns = now_ns;
        } else if (!library->stays || is_deleted(*library)) {
            library->is_due = true;
            anew.merge(inodes_of(*library));
        }
    }
    return anew;
}

} // namespace collwire::sources
