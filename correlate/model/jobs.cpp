// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/jobs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "correlate/capture/reader.h"
#include "correlate/nccl/common_clock.h"
#include "correlate/nccl/keep_processes.h"

namespace collwire::model {
namespace {

constexpr std::size_t CONTAINER_DIGITS = 12; // as podman ps and docker ps have them
// A shorter text is no beginning of a long name: it would fit too many.
constexpr std::size_t LEAST_DIGITS = 4;

bool is_beginning(std::string_view id, const std::string &name) {
    return id.size() >= LEAST_DIGITS && name.starts_with(id);
}

void keep_queue_pairs(Model &model, const std::set<std::pair<Index, std::uint32_t>> &kept) {
    std::vector<Index> moved(model.qps.size(), NONE);
    std::vector<Qp> qps;
    for (Index i = 0; i < model.qps.size(); ++i) {
        Qp &qp = model.qps[i];
        if (!kept.contains({qp.host, qp.tgid}))
            continue;
        moved[i] = static_cast<Index>(qps.size());
        qps.push_back(std::move(qp));
    }
    model.qps = std::move(qps);
    std::erase_if(model.events,
                  [&](const Event &event) { return event.qp != NONE && moved[event.qp] == NONE; });
    for (Event &event : model.events)
        if (event.qp != NONE)
            event.qp = moved[event.qp];
}

} // namespace

std::string JobNames::title() const {
    if (!slurm_job.empty())
        return "slurm " + slurm_job;
    if (!pod_uid.empty())
        return "pod " + pod_uid;
    return container_id.empty() ? std::string{}
                                : "container " + container_id.substr(0, CONTAINER_DIGITS);
}

bool JobNames::matches(std::string_view id) const {
    if (!slurm_job.empty() &&
        (id == slurm_job || (!slurm_step.empty() && id == slurm_job + "." + slurm_step)))
        return true;
    return is_beginning(id, pod_uid) || is_beginning(id, container_id);
}

JobNames job_names(const Process &process) {
    return {process.slurm_job, process.slurm_step, process.pod_uid, process.container_id};
}

JobNames job_names(const cw_process &process) {
    return {std::string(capture::text_of(process.slurm_job)),
            std::string(capture::text_of(process.slurm_step)),
            std::string(capture::text_of(process.pod_uid)),
            std::string(capture::text_of(process.container_id))};
}

std::vector<ClusterJob> find_jobs(const Model &model) {
    struct Found {
        ClusterJob job;
        std::set<Index> processes;
        std::set<std::string> hosts;
    };
    std::map<std::string, Found> jobs;
    const nccl::CommonClock clock(model);
    for (const nccl::Instance &instance : model.nccl.instances) {
        if (instance.process == NONE)
            continue;
        const std::string title = job_names(model.processes[instance.process]).title();
        if (title.empty())
            continue;
        Found &found = jobs[title];
        found.processes.insert(instance.process);
        found.hosts.insert(model.hosts[instance.host].name);
        found.job.ranks_expected = std::max(found.job.ranks_expected, instance.record.n_ranks);
        if (instance.n_calls == 0)
            continue;
        const nccl::CommStream &stream = model.nccl.gathered.streams[instance.stream];
        const std::uint64_t first_ns =
            clock.time_ns(instance.host, stream.calls[instance.first_call].time_ns);
        const std::uint64_t last_ns = clock.time_ns(
            instance.host, stream.calls[instance.first_call + instance.n_calls - 1].time_ns);
        found.job.first_ns =
            found.job.first_ns == 0 ? first_ns : std::min(found.job.first_ns, first_ns);
        found.job.last_ns = std::max(found.job.last_ns, last_ns);
    }
    std::vector<ClusterJob> result;
    for (auto &[title, found] : jobs) {
        found.job.title = title;
        found.job.ranks_seen = found.processes.size();
        found.job.hosts.assign(found.hosts.begin(), found.hosts.end());
        result.push_back(std::move(found.job));
    }
    return result;
}

void keep_job(Model &model, std::string_view id) {
    std::set<std::pair<Index, std::uint32_t>> kept; // host, pid
    std::erase_if(model.processes, [&](const Process &process) {
        if (!job_names(process).matches(id))
            return true;
        kept.emplace(process.host, process.pid);
        return false;
    });
    const auto keeps = [&](Index session, std::uint32_t tgid) {
        return kept.contains({model.sessions[session].host, tgid});
    };
    keep_queue_pairs(model, kept);
    std::erase_if(model.posts,
                  [&](const Posts &posts) { return !keeps(posts.session, posts.key.tgid); });
    nccl::keep_processes(model.nccl.gathered, keeps);
}

} // namespace collwire::model
