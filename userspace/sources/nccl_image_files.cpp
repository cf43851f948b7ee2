// SPDX-License-Identifier: Apache-2.0
// Which of the files that processes have mapped are NCCL.
#include "collwire/nccl_layout.h"
// Behind it: the skeleton names its type.
#include "nccl.skel.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "userspace/nccl/file_plan.h"
#include "userspace/sources/nccl_images.h"

namespace collwire {
namespace {

constexpr std::size_t MAX_OTHERS = 65536;
constexpr std::size_t MAX_UNREADABLE = 32;

} // namespace

NcclImage *NcclImages::image_of(const FileIdentity &file) const {
    const auto found = std::ranges::find_if(
        images_, [&file](const auto &image) { return image->status.identity == file; });
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
        if (status->bytes < nccl::LEAST_FILE_BYTES || others_.contains(file) ||
            image_of(file) != nullptr) {
            looked.inodes.insert({mapping.inode, file.inode});
        } else if (std::ranges::none_of(candidates, [&file](const Candidate &known) {
                       return known.status.identity == file;
                   })) {
            candidates.push_back({pid, mapping, *status, MappedFile::path_of(pid, mapping)});
        }
    }
}

NcclImages::Looked NcclImages::look_at(const std::vector<pid_t> &pids) {
    Looked looked;
    std::vector<Candidate> candidates;
    for (const pid_t pid : pids)
        collect(pid, candidates, looked);
    std::vector<std::string> paths;
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
        auto file = MappedFile::open(candidate.pid, candidate.mapping);
        const auto opened = file ? file->status() : std::nullopt;
        if (!opened || opened->identity != candidate.status.identity)
            return false;
        add(std::move(*file), std::move(candidate.mapping.path));
        return true;
    }
    if (look.verdict != Other)
        unreadable(fmt::format("{}: {}: whether it has NCCL in it is not known",
                               candidate.mapping.path,
                               look.verdict == Unopened ? "cannot be opened" : look.problem));
    if (others_.size() >= MAX_OTHERS)
        others_.clear();
    others_.insert(candidate.status.identity);
    return true;
}

void NcclImages::unreadable(std::string problem) {
    if (unreadable_.size() < MAX_UNREADABLE)
        unreadable_.push_back(std::move(problem));
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
    add(std::move(*file), path);
    return {};
}

void NcclImages::add(MappedFile file, std::string path) {
    auto image = std::make_unique<NcclImage>();
    image->id = static_cast<std::uint32_t>(images_.size() + 1);
    image->status = file.status().value_or(FileStatus{});
    image->path = std::move(path);
    image->file = std::move(file);
    auto plan = nccl::plan_of_file(image->file.own_path());
    if (plan) {
        image->plan = std::move(*plan);
        image->plan.file = image->path;
        plan_probes(*image);
    } else {
        image->problem = std::move(plan).failure().message;
    }
    images_.push_back(std::move(image));
    if (attached_)
        place(*images_.back());
}

} // namespace collwire
