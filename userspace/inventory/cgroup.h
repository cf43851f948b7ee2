// SPDX-License-Identifier: Apache-2.0
// The job, pod and container of a process, from the text of /proc/PID/cgroup (cgroups(7): one line
// "id:controllers:path" for each hierarchy, "0::path" for version 2).
#pragma once

#include <string>
#include <string_view>

namespace collwire::inventory {

struct CgroupFacts {
    std::string path;         // of the hierarchy with the most facts; "/" if none has any
    std::string slurm_job;    // digits; empty: not below Slurm
    std::string slurm_step;   // "0", "batch", "extern", "interactive"...
    std::string pod_uid;      // as Kubernetes writes it: dashes, or 32 hex digits of a static pod
    std::string container_id; // 64 hex digits
};

// Accepts any text; unknown lines are skipped. A path that starts with "/.." is seen from inside
// another cgroup namespace (cgroup_namespaces(7)): the groups above both are not in it.
CgroupFacts parse_cgroups(std::string_view text);

// From the text of /proc/PID/mountinfo (proc(5)), what `facts` lacks: a container without a cgroup
// of its own, as of a rootless podman on cgroup v1. podman mounts a file of the container at
// /run/.containerenv, the kubelet files of the pod at /etc/hosts and /dev/termination-log.
void add_from_mounts(std::string_view text, CgroupFacts &facts);

} // namespace collwire::inventory
