// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/process_choice.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "userspace/foreign/foreign.h"
#include "userspace/inventory/files.h"
#include "userspace/inventory/process.h"

namespace collwire::inventory {
namespace {

using Facts = std::map<std::uint32_t, CgroupFacts>; // by pid

// A kind of name, and how people find one.
struct NameKind {
    std::string_view option;
    std::string_view noun;
    std::string_view digits;
    std::string_view how;
    std::string CgroupFacts::*fact;
};
constexpr std::string_view hex = "0123456789abcdef";
constexpr std::string_view hex_and_dash = "0123456789abcdef-";
constexpr std::string_view decimal = "0123456789";
const NameKind container_kind{"--container", "container", hex,
                              "give its id, or the first digits: podman ps, docker ps, crictl ps",
                              &CgroupFacts::container_id};
const NameKind pod_kind{"--pod", "pod", hex_and_dash,
                        "give its uid: kubectl get pod NAME -o jsonpath={.metadata.uid}",
                        &CgroupFacts::pod_uid};
constexpr std::size_t MOST_NAMED = 4;

Error malformed(std::string_view option, std::string_view noun, std::string_view name,
                std::string_view how) {
    return error(ErrorKind::Usage, fmt::format("{} '{}': no {}. Fix: {}", option, name, noun, how));
}

// kubectl prints containerd://ID.
std::string_view without_scheme(std::string_view name) {
    const std::size_t scheme = name.find("://");
    return scheme == std::string_view::npos ? name : name.substr(scheme + 3);
}

Result<void> add_named(const NameKind &kind, const std::string &given, const Facts &facts,
                       std::set<std::uint32_t> &pids) {
    const std::string_view name = without_scheme(given);
    if (name.empty() || name.find_first_not_of(kind.digits) != std::string_view::npos)
        return malformed(kind.option, fmt::format("id of a {}", kind.noun), given, kind.how);
    std::set<std::string> found;
    for (const auto &[pid, of_process] : facts)
        if (const std::string &id = of_process.*kind.fact; id.starts_with(name)) {
            found.insert(id);
            pids.insert(pid);
        }
    if (found.empty())
        return error(ErrorKind::Usage, fmt::format("{} {}: no process here is in that {}. Fix: {}",
                                                   kind.option, given, kind.noun, kind.how));
    if (found.size() > 1) {
        std::vector<std::string> some(found.begin(), found.end());
        some.resize(std::min(some.size(), MOST_NAMED));
        return error(ErrorKind::Usage, fmt::format("{} {}: {} {}s begin so: {}. Fix: give more "
                                                   "digits",
                                                   kind.option, given, found.size(), kind.noun,
                                                   fmt::join(some, ", ")));
    }
    return {};
}

Result<void> add_job(const std::string &given, const Facts &facts, std::set<std::uint32_t> &pids) {
    const std::string_view name = given;
    const std::size_t dot = name.find('.');
    const std::string_view job = name.substr(0, dot);
    const std::string_view step =
        dot == std::string_view::npos ? std::string_view{} : name.substr(dot + 1);
    if (job.empty() || job.find_first_not_of(decimal) != std::string_view::npos ||
        (dot != std::string_view::npos && step.empty()))
        return malformed("--job", "Slurm job", given, "give JOB or JOB.STEP: squeue, squeue -s");
    bool is_there = false;
    for (const auto &[pid, of_process] : facts)
        if (of_process.slurm_job == job && (step.empty() || of_process.slurm_step == step)) {
            is_there = true;
            pids.insert(pid);
        }
    if (!is_there)
        return error(ErrorKind::Usage,
                     fmt::format("--job {}: no process here is of that Slurm job. Fix: run it on a "
                                 "node of the job (squeue -j {})",
                                 given, job));
    return {};
}

} // namespace

Result<std::vector<std::uint32_t>> choose_processes(const std::string &root,
                                                    const ProcessChoice &choice) {
    std::vector<pid_t> all;
    for (const std::string &name : list_directory(root + "/proc"))
        if (const auto pid = parse_number(name); pid && *pid <= INT32_MAX)
            all.push_back(static_cast<pid_t>(*pid));
    if (root.empty())
        foreign::ask(all); // those that do not answer cost their time once
    Facts facts;
    MountFacts mounts;
    for (const pid_t pid : all)
        facts.emplace(static_cast<std::uint32_t>(pid),
                      read_job(root, static_cast<std::uint32_t>(pid), nullptr, &mounts));
    std::set<std::uint32_t> pids;
    for (const std::string &container : choice.containers)
        if (auto added = add_named(container_kind, container, facts, pids); !added)
            return std::move(added).failure();
    for (const std::string &pod : choice.pods)
        if (auto added = add_named(pod_kind, pod, facts, pids); !added)
            return std::move(added).failure();
    for (const std::string &job : choice.jobs)
        if (auto added = add_job(job, facts, pids); !added)
            return std::move(added).failure();
    return std::vector<std::uint32_t>(pids.begin(), pids.end());
}

} // namespace collwire::inventory
