// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/job_lines.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "correlate/report/units.h"

namespace collwire::report {
namespace {

constexpr std::size_t MOST_HOSTS = 4, MOST_JOBS = 20;

std::string hosts_text(const std::vector<std::string> &hosts) {
    std::string text;
    for (std::size_t i = 0; i < std::min(hosts.size(), MOST_HOSTS); ++i)
        text += (i == 0 ? "" : ", ") + printable(hosts[i]);
    if (hosts.size() > MOST_HOSTS)
        text += fmt::format(" and {} more", hosts.size() - MOST_HOSTS);
    return text;
}

} // namespace

std::vector<std::string> job_lines(const std::vector<model::ClusterJob> &jobs) {
    std::vector<std::string> lines;
    if (jobs.size() < 2)
        return lines;
    lines.push_back(
        fmt::format("{} jobs: all figures are of all of them. One alone: --job ID", jobs.size()));
    for (const model::ClusterJob &job : jobs) {
        if (lines.size() > MOST_JOBS) {
            lines.push_back(fmt::format("{} more", jobs.size() - MOST_JOBS));
            break;
        }
        const std::string time =
            job.first_ns == 0
                ? std::string("no NCCL call")
                : fmt::format("calls from {} to {}", utc(job.first_ns), utc(job.last_ns));
        lines.push_back(fmt::format("{}: {} of {} ranks; {}; {}", printable(job.title),
                                    grouped(job.ranks_seen), job.ranks_expected,
                                    hosts_text(job.hosts), time));
    }
    return lines;
}

nlohmann::ordered_json jobs_json(const std::vector<model::ClusterJob> &jobs) {
    using Json = nlohmann::ordered_json;
    Json array = Json::array();
    for (const model::ClusterJob &job : jobs)
        array.push_back(
            {{"job", job.title},
             {"ranks_seen", job.ranks_seen},
             {"ranks_expected", job.ranks_expected},
             {"hosts", job.hosts},
             {"first_call_realtime_ns", job.first_ns == 0 ? Json(nullptr) : Json(job.first_ns)},
             {"last_call_realtime_ns", job.last_ns == 0 ? Json(nullptr) : Json(job.last_ns)}});
    return array;
}

} // namespace collwire::report
