// SPDX-License-Identifier: Apache-2.0
// Detects communicators that a process only has because it was forked from their rank: its memory
// is a copy, without a mark in it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "collwire/nccl_comm_records.h"

namespace collwire::nccl {

// Empty: the process has exited.
using ParentOf = std::function<std::optional<pid_t>(pid_t)>;

// From /proc.
std::optional<pid_t> parent_of(pid_t pid);

// Each process after its ancestors; otherwise in the same order.
std::vector<pid_t> ancestors_first(std::span<const pid_t> pids, const ParentOf &parent = parent_of);

class CommCopies {
public:
    explicit CommCopies(ParentOf parent = parent_of) : parent_(std::move(parent)) {}

    void add(const cw_nccl_comm &comm) {
        known_.insert(key_of(comm, comm.tgid));
        owners_.insert(comm.tgid);
    }
    // An ancestor of this process has communicators.
    [[nodiscard]] bool is_descendant(pid_t pid) const;
    // An ancestor of its process has the same communicator at the same address.
    [[nodiscard]] bool is_copy(const cw_nccl_comm &comm) const;

private:
    using Key =
        std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t, std::int32_t>;
    static Key key_of(const cw_nccl_comm &comm, std::uint32_t tgid) {
        return {tgid, comm.image_id, comm.comm, comm.comm_hash, comm.rank};
    }

    [[nodiscard]] bool any_ancestor(pid_t pid,
                                    const std::function<bool(std::uint32_t)> &is_it) const;

    ParentOf parent_;
    std::set<Key> known_;
    std::set<std::uint32_t> owners_;
};

} // namespace collwire::nccl
