// SPDX-License-Identifier: Apache-2.0
// NcclLibraries: finds the mapped files that are NCCL.
#include "collwire/nccl_layout.h"
// After it: the skeleton names its type.
#include "nccl.skel.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "userspace/foreign/foreign.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/exported_layout.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::sources {
namespace {

constexpr std::size_t MAX_FILES = 65536;
constexpr std::chrono::milliseconds MOST_CHECKING{3'000};
// A user has named it, and waits: it may be on a network's file system that is busy, and an
// emulated CPU takes ten seconds for its types.
constexpr nccl::ReaderTimes OF_A_NAMED_FILE{.silence = std::chrono::seconds{15},
                                            .cpu = std::chrono::seconds{40}};
// Before breakpoints are placed, copies of one file cannot be recognised.
constexpr std::size_t COPIES_OF_ONE = 8;
constexpr std::uint64_t FIRST_PAUSE_NS = 5'000'000'000;
constexpr std::uint64_t LONGEST_PAUSE_NS = 600'000'000'000;
constexpr std::uint64_t MOST_SCANNING_NS = 2'000'000'000;
constexpr std::uint64_t MOST_SCANNING_IN_TICK_NS = 300'000'000;
constexpr std::byte BREAKPOINT{0xcc};

// The breakpoints of a library's probes in a mapping of its file.
struct Breakpoints {
    std::size_t n_wanted = 0;
    std::size_t n_there = 0;
    std::size_t n_other = 0; // other code; the rest is unreadable
};

Breakpoints breakpoints_in(const process::ProcessView &view, const process::Mapping &mapping,
                           const NcclLibrary &library) {
    Breakpoints found;
    for (const source::PlannedProbe &probe : library.probes) {
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

} // namespace

NcclLibrary *NcclLibraries::library_of(const process::FileIdentity &file) const {
    const auto found = std::ranges::find_if(
        libraries_, [&file](const auto &library) { return library->names.contains(file); });
    return found == libraries_.end() ? nullptr : found->get();
}

NcclLibrary *NcclLibraries::library_of(pid_t pid, const process::Mapping &mapping) const {
    if (mapping.path.empty())
        return nullptr;
    const auto status = status_of(pid, mapping);
    return status ? library_of(status->identity) : nullptr;
}

void NcclLibraries::collect(pid_t pid, std::vector<Candidate> &candidates, Scanned &scanned) {
    process::ProcessView view{pid};
    const auto files = view.refresh() ? process::executable_files(view.mappings())
                                      : std::vector<process::Mapping>{};
    const auto statuses = process::statuses_of(pid, files);
    if (!foreign::answers(pid)) {
        scanned.unfinished.push_back(pid);
        return;
    }
    const auto is_unfinished = [&] {
        return !scanned.unfinished.empty() && scanned.unfinished.back() == pid;
    };
    for (std::size_t i = 0; i < files.size(); ++i) {
        const process::Mapping &mapping = files[i];
        const auto &status = statuses[i];
        if (!status)
            continue;
        const process::FileIdentity &file = status->identity;
        NcclLibrary *library = library_of(file);
        if (library != nullptr)
            add_user(*library, pid);
        if (library != nullptr || status->bytes < nccl::LEAST_FILE_BYTES ||
            not_nccl_.contains(file) || refused_.contains(file)) {
            scanned.inodes.insert({mapping.inode, file.inode});
        } else if (const auto silent = silent_files_.find(file);
                   silent != silent_files_.end() && monotonic_ns() < silent->second.again_ns) {
            if (!is_unfinished())
                scanned.unfinished.push_back(pid);
        } else if (const auto known = std::ranges::find_if(
                       candidates,
                       [&file](const Candidate &one) { return one.status.identity == file; });
                   known != candidates.end()) {
            ++known->n_users;
        } else {
            candidates.push_back(
                {pid, mapping, *status, process::MappedFile::path_of(pid, mapping)});
        }
    }
}

std::vector<pid_t> NcclLibraries::processes() const {
    return wanted_.pids.empty() ? process::all_processes()
                                : std::vector<pid_t>{wanted_.pids.begin(), wanted_.pids.end()};
}

NcclLibraries::Scanned NcclLibraries::scan(const std::vector<pid_t> &pids) {
    Scanned scanned;
    std::vector<Candidate> candidates;
    if (pids.size() > 1)
        foreign::ask(pids);
    for (const pid_t pid : pids)
        collect(pid, candidates, scanned);
    std::ranges::stable_sort(candidates, std::ranges::greater{}, &Candidate::n_users);
    std::vector<std::string> paths;
    paths.reserve(candidates.size());
    for (const Candidate &candidate : candidates)
        paths.push_back(candidate.file);
    nccl::ReaderTimes times;
    times.all = MOST_CHECKING;
    const auto checks = nccl::check_for_nccl(paths, times);
    const std::uint64_t end_ns =
        monotonic_ns() + (attached_ ? MOST_SCANNING_IN_TICK_NS : MOST_SCANNING_NS);
    n_unread_ = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const pid_t pid = candidates[i].pid;
        const bool is_late = i != 0 && monotonic_ns() >= end_ns;
        n_unread_ += is_late && checks[i].verdict == nccl::FileCheck::Verdict::Nccl ? 1 : 0;
        const std::array inodes{candidates[i].mapping.inode, candidates[i].status.identity.inode};
        if (!is_late && classify(std::move(candidates[i]), checks[i]))
            scanned.inodes.insert(inodes.begin(), inodes.end());
        else if (std::ranges::find(scanned.unfinished, pid) == scanned.unfinished.end())
            scanned.unfinished.push_back(pid);
    }
    return scanned;
}

// Its process is scanned again and again, and the file only after a pause.
void NcclLibraries::note_silent(const Candidate &candidate, std::string_view unknown) {
    if (silent_files_.size() >= MAX_FILES)
        silent_files_.clear();
    const auto [entry, is_new] = silent_files_.try_emplace(candidate.status.identity);
    SilentFile &file = entry->second;
    file.pause_ns = std::clamp(2 * file.pause_ns, FIRST_PAUSE_NS, LONGEST_PAUSE_NS);
    file.again_ns = monotonic_ns() + file.pause_ns;
    std::string text = fmt::format("process {}: {} does not answer in time: {}, and asked again "
                                   "later. Fix: check its file system",
                                   candidate.pid, candidate.mapping.path, unknown);
    if (is_new)
        foreign::add_news(text);
    add_problem(std::move(text));
}

bool NcclLibraries::classify(Candidate candidate, const nccl::FileCheck &check) {
    using enum nccl::FileCheck::Verdict;
    // Else the process has exited, or mapped another file there.
    const auto now = status_of(candidate.pid, candidate.mapping);
    const bool is_there = now && now->identity == candidate.status.identity;
    if (check.verdict == NotReached || !is_there)
        return false;
    if (check.verdict == Silent) {
        note_silent(candidate, "whether it has NCCL in it is not known");
        return false;
    }
    if (check.verdict == Nccl) {
        if (NcclLibrary *same = probed_in(candidate.pid, candidate.mapping, check.build_id)) {
            same->names.insert(candidate.status.identity);
            add_user(*same, candidate.pid);
            return true;
        }
        if (is_full() && !make_room()) {
            refuse(candidate.status.identity, candidate.pid);
            return true;
        }
        auto file = process::MappedFile::open(candidate.pid, candidate.mapping);
        const auto opened = file ? file->status() : std::nullopt;
        if (!opened || opened->identity != candidate.status.identity)
            return false;
        const auto added = add(std::move(*file), *opened, candidate.mapping.path);
        if (!added) {
            note_silent(candidate, fmt::format("where its NCCL has what is recorded is not known "
                                               "({})",
                                               added.failure().message));
            return false;
        }
        NcclLibrary *library = *added;
        silent_files_.erase(candidate.status.identity);
        add_user(*library, candidate.pid);
        const auto here = process::status_of(library->path);
        library->stays = here && here->identity == opened->identity;
        library->found_in.emplace(candidate.pid, std::move(candidate.mapping));
        if (attached_)
            place(*library);
        return true;
    }
    silent_files_.erase(candidate.status.identity);
    if (check.verdict != Other)
        add_problem(fmt::format("{}: {}: cannot determine whether it is NCCL",
                                candidate.mapping.path,
                                check.verdict == Unopened ? "cannot be opened" : check.problem));
    if (not_nccl_.size() >= MAX_FILES)
        not_nccl_.clear();
    not_nccl_.insert(candidate.status.identity);
    return true;
}

Result<void> NcclLibraries::add_file(const std::string &path) {
    auto file = process::MappedFile::open(path);
    if (!file)
        return std::move(file).failure();
    const auto status = file->status();
    if (status && library_of(status->identity) != nullptr)
        return {};
    using enum nccl::FileCheck::Verdict;
    const auto check = nccl::check_for_nccl(std::vector{file->own_path()}, OF_A_NAMED_FILE).front();
    if (check.verdict == Silent || check.verdict == NotReached)
        return error(
            ErrorKind::Failed,
            fmt::format("{}: its file system does not answer, every CPU is busy, or memory is "
                        "short. Fix: record again, or name another copy",
                        path));
    if (check.verdict != Nccl)
        return error(ErrorKind::BadInput,
                     fmt::format("{}: {}not NCCL. Fix: name libnccl.so.2, or the library that it "
                                 "was linked into",
                                 path, check.problem.empty() ? "" : check.problem + ": "));
    if (!status)
        return error(ErrorKind::BadInput, fmt::format("{}: not a regular file", path));
    auto added = add(std::move(*file), *status, path, OF_A_NAMED_FILE);
    // A reader may be killed, or wait for a disk, once in a thousand times.
    if (!added)
        if (auto again = process::MappedFile::open(path))
            added = add(std::move(*again), *status, path, OF_A_NAMED_FILE);
    if (!added)
        return std::move(added).failure().in(path);
    NcclLibrary &library = **added;
    library.stays = true;
    library.is_requested = true;
    if (attached_)
        place(library);
    return {};
}

Result<nccl::LibraryLayout> NcclLibraries::layout_of(const NcclLibrary &library,
                                                     const nccl::ReaderTimes &times) const {
    const std::string opened = library.file.own_path();
    auto layout = nccl::layout_of_file(opened, {library.path, wanted_.symbols}, false, times);
    if (!layout) { // the path of a descriptor of ours says nothing to a user
        Error why = std::move(layout).failure();
        if (const std::string in = opened + ": "; why.message.starts_with(in))
            why.message.erase(0, in.size());
        return why;
    }
    if (layout && !layout->calls_only.empty())
        nccl::keep_exported(*layout);
    return layout;
}

Result<NcclLibrary *> NcclLibraries::add(process::MappedFile file,
                                         const process::FileStatus &status, std::string path,
                                         const nccl::ReaderTimes &times) {
    auto library = std::make_unique<NcclLibrary>();
    library->id = ++last_id_;
    library->status = status;
    library->names.insert(status.identity);
    library->path = std::move(path);
    library->file = std::move(file);
    auto layout = layout_of(*library, times);
    if (!layout && layout.failure().kind == ErrorKind::Failed)
        return std::move(layout).failure();
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
        library->file = process::MappedFile{};
    libraries_.push_back(std::move(library));
    return libraries_.back().get();
}

// Recognised by the breakpoints in memory: the kernel does not say which file is below a
// container's overlay.
NcclLibrary *NcclLibraries::probed_in(pid_t pid, const process::Mapping &mapping,
                                      std::string_view build_id) const {
    const process::ProcessView view{pid};
    for (const auto &library : libraries_) {
        if (library->links.empty() || library->layout.build_id != build_id)
            continue;
        const Breakpoints found = breakpoints_in(view, mapping, *library);
        if (found.n_wanted != 0 && found.n_there == found.n_wanted)
            return library.get();
    }
    return nullptr;
}

// If a file is written from its start (cp), processes lose its pages, and the breakpoints in them.
bool NcclLibraries::has_lost_breakpoints(const NcclLibrary &library) const {
    for (const auto &[pid, start] : library.users) {
        process::ProcessView view{pid};
        if (!view.refresh())
            continue;
        for (const process::Mapping &mapping : view.mappings())
            if (mapping.executable && library_of(pid, mapping) == &library &&
                breakpoints_in(view, mapping, library).n_other != 0)
                return true;
    }
    return false;
}

void NcclLibraries::add_user(NcclLibrary &library, pid_t pid) {
    if (library.users.contains(pid))
        return;
    if (const auto start = process::start_ticks(pid)) {
        library.users.emplace(pid, *start);
        library.unused_since_ns = 0;
    }
}

std::size_t NcclLibraries::n_probed() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        libraries_, [](const auto &library) { return !library->links.empty(); }));
}

std::size_t NcclLibraries::n_waiting() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(libraries_, [](const auto &library) { return library->is_waiting; }));
}

bool NcclLibraries::is_full() const {
    const auto n_open = std::ranges::count_if(
        libraries_, [](const auto &library) { return library->file.is_open(); });
    return static_cast<std::size_t>(n_open) >=
           max_probed_ * (attached_ ? std::size_t{1} : COPIES_OF_ONE);
}

void NcclLibraries::refuse(const process::FileIdentity &file, pid_t pid) {
    add_problem(fmt::format("{} files with NCCL are probed, which is the limit: the others are not "
                            "recorded. Fix: --pid",
                            max_probed_));
    if (refused_.size() >= MAX_FILES)
        refused_.clear();
    refused_.insert_or_assign(file, pid);
}

// Libraries that were found before attach().
void NcclLibraries::refuse_the_rest() {
    std::erase_if(libraries_, [this](const auto &library) {
        if (!library->found_in || library->is_waiting || library->placed_ns != 0 ||
            !library->problem.empty())
            return false;
        for (const process::FileIdentity &name : library->names)
            refuse(name, library->found_in->first);
        return true;
    });
}

// Libraries that were found before attach().
void NcclLibraries::merge_copies() {
    std::erase_if(libraries_, [this](const auto &library) {
        if (!library->found_in || !library->links.empty())
            return false;
        const auto &[pid, mapping] = *library->found_in;
        NcclLibrary *same = probed_in(pid, mapping, library->layout.build_id);
        if (same == nullptr)
            return false;
        same->names.insert(library->names.begin(), library->names.end());
        same->users.insert(library->users.begin(), library->users.end());
        return true;
    });
}

} // namespace collwire::sources
