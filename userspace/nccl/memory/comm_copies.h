// SPDX-License-Identifier: Apache-2.0
// Communicators that a process has because it was forked from one of their rank: its memory is a
// copy, and nothing in it tells so.
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

// Nothing: the process has ended.
using ParentOf = std::function<std::optional<pid_t>(pid_t)>;

// As /proc has it.
std::optional<pid_t> parent_of(pid_t pid);

// Each process behind those that it descends from; otherwise as they were.
std::vector<pid_t> ancestors_first(std::span<const pid_t> pids, const ParentOf &parent = parent_of);

class CommCopies {
public:
    explicit CommCopies(ParentOf parent = parent_of) : parent_(std::move(parent)) {}

    void add(const cw_nccl_comm &comm) { known_.insert(key_of(comm, comm.tgid)); }
    // An ancestor of its process has the same one at the same address.
    [[nodiscard]] bool is_copy(const cw_nccl_comm &comm) const;

private:
    using Key =
        std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t, std::int32_t>;
    static Key key_of(const cw_nccl_comm &comm, std::uint32_t tgid) {
        return {tgid, comm.image_id, comm.comm, comm.comm_hash, comm.rank};
    }

    ParentOf parent_;
    std::set<Key> known_;
};

} // namespace collwire::nccl
