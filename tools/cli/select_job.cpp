// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/select_job.h"

#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/foreign_text.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/reader.h"
#include "correlate/model/jobs.h"
#include "tools/cli/read_file.h"

namespace collwire::cli {
namespace {

constexpr std::size_t MOST_NAMED = 8;

std::string names_of(const std::set<std::string> &titles) {
    const std::size_t n = std::min(titles.size(), MOST_NAMED);
    const std::vector<std::string> first(titles.begin(),
                                         std::next(titles.begin(), static_cast<std::ptrdiff_t>(n)));
    return fmt::format("{}{}", fmt::join(first, ", "),
                       titles.size() > n ? fmt::format(" and {} more", titles.size() - n) : "");
}

} // namespace

Result<std::set<std::string>> captures_without_job(const std::string &job,
                                                   const std::vector<std::string> &files) {
    std::set<std::string> without, all, matching;
    for (const std::string &path : files) {
        auto file = FileInParts::open(path);
        if (!file)
            continue;
        bool has_job = false, has_node = false;
        const auto summary = capture::read_chosen_blocks(
            file->size_bytes(),
            [&](std::uint64_t offset, std::size_t length) { return file->read(offset, length); },
            [](const capture::BlockHeader &block) {
                return (block.flags & capture::BLOCK_WITHOUT_STATE) == 0;
            },
            [&](const cw_header &header, std::span<const std::byte> record) {
                has_node = has_node || header.kind == CW_KIND_NODE;
                if (header.kind != CW_KIND_PROCESS)
                    return;
                const model::JobNames names =
                    model::job_names(capture::record_as<cw_process>(record));
                if (names.title().empty())
                    return;
                all.insert(names.title());
                if (!names.matches(job))
                    return;
                matching.insert(names.title());
                has_job = true;
            });
        if (summary && has_node && !has_job)
            without.insert(path);
    }
    if (all.empty())
        return error(ErrorKind::BadInput,
                     fmt::format("--job {}: no process of the captures is of a job, a pod or a "
                                 "container. Fix: leave --job out",
                                 job));
    if (matching.empty())
        return error(ErrorKind::BadInput,
                     fmt::format("--job {}: no process of it is in the captures. They have {}. "
                                 "Fix: give one of these",
                                 job, names_of(all)));
    if (matching.size() > 1)
        return error(ErrorKind::BadInput, fmt::format("--job {}: several fit: {}. Fix: give more "
                                                      "digits",
                                                      job, names_of(matching)));
    return without;
}

} // namespace collwire::cli
