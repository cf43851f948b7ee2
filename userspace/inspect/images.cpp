// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/images.h"

#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>

#include "userspace/foreign/foreign.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/layout/find_nccl.h"
#include "userspace/nccl/memory/live_comms.h"

namespace collwire::inspect {
namespace {

constexpr std::chrono::milliseconds MOST_CHECKING{5'000};

struct Mapped {
    std::size_t process = 0;
    pid_t pid = 0;
    process::Mapping mapping;
    process::FileIdentity identity;
};

Image make_image(const Mapped &shown, const std::string &path,
                 const std::vector<std::string> &symbols) {
    Image image;
    image.identity = shown.identity;
    auto layout = nccl::layout_of_file(path, {shown.mapping.path, symbols});
    if (!layout) {
        image.problem = layout.failure().message;
        return image;
    }
    image.layout = std::move(*layout);
    image.layout.file = shown.mapping.path;
    image.problem =
        image.layout.not_recorded.empty() ? image.layout.calls_only : image.layout.not_recorded;
    // It reads memory, and needs no function that takes a probe.
    const nccl::Capability *inspect = nccl::find_capability(image.layout, "inspect");
    if (inspect != nullptr && inspect->rung != nccl::Certainty::Process)
        image.problem.clear();
    if (!image.problem.empty())
        return image;
    auto bpf_layout = nccl::bpf_layout_of(image.layout, 0);
    if (bpf_layout)
        image.bpf_layout = *bpf_layout;
    else
        image.problem = bpf_layout.failure().message;
    return image;
}

} // namespace

Images find_images(std::span<const pid_t> pids, const std::vector<std::string> &symbols) {
    Images found;
    found.used.resize(pids.size());
    found.problems.resize(pids.size());
    std::vector<Mapped> mapped;
    std::map<process::FileIdentity, std::string> paths; // of each file, a path to open it by
    foreign::ask(pids);
    for (std::size_t i = 0; i < pids.size(); ++i) {
        process::ProcessView view{pids[i]};
        const auto read = view.refresh();
        if (!foreign::answers(pids[i]))
            found.problems[i] = foreign::text_of({pids[i], "its memory or its files"});
        else if (!read)
            found.problems[i] = read.failure().message;
        if (!found.problems[i].empty())
            continue;
        const auto files = process::executable_files(view.mappings());
        const auto statuses = process::statuses_of(pids[i], files);
        for (std::size_t k = 0; k < files.size(); ++k) {
            const process::Mapping &mapping = files[k];
            const auto &status = statuses[k];
            if (!status || status->bytes < nccl::LEAST_FILE_BYTES)
                continue;
            mapped.push_back({i, pids[i], mapping, status->identity});
            paths.try_emplace(status->identity, process::MappedFile::path_of(pids[i], mapping));
        }
    }
    std::vector<std::string> to_look;
    std::vector<process::FileIdentity> identities;
    for (const auto &[identity, path] : paths) {
        identities.push_back(identity);
        to_look.push_back(path);
    }
    nccl::ReaderTimes times;
    times.all = MOST_CHECKING;
    const auto looks = nccl::check_for_nccl(to_look, times);
    std::map<process::FileIdentity, std::size_t> indices;
    for (std::size_t i = 0; i < looks.size(); ++i) {
        const auto shown = std::ranges::find(mapped, identities[i], &Mapped::identity);
        if (looks[i].verdict == nccl::FileCheck::Verdict::Silent ||
            looks[i].verdict == nccl::FileCheck::Verdict::NotReached)
            foreign::add_news(fmt::format("process {}: {} does not answer in time: whether it has "
                                          "NCCL in it is not known. Fix: check its file system",
                                          shown->pid, shown->mapping.path));
        if (looks[i].verdict != nccl::FileCheck::Verdict::Nccl)
            continue;
        indices.emplace(identities[i], found.images.size());
        found.images.push_back(make_image(*shown, to_look[i], symbols));
    }
    for (const Mapped &one : mapped) {
        const auto index = indices.find(one.identity);
        if (index == indices.end())
            continue;
        std::vector<UsedImage> &used = found.used[one.process];
        const Image &image = found.images[index->second];
        const auto bias = nccl::load_bias(image.layout, one.mapping);
        const auto known = std::ranges::find(used, index->second, &UsedImage::image);
        if (known == used.end() && (bias || !image.problem.empty()))
            used.push_back({index->second, one.mapping.path, bias.value_or(0)});
    }
    return found;
}

} // namespace collwire::inspect
