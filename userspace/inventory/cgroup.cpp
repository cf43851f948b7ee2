// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/cgroup.h"

#include <algorithm>

#include "userspace/inventory/files.h"

namespace collwire::inventory {
namespace {

constexpr std::size_t container_id_digits = 64;
constexpr std::size_t uuid_digits = 32;
constexpr std::size_t max_job_digits = 20; // cw_process.slurm_job holds 23
constexpr std::size_t max_step_bytes = 20;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f');
}

// Slurm: v2 ".../slurmstepd.scope/job_12/step_0/user/task_1" or "<node>_slurmstepd.scope",
// v1 "/slurm/uid_1000/job_12/step_batch". The component above must be Slurm's: other managers name
// groups job_N, too.
void find_slurm(std::string_view path, CgroupFacts &facts) {
    bool below_slurm = false;
    bool below_job = false;
    for (const std::string_view part : split(path, '/')) {
        if (below_job) {
            if (part.starts_with("step_") && part.size() > 5 && part.size() - 5 <= max_step_bytes)
                facts.slurm_step = part.substr(5);
            return;
        }
        if (below_slurm && part.starts_with("job_")) {
            const std::string_view job = part.substr(4);
            below_job = !job.empty() && job.size() <= max_job_digits &&
                        std::all_of(job.begin(), job.end(), is_digit);
            if (below_job)
                facts.slurm_job = job;
        }
        below_slurm =
            below_slurm || part.starts_with("slurm") || part.ends_with("slurmstepd.scope");
    }
}

// The uid after "pod": 36 characters with dashes (cgroupfs driver) or underscores (systemd
// driver, which reserves the dash), or 32 digits of a static pod's hash.
std::string uid_at(std::string_view text) {
    std::string uid;
    std::size_t digits = 0;
    for (const char c : text) {
        if (is_hex(c)) {
            uid += c;
            ++digits;
        } else if (c == '-' || c == '_') {
            uid += '-';
        } else {
            break;
        }
        if (digits == uuid_digits)
            break;
    }
    const bool plain = uid.size() == uuid_digits;
    const bool dashed =
        uid.size() == 36 && uid[8] == '-' && uid[13] == '-' && uid[18] == '-' && uid[23] == '-';
    return digits == uuid_digits && (plain || dashed) ? uid : std::string();
}

// From inside a pod the group "kubepods" is above all that is in the path.
void find_pod(std::string_view path, CgroupFacts &facts) {
    if (path.find("kubepods") == std::string_view::npos && !path.starts_with("/../"))
        return;
    for (std::size_t at = path.find("pod"); at != std::string_view::npos;
         at = path.find("pod", at + 3)) {
        std::string uid = uid_at(path.substr(at + 3));
        if (!uid.empty())
            facts.pod_uid = std::move(uid);
    }
}

// Every runtime puts the 64 digits of the container into its group's name:
// "cri-containerd-<id>.scope", "crio-<id>.scope", "docker-<id>.scope",
// "<slice>:cri-containerd:<id>" or bare. The innermost counts.
void find_container(std::string_view path, CgroupFacts &facts) {
    std::size_t run = 0;
    for (std::size_t i = 0; i <= path.size(); ++i) {
        if (i < path.size() && is_hex(path[i])) {
            ++run;
            continue;
        }
        if (run == container_id_digits)
            facts.container_id = path.substr(i - run, run);
        run = 0;
    }
}

int says(const CgroupFacts &facts) {
    return static_cast<int>(!facts.slurm_job.empty()) + static_cast<int>(!facts.pod_uid.empty()) +
           static_cast<int>(!facts.container_id.empty()) + static_cast<int>(facts.path.size() > 1);
}

} // namespace

CgroupFacts parse_cgroups(std::string_view text) {
    CgroupFacts best;
    best.path = "/";
    for (const std::string_view line : split(text, '\n')) {
        const std::size_t first = line.find(':');
        const std::size_t second =
            first == std::string_view::npos ? first : line.find(':', first + 1);
        if (second == std::string_view::npos || line.size() <= second + 1 ||
            line[second + 1] != '/')
            continue;
        CgroupFacts facts;
        facts.path = line.substr(second + 1);
        find_slurm(facts.path, facts);
        find_pod(facts.path, facts);
        find_container(facts.path, facts);
        // Version 2 is the last line; of equal ones it wins.
        if (says(facts) >= says(best))
            best = std::move(facts);
    }
    return best;
}

void add_from_mounts(std::string_view text, CgroupFacts &facts) {
    constexpr std::size_t shown_field = 3;
    constexpr std::size_t place_field = 4;
    constexpr std::string_view pods = "/pods/";
    for (const std::string_view line : split(text, '\n')) {
        const auto fields = split(line, ' ');
        if (fields.size() <= place_field)
            continue;
        const std::string_view shown = fields[shown_field];
        const std::string_view place = fields[place_field];
        if (facts.container_id.empty() && place == "/run/.containerenv")
            find_container(shown, facts);
        const bool is_kubelets = place == "/etc/hosts" || place == "/dev/termination-log";
        const std::size_t pod = shown.find(pods);
        if (facts.pod_uid.empty() && is_kubelets && pod != std::string_view::npos)
            facts.pod_uid = uid_at(shown.substr(pod + pods.size()));
    }
}

} // namespace collwire::inventory
