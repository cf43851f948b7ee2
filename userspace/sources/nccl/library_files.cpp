// SPDX-License-Identifier: Apache-2.0
// Which of the files that processes have mapped are NCCL, and for how long.
#include "collwire/nccl_layout.h"
// Behind it: the skeleton names its type.
#include "nccl.skel.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "userspace/loader/take_off.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::sources {
namespace {

constexpr std::size_t MAX_OTHERS = 65536;
// Before there are breakpoints nothing tells that several are one file.
constexpr std::size_t COPIES_OF_ONE = 8;
constexpr std::byte BREAKPOINT{0xcc};

// Of a library's probes, in a mapping of its file.
struct Breakpoints {
    std::size_t n_wanted = 0;
    std::size_t n_there = 0;
    std::size_t n_other = 0; // something else is there; the rest could not be read
};

Breakpoints breakpoints_in(const ProcessView &view, const Mapping &mapping,
                           const NcclLibrary &library) {
    Breakpoints found;
    for (const PlannedProbe &probe : library.probes) {
        if (!probe.placed || probe.offset_bytes < mapping.file_offset ||
            probe.offset_bytes - mapping.file_offset >= mapping.end - mapping.begin)
            continue;
        ++found.n_wanted;
        const auto code =
            view.read<std::byte>(mapping.begin + (probe.offset_bytes - mapping.file_offset));
        if (code)
            ++(*code == BREAKPOINT ? found.n_there : found.n_other);
    }
    return found;
}

bool is_deleted(const NcclLibrary &library) {
    const auto status = library.file.is_open() ? library.file.status() : status_of(library.path);
    return !status || status->n_names == 0 ||
           (!library.file.is_open() && !library.names.contains(status->identity));
}

NcclLibraries::Inodes inodes_of(const NcclLibrary &library) {
    NcclLibraries::Inodes inodes;
    for (const FileIdentity &name : library.names)
        inodes.insert(name.inode);
    return inodes;
}

// Whether there were any.
bool forget_ended_users(NcclLibrary &library) {
    return std::erase_if(library.users, [](const auto &user) {
               return start_ticks(user.first) != user.second;
           }) != 0;
}

} // namespace

NcclLibrary *NcclLibraries::library_of(const FileIdentity &file) const {
    const auto found = std::ranges::find_if(
        libraries_, [&file](const auto &library) { return library->names.contains(file); });
    return found == libraries_.end() ? nullptr : found->get();
}

NcclLibrary *NcclLibraries::library_of(pid_t pid, const Mapping &mapping) const {
    if (mapping.path.empty())
        return nullptr;
    const auto status = status_of(pid, mapping);
    return status ? library_of(status->identity) : nullptr;
}

void NcclLibraries::collect(pid_t pid, std::vector<Candidate> &candidates, Looked &looked) {
    ProcessView view{pid};
    if (!view.refresh())
        return;
    for (const Mapping &mapping : view.mappings()) {
        if (!mapping.executable || mapping.inode == 0 || mapping.path.empty())
            continue;
        const auto status = status_of(pid, mapping);
        if (!status)
            continue;
        const FileIdentity &file = status->identity;
        NcclLibrary *library = library_of(file);
        if (library != nullptr)
            note_user(*library, pid);
        if (library != nullptr || status->bytes < nccl::LEAST_FILE_BYTES ||
            others_.contains(file) || refused_.contains(file)) {
            looked.inodes.insert({mapping.inode, file.inode});
        } else if (std::ranges::none_of(candidates, [&file](const Candidate &known) {
                       return known.status.identity == file;
                   })) {
            candidates.push_back({pid, mapping, *status, MappedFile::path_of(pid, mapping)});
        }
    }
}

std::vector<pid_t> NcclLibraries::processes() const {
    return wanted_.pids.empty() ? all_processes()
                                : std::vector<pid_t>{wanted_.pids.begin(), wanted_.pids.end()};
}

NcclLibraries::Looked NcclLibraries::look_at(const std::vector<pid_t> &pids) {
    Looked looked;
    std::vector<Candidate> candidates;
    for (const pid_t pid : pids)
        collect(pid, candidates, looked);
    std::vector<std::string> paths;
    paths.reserve(candidates.size());
    for (const Candidate &candidate : candidates)
        paths.push_back(candidate.file);
    const auto looks = nccl::look_for_nccl(paths);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const pid_t pid = candidates[i].pid;
        const std::array inodes{candidates[i].mapping.inode, candidates[i].status.identity.inode};
        if (judge(std::move(candidates[i]), looks[i]))
            looked.inodes.insert(inodes.begin(), inodes.end());
        else if (std::ranges::find(looked.again, pid) == looked.again.end())
            looked.again.push_back(pid);
    }
    return looked;
}

bool NcclLibraries::judge(Candidate candidate, const nccl::FileLook &look) {
    using enum nccl::FileLook::Verdict;
    // Otherwise the process has ended, or mapped another file in its place.
    const auto now = status_of(candidate.pid, candidate.mapping);
    const bool is_there = now && now->identity == candidate.status.identity;
    if (look.verdict == NotReached || !is_there)
        return false;
    if (look.verdict == Nccl) {
        if (NcclLibrary *same = probed_in(candidate.pid, candidate.mapping, look.build_id)) {
            same->names.insert(candidate.status.identity);
            note_user(*same, candidate.pid);
            return true;
        }
        if (is_full() && !make_room()) {
            refuse(candidate.status.identity, candidate.pid);
            return true;
        }
        auto file = MappedFile::open(candidate.pid, candidate.mapping);
        const auto opened = file ? file->status() : std::nullopt;
        if (!opened || opened->identity != candidate.status.identity)
            return false;
        NcclLibrary *library = add(std::move(*file), *opened, candidate.mapping.path);
        if (library == nullptr)
            return false;
        note_user(*library, candidate.pid);
        const auto here = status_of(library->path);
        library->stays = here && here->identity == opened->identity;
        library->met.emplace(candidate.pid, std::move(candidate.mapping));
        if (attached_)
            place(*library);
        return true;
    }
    if (look.verdict != Other)
        keep_problem(fmt::format("{}: {}: whether it has NCCL in it is not known",
                                 candidate.mapping.path,
                                 look.verdict == Unopened ? "cannot be opened" : look.problem));
    if (others_.size() >= MAX_OTHERS)
        others_.clear();
    others_.insert(candidate.status.identity);
    return true;
}

Result<void> NcclLibraries::add_file(const std::string &path) {
    auto file = MappedFile::open(path);
    if (!file)
        return std::move(file).failure();
    const auto status = file->status();
    if (status && library_of(status->identity) != nullptr)
        return {};
    const auto look = nccl::look_for_nccl(std::vector{file->own_path()}).front();
    if (look.verdict != nccl::FileLook::Verdict::Nccl)
        return error(ErrorKind::BadInput,
                     fmt::format("{}: {}not NCCL. Fix: name libnccl.so.2, or the library that it "
                                 "was linked into",
                                 path, look.problem.empty() ? "" : look.problem + ": "));
    if (!status)
        return error(ErrorKind::BadInput, fmt::format("{}: not a regular file", path));
    NcclLibrary *library = add(std::move(*file), *status, path);
    if (library == nullptr)
        return error(ErrorKind::Failed, fmt::format("{}: no process to read it with", path));
    library->stays = true;
    library->is_asked_for = true;
    if (attached_)
        place(*library);
    return {};
}

Result<nccl::LibraryLayout> NcclLibraries::layout_of(const NcclLibrary &library) const {
    return nccl::layout_of_file(library.file.own_path(), {library.path, wanted_.symbols});
}

NcclLibrary *NcclLibraries::add(MappedFile file, const FileStatus &status, std::string path) {
    auto library = std::make_unique<NcclLibrary>();
    library->id = ++last_id_;
    library->status = status;
    library->names.insert(status.identity);
    library->path = std::move(path);
    library->file = std::move(file);
    auto layout = layout_of(*library);
    if (!layout && layout.failure().kind == ErrorKind::Failed)
        return nullptr;
    if (layout) {
        library->layout = std::move(*layout);
        library->layout.file = library->path;
        library->problem = library->layout.not_recorded;
        if (const auto bpf_layout = nccl::bpf_layout_of(library->layout, library->id))
            library->bpf_layout = *bpf_layout;
    } else {
        library->problem = std::move(layout).failure().message;
    }
    if (library->problem.empty())
        list_probes(*library);
    else
        library->file = MappedFile{};
    libraries_.push_back(std::move(library));
    return libraries_.back().get();
}

// By their breakpoints in memory: what files of a container are below its overlay nobody tells.
NcclLibrary *NcclLibraries::probed_in(pid_t pid, const Mapping &mapping,
                                      std::string_view build_id) const {
    const ProcessView view{pid};
    for (const auto &library : libraries_) {
        if (library->links.empty() || library->layout.build_id != build_id)
            continue;
        const Breakpoints found = breakpoints_in(view, mapping, *library);
        if (found.n_wanted != 0 && found.n_there == found.n_wanted)
            return library.get();
    }
    return nullptr;
}

// A file that is written from its beginning (cp) loses the pages that processes have of it, and the
// breakpoints with them.
bool NcclLibraries::has_lost_breakpoints(const NcclLibrary &library) const {
    for (const auto &[pid, start] : library.users) {
        ProcessView view{pid};
        if (!view.refresh())
            continue;
        for (const Mapping &mapping : view.mappings())
            if (mapping.executable && library_of(pid, mapping) == &library &&
                breakpoints_in(view, mapping, library).n_other != 0)
                return true;
    }
    return false;
}

void NcclLibraries::note_user(NcclLibrary &library, pid_t pid) {
    if (library.users.contains(pid))
        return;
    if (const auto start = start_ticks(pid)) {
        library.users.emplace(pid, *start);
        library.unused_since_ns = 0;
    }
}

std::size_t NcclLibraries::n_probed() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        libraries_, [](const auto &library) { return !library->links.empty(); }));
}

bool NcclLibraries::is_full() const {
    const auto n_open = std::ranges::count_if(
        libraries_, [](const auto &library) { return library->file.is_open(); });
    return static_cast<std::size_t>(n_open) >=
           max_probed_ * (attached_ ? std::size_t{1} : COPIES_OF_ONE);
}

NcclLibrary *NcclLibraries::longest_unused() const {
    // Of those that were used at the last look, 0 is behind all others.
    const auto since = [](const NcclLibrary &library) { return library.unused_since_ns - 1; };
    NcclLibrary *found = nullptr;
    for (const auto &library : libraries_) {
        if (library->links.empty() || library->is_asked_for)
            continue;
        forget_ended_users(*library);
        if (library->users.empty() && (found == nullptr || since(*library) < since(*found)))
            found = library.get();
    }
    return found;
}

// Who maps it behind tell_again is told of, who did before is found by let_go_due.
bool NcclLibraries::make_room() {
    while (NcclLibrary *unused = longest_unused()) {
        if (tell_again_)
            tell_again_(inodes_of(*unused));
        unused->is_due = true;
        let_go_due();
        if (unused->links.empty())
            return true;
    }
    return false;
}

void NcclLibraries::refuse(const FileIdentity &file, pid_t pid) {
    keep_problem(fmt::format("{} files with NCCL are probed, and more are mapped: those are not "
                             "traced. Fix: --pid",
                             max_probed_));
    if (refused_.size() >= MAX_OTHERS)
        refused_.clear();
    refused_.insert_or_assign(file, pid);
}

// Those found before there were probes.
void NcclLibraries::refuse_the_rest() {
    std::erase_if(libraries_, [this](const auto &library) {
        if (!library->met || library->placed_ns != 0 || !library->problem.empty())
            return false;
        for (const FileIdentity &name : library->names)
            refuse(name, library->met->first);
        return true;
    });
}

// Another time of writing, or another size, may be the same code (touch, a file system of other
// machines), and without one the code may be another (rsync --times).
bool NcclLibraries::matches_its_layout(NcclLibrary &library) const {
    const auto now = library.file.status();
    if (now == library.status)
        return true;
    const FileIdentity &before = library.status.identity;
    if (!now || now->identity.device != before.device || now->identity.inode != before.inode)
        return false;
    auto layout = layout_of(library);
    if (!layout)
        return false;
    layout->file = library.path;
    if (nccl::render_json(*layout, "") != nccl::render_json(library.layout, ""))
        return false;
    take_over(library, *now);
    return !has_lost_breakpoints(library);
}

// The other names may be of this file, and have its new time, or of copies that have not.
void NcclLibraries::take_over(NcclLibrary &library, const FileStatus &now) {
    const FileIdentity before = std::exchange(library.status, now).identity;
    if (now.identity == before)
        return;
    const auto names = std::exchange(library.names, {now.identity});
    for (FileIdentity name : names) {
        if (name == before)
            continue;
        library.names.insert(name);
        if (name.written_ns == before.written_ns) {
            name.written_ns = now.identity.written_ns;
            library.names.insert(name);
        }
    }
}

void NcclLibraries::give_up(NcclLibrary &library) {
    take_off(library.links);
    library.links.clear();
    library.programs.reset();
    for (PlannedProbe &probe : library.probes)
        probe.placed = false;
    library.file = MappedFile{};
    library.names.clear();
    library.users.clear();
    library.is_due = false;
    library.met.reset();
    for (const auto &[file, pid] : refused_) {
        with_room_.insert(pid);
        with_room_inodes_.insert(file.inode);
    }
    refused_.clear();
}

void NcclLibraries::find_users() {
    for (const pid_t pid : processes()) {
        ProcessView view{pid};
        if (!view.refresh())
            continue;
        for (const Mapping &mapping : view.mappings())
            if (NcclLibrary *library = mapping.executable ? library_of(pid, mapping) : nullptr)
                note_user(*library, pid);
    }
}

void NcclLibraries::let_go_due() {
    std::vector<NcclLibrary *> due;
    for (const auto &library : libraries_)
        if (std::exchange(library->is_due, false))
            due.push_back(library.get());
    if (!due.empty())
        find_users(); // that mapped it without being told of
    for (NcclLibrary *library : due)
        if (library->users.empty())
            give_up(*library);
}

NcclLibraries::Inodes NcclLibraries::give_up(std::uint64_t now_ns) {
    Inodes anew;
    for (const auto &library : libraries_)
        if (!library->links.empty() && !matches_its_layout(*library)) {
            library->problem =
                "was written again while its probes were in it: what runs with it is "
                "not recorded any more. Fix: install to a new file and rename it";
            anew.merge(inodes_of(*library));
            give_up(*library);
        }
    let_go_due();
    anew.merge(std::exchange(with_room_inodes_, {}));
    if (now_ns - looked_for_unused_ns_ < spare_unused_ns_)
        return anew;
    looked_for_unused_ns_ = now_ns;
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

// Those found before there were probes.
void NcclLibraries::become_one() {
    std::erase_if(libraries_, [this](const auto &library) {
        if (!library->met || !library->links.empty())
            return false;
        const auto &[pid, mapping] = *library->met;
        NcclLibrary *same = probed_in(pid, mapping, library->layout.build_id);
        if (same == nullptr)
            return false;
        same->names.insert(library->names.begin(), library->names.end());
        same->users.insert(library->users.begin(), library->users.end());
        return true;
    });
}

} // namespace collwire::sources
