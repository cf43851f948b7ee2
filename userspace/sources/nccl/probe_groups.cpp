// SPDX-License-Identifier: Apache-2.0
// The probes of NCCL by what is taken off together.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "collwire/nccl_layout.h"
#include "collwire/node_records.h"
#include "userspace/loader/take_off.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::sources {

std::string_view name_of(NcclProbeGroup group) {
    switch (group) {
    case NcclProbeGroup::Times:
        return "network times";
    case NcclProbeGroup::Warnings:
        return "warnings";
    case NcclProbeGroup::Operations:
        return "operations";
    case NcclProbeGroup::Control:
        break;
    }
    return "communicators and sockets";
}

std::vector<bpf_link *> NcclLibraries::links_of(const NcclLibrary &library) {
    std::vector<bpf_link *> links;
    for (const NcclLink &one : library.links)
        links.push_back(one.link);
    return links;
}

std::vector<source::ProbeGroup> NcclLibraries::probe_groups() const {
    std::map<NcclProbeGroup, std::map<int, source::ProbeProgram>> by_group;
    for (const auto &library : libraries_)
        for (const NcclLink &one : library->links) {
            const source::PlannedProbe &probe = library->probes[one.probe];
            const auto [entry, is_new] = by_group[one.group].try_emplace(
                one.program_fd,
                source::ProbeProgram{one.program_fd, probe.kind, probe.emulated, 0});
            entry->second.emulated = entry->second.emulated && probe.emulated;
        }
    std::vector<source::ProbeGroup> groups;
    for (const auto &[group, programs] : by_group) {
        source::ProbeGroup &added = groups.emplace_back();
        added.name = name_of(group);
        added.use = group == NcclProbeGroup::Control ? source::ProbeUse::Control
                                                     : source::ProbeUse::Operations;
        for (const auto &[fd, program] : programs)
            added.programs.push_back(program);
    }
    return groups;
}

void NcclLibraries::start_taking_off(NcclProbeGroup group) {
    taken_off_.insert(group);
    if (group == NcclProbeGroup::Operations)
        taken_off_.insert(NcclProbeGroup::Times);
    const auto held_by = silent_users_of_probed();
    std::vector<bpf_link *> links;
    for (const auto &library : libraries_) {
        std::erase_if(library->links, [&](const NcclLink &one) {
            if (!taken_off_.contains(one.group))
                return false;
            links.push_back(one.link);
            source::PlannedProbe &probe = library->probes[one.probe];
            probe.placed = false;
            probe.taken_off = true;
            return true;
        });
        if (library->links.empty() && library->placed_ns != 0)
            library->file = process::MappedFile{};
    }
    loader::start_taking_off(links, held_by);
}

} // namespace collwire::sources
