// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/comm_copies.h"

#include <algorithm>
#include <utility>

#include "userspace/inventory/process.h"

namespace collwire::nccl {
namespace {

// Process numbers are reused while they are read, so the chain of parents need not end.
constexpr std::size_t MAX_ANCESTORS = 1024;

} // namespace

std::optional<pid_t> parent_of(pid_t pid) {
    const auto parent = inventory::parent_pid("", static_cast<std::uint32_t>(pid));
    return parent ? std::optional{static_cast<pid_t>(*parent)} : std::nullopt;
}

std::vector<pid_t> ancestors_first(std::span<const pid_t> pids, const ParentOf &parent) {
    std::vector<std::pair<std::size_t, pid_t>> by_depth;
    for (const pid_t pid : pids) {
        std::size_t depth = 0;
        for (auto at = parent(pid); at && *at > 0 && depth < MAX_ANCESTORS; at = parent(*at))
            ++depth;
        by_depth.emplace_back(depth, pid);
    }
    std::ranges::stable_sort(by_depth, {}, &std::pair<std::size_t, pid_t>::first);
    std::vector<pid_t> sorted;
    sorted.reserve(by_depth.size());
    for (const auto &[depth, pid] : by_depth)
        sorted.push_back(pid);
    return sorted;
}

bool CommCopies::any_ancestor(pid_t pid, const std::function<bool(std::uint32_t)> &is_it) const {
    auto at = parent_(pid);
    for (std::size_t i = 0; at && *at > 0 && i < MAX_ANCESTORS; ++i, at = parent_(*at))
        if (is_it(static_cast<std::uint32_t>(*at)))
            return true;
    return false;
}

bool CommCopies::is_copy(const cw_nccl_comm &comm) const {
    return any_ancestor(static_cast<pid_t>(comm.tgid), [&](std::uint32_t ancestor) {
        return known_.contains(key_of(comm, ancestor));
    });
}

bool CommCopies::is_descendant(pid_t pid) const {
    return any_ancestor(pid, [this](std::uint32_t ancestor) { return owners_.contains(ancestor); });
}

} // namespace collwire::nccl
