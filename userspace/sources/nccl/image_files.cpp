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
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/sources/nccl/images.h"

namespace collwire {
namespace {

constexpr std::size_t MAX_OTHERS = 65536;
// Before there are breakpoints nothing tells that several are one file.
constexpr std::size_t COPIES_OF_ONE = 8;
constexpr std::byte BREAKPOINT{0xcc};

// Of an image's probes, in a mapping of its file.
struct Breakpoints {
    std::size_t n_wanted = 0;
    std::size_t n_there = 0;
    std::size_t n_other = 0; // something else is there; the rest could not be read
};

Breakpoints breakpoints_in(const ProcessView &view, const Mapping &mapping,
                           const NcclImage &image) {
    Breakpoints found;
    for (const PlannedProbe &probe : image.probes) {
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

bool is_deleted(const NcclImage &image) {
    const auto status = image.file.is_open() ? image.file.status() : status_of(image.path);
    return !status || status->n_names == 0 ||
           (!image.file.is_open() && !image.names.contains(status->identity));
}

NcclImages::Inodes inodes_of(const NcclImage &image) {
    NcclImages::Inodes inodes;
    for (const FileIdentity &name : image.names)
        inodes.insert(name.inode);
    return inodes;
}

// Whether there were any.
bool forget_ended_users(NcclImage &image) {
    return std::erase_if(image.users, [](const auto &user) {
               return start_ticks(user.first) != user.second;
           }) != 0;
}

} // namespace

NcclImage *NcclImages::image_of(const FileIdentity &file) const {
    const auto found = std::ranges::find_if(
        images_, [&file](const auto &image) { return image->names.contains(file); });
    return found == images_.end() ? nullptr : found->get();
}

NcclImage *NcclImages::image_of(pid_t pid, const Mapping &mapping) const {
    if (mapping.path.empty())
        return nullptr;
    const auto status = status_of(pid, mapping);
    return status ? image_of(status->identity) : nullptr;
}

void NcclImages::collect(pid_t pid, std::vector<Candidate> &candidates, Looked &looked) {
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
        NcclImage *image = image_of(file);
        if (image != nullptr)
            note_user(*image, pid);
        if (image != nullptr || status->bytes < nccl::LEAST_FILE_BYTES || others_.contains(file) ||
            refused_.contains(file)) {
            looked.inodes.insert({mapping.inode, file.inode});
        } else if (std::ranges::none_of(candidates, [&file](const Candidate &known) {
                       return known.status.identity == file;
                   })) {
            candidates.push_back({pid, mapping, *status, MappedFile::path_of(pid, mapping)});
        }
    }
}

std::vector<pid_t> NcclImages::processes() const {
    return wanted_.pids.empty() ? all_processes()
                                : std::vector<pid_t>{wanted_.pids.begin(), wanted_.pids.end()};
}

NcclImages::Looked NcclImages::look_at(const std::vector<pid_t> &pids) {
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

bool NcclImages::judge(Candidate candidate, const nccl::FileLook &look) {
    using enum nccl::FileLook::Verdict;
    // Otherwise the process has ended, or mapped another file in its place.
    const auto now = status_of(candidate.pid, candidate.mapping);
    const bool is_there = now && now->identity == candidate.status.identity;
    if (look.verdict == NotReached || !is_there)
        return false;
    if (look.verdict == Nccl) {
        if (NcclImage *same = probed_in(candidate.pid, candidate.mapping, look.build_id)) {
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
        NcclImage *image = add(std::move(*file), *opened, candidate.mapping.path);
        if (image == nullptr)
            return false;
        note_user(*image, candidate.pid);
        const auto here = status_of(image->path);
        image->stays = here && here->identity == opened->identity;
        image->met.emplace(candidate.pid, std::move(candidate.mapping));
        if (attached_)
            place(*image);
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

Result<void> NcclImages::add_file(const std::string &path) {
    auto file = MappedFile::open(path);
    if (!file)
        return std::move(file).failure();
    const auto status = file->status();
    if (status && image_of(status->identity) != nullptr)
        return {};
    const auto look = nccl::look_for_nccl(std::vector{file->own_path()}).front();
    if (look.verdict != nccl::FileLook::Verdict::Nccl)
        return error(ErrorKind::BadInput,
                     fmt::format("{}: {}not NCCL. Fix: name libnccl.so.2, or the library that it "
                                 "was linked into",
                                 path, look.problem.empty() ? "" : look.problem + ": "));
    if (!status)
        return error(ErrorKind::BadInput, fmt::format("{}: not a regular file", path));
    NcclImage *image = add(std::move(*file), *status, path);
    if (image == nullptr)
        return error(ErrorKind::Failed, fmt::format("{}: no process to read it with", path));
    image->stays = true;
    image->is_asked_for = true;
    if (attached_)
        place(*image);
    return {};
}

Result<nccl::LibraryLayout> NcclImages::layout_of(const NcclImage &image) const {
    return nccl::layout_of_file(image.file.own_path(), {image.path, wanted_.symbols});
}

NcclImage *NcclImages::add(MappedFile file, const FileStatus &status, std::string path) {
    auto image = std::make_unique<NcclImage>();
    image->id = ++last_id_;
    image->status = status;
    image->names.insert(status.identity);
    image->path = std::move(path);
    image->file = std::move(file);
    auto layout = layout_of(*image);
    if (!layout && layout.failure().kind == ErrorKind::Failed)
        return nullptr;
    if (layout) {
        image->layout = std::move(*layout);
        image->layout.file = image->path;
        image->problem = image->layout.not_recorded;
    } else {
        image->problem = std::move(layout).failure().message;
    }
    if (image->problem.empty())
        list_probes(*image);
    else
        image->file = MappedFile{};
    images_.push_back(std::move(image));
    return images_.back().get();
}

// By their breakpoints in memory: what files of a container are below its overlay nobody tells.
NcclImage *NcclImages::probed_in(pid_t pid, const Mapping &mapping,
                                 std::string_view build_id) const {
    const ProcessView view{pid};
    for (const auto &image : images_) {
        if (image->links.empty() || image->layout.build_id != build_id)
            continue;
        const Breakpoints found = breakpoints_in(view, mapping, *image);
        if (found.n_wanted != 0 && found.n_there == found.n_wanted)
            return image.get();
    }
    return nullptr;
}

// A file that is written from its beginning (cp) loses the pages that processes have of it, and the
// breakpoints with them.
bool NcclImages::has_lost_breakpoints(const NcclImage &image) const {
    for (const auto &[pid, start] : image.users) {
        ProcessView view{pid};
        if (!view.refresh())
            continue;
        for (const Mapping &mapping : view.mappings())
            if (mapping.executable && image_of(pid, mapping) == &image &&
                breakpoints_in(view, mapping, image).n_other != 0)
                return true;
    }
    return false;
}

void NcclImages::note_user(NcclImage &image, pid_t pid) {
    if (image.users.contains(pid))
        return;
    if (const auto start = start_ticks(pid)) {
        image.users.emplace(pid, *start);
        image.unused_since_ns = 0;
    }
}

std::size_t NcclImages::n_probed() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(images_, [](const auto &image) { return !image->links.empty(); }));
}

bool NcclImages::is_full() const {
    const auto n_open =
        std::ranges::count_if(images_, [](const auto &image) { return image->file.is_open(); });
    return static_cast<std::size_t>(n_open) >=
           max_probed_ * (attached_ ? std::size_t{1} : COPIES_OF_ONE);
}

NcclImage *NcclImages::longest_unused() const {
    // Of those that were used at the last look, 0 is behind all others.
    const auto since = [](const NcclImage &image) { return image.unused_since_ns - 1; };
    NcclImage *found = nullptr;
    for (const auto &image : images_) {
        if (image->links.empty() || image->is_asked_for)
            continue;
        forget_ended_users(*image);
        if (image->users.empty() && (found == nullptr || since(*image) < since(*found)))
            found = image.get();
    }
    return found;
}

// Who maps it behind tell_again is told of, who did before is found by let_go_due.
bool NcclImages::make_room() {
    while (NcclImage *unused = longest_unused()) {
        if (tell_again_)
            tell_again_(inodes_of(*unused));
        unused->is_due = true;
        let_go_due();
        if (unused->links.empty())
            return true;
    }
    return false;
}

void NcclImages::refuse(const FileIdentity &file, pid_t pid) {
    keep_problem(fmt::format("{} files with NCCL are probed, and more are mapped: those are not "
                             "traced. Fix: --pid",
                             max_probed_));
    if (refused_.size() >= MAX_OTHERS)
        refused_.clear();
    refused_.insert_or_assign(file, pid);
}

// Those found before there were probes.
void NcclImages::refuse_the_rest() {
    std::erase_if(images_, [this](const auto &image) {
        if (!image->met || image->placed_ns != 0 || !image->problem.empty())
            return false;
        for (const FileIdentity &name : image->names)
            refuse(name, image->met->first);
        return true;
    });
}

// Another time of writing, or another size, may be the same code (touch, a file system of other
// machines), and without one the code may be another (rsync --times).
bool NcclImages::matches_its_layout(NcclImage &image) const {
    const auto now = image.file.status();
    if (now == image.status)
        return true;
    const FileIdentity &before = image.status.identity;
    if (!now || now->identity.device != before.device || now->identity.inode != before.inode)
        return false;
    auto layout = layout_of(image);
    if (!layout)
        return false;
    layout->file = image.path;
    if (nccl::render_json(*layout, "") != nccl::render_json(image.layout, ""))
        return false;
    take_over(image, *now);
    return !has_lost_breakpoints(image);
}

// The other names may be of this file, and have its new time, or of copies that have not.
void NcclImages::take_over(NcclImage &image, const FileStatus &now) {
    const FileIdentity before = std::exchange(image.status, now).identity;
    if (now.identity == before)
        return;
    const auto names = std::exchange(image.names, {now.identity});
    for (FileIdentity name : names) {
        if (name == before)
            continue;
        image.names.insert(name);
        if (name.written_ns == before.written_ns) {
            name.written_ns = now.identity.written_ns;
            image.names.insert(name);
        }
    }
}

void NcclImages::give_up(NcclImage &image) {
    take_off(image.links);
    image.links.clear();
    image.programs.reset();
    for (PlannedProbe &probe : image.probes)
        probe.placed = false;
    image.file = MappedFile{};
    image.names.clear();
    image.users.clear();
    image.is_due = false;
    image.met.reset();
    for (const auto &[file, pid] : refused_) {
        with_room_.insert(pid);
        with_room_inodes_.insert(file.inode);
    }
    refused_.clear();
}

void NcclImages::find_users() {
    for (const pid_t pid : processes()) {
        ProcessView view{pid};
        if (!view.refresh())
            continue;
        for (const Mapping &mapping : view.mappings())
            if (NcclImage *image = mapping.executable ? image_of(pid, mapping) : nullptr)
                note_user(*image, pid);
    }
}

void NcclImages::let_go_due() {
    std::vector<NcclImage *> due;
    for (const auto &image : images_)
        if (std::exchange(image->is_due, false))
            due.push_back(image.get());
    if (!due.empty())
        find_users(); // that mapped it without being told of
    for (NcclImage *image : due)
        if (image->users.empty())
            give_up(*image);
}

NcclImages::Inodes NcclImages::give_up(std::uint64_t now_ns) {
    Inodes anew;
    for (const auto &image : images_)
        if (!image->links.empty() && !matches_its_layout(*image)) {
            image->problem = "was written again while its probes were in it: what runs with it is "
                             "not recorded any more. Fix: install to a new file and rename it";
            anew.merge(inodes_of(*image));
            give_up(*image);
        }
    let_go_due();
    anew.merge(std::exchange(with_room_inodes_, {}));
    if (now_ns - looked_for_unused_ns_ < spare_unused_ns_)
        return anew;
    looked_for_unused_ns_ = now_ns;
    for (const auto &image : images_) {
        const bool is_waiting = image->links.empty() && image->problem.empty();
        if (image->names.empty() || is_waiting)
            continue;
        const bool was_used = forget_ended_users(*image);
        if (!image->users.empty()) {
            image->unused_since_ns = 0;
        } else if (image->unused_since_ns == 0 || was_used) {
            image->unused_since_ns = now_ns;
        } else if (!image->stays || is_deleted(*image)) {
            image->is_due = true;
            anew.merge(inodes_of(*image));
        }
    }
    return anew;
}

// Those found before there were probes.
void NcclImages::become_one() {
    std::erase_if(images_, [this](const auto &image) {
        if (!image->met || !image->links.empty())
            return false;
        const auto &[pid, mapping] = *image->met;
        NcclImage *same = probed_in(pid, mapping, image->layout.build_id);
        if (same == nullptr)
            return false;
        same->names.insert(image->names.begin(), image->names.end());
        same->users.insert(image->users.begin(), image->users.end());
        return true;
    });
}

} // namespace collwire
