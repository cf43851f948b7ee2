// SPDX-License-Identifier: Apache-2.0
#include "correlate/roles/group_jobs.h"

#include <map>
#include <numeric>
#include <utility>

namespace collwire::roles {
namespace {

std::vector<std::vector<std::size_t>> jobs_of(const std::vector<GroupFacts> &groups,
                                              std::size_t n_devices) {
    std::vector<std::size_t> parent(n_devices);
    std::iota(parent.begin(), parent.end(), std::size_t{0});
    const auto root_of = [&](std::size_t place) {
        while (parent[place] != place)
            place = parent[place] = parent[parent[place]];
        return place;
    };
    for (const GroupFacts &group : groups)
        for (const Member &member : group.members)
            parent[root_of(member.place)] = root_of(group.members.front().place);
    std::map<std::size_t, std::vector<std::size_t>> of_root;
    for (std::size_t i = 0; i < groups.size(); ++i)
        if (!groups[i].members.empty())
            of_root[root_of(groups[i].members.front().place)].push_back(i);
    std::vector<std::vector<std::size_t>> all;
    all.reserve(of_root.size());
    for (auto &[root, of] : of_root)
        all.push_back(std::move(of));
    return all;
}

JobFacts take_job(const std::vector<std::size_t> &of, std::vector<GroupFacts> &groups,
                  const std::vector<Device> &devices) {
    JobFacts job;
    std::map<std::size_t, std::size_t> own; // place in all: in the job
    for (const std::size_t index : of)
        for (const Member &member : groups[index].members)
            own.emplace(member.place, 0);
    std::map<Device, std::size_t> ordered;
    for (const auto &[place, unused] : own)
        ordered.emplace(devices[place], place);
    std::map<std::uint32_t, std::uint32_t> n_gpus; // of a host
    for (const auto &[device, place] : ordered) {
        own[place] = job.places.size();
        job.places.push_back({device.host, n_gpus[device.host]++});
    }
    for (const std::size_t index : of) {
        job.groups.push_back(std::move(groups[index]));
        for (Member &member : job.groups.back().members)
            member.place = own.at(member.place);
    }
    return job;
}

} // namespace

std::vector<RoleGuess> guess_groups(std::vector<GroupFacts> groups,
                                    const std::vector<Device> &devices) {
    std::vector<RoleGuess> guesses(groups.size());
    for (const std::vector<std::size_t> &of : jobs_of(groups, devices.size())) {
        std::vector<RoleGuess> found = guess_job(take_job(of, groups, devices));
        for (std::size_t i = 0; i < of.size(); ++i)
            guesses[of[i]] = std::move(found[i]);
    }
    return guesses;
}

} // namespace collwire::roles
