// SPDX-License-Identifier: Apache-2.0
// The processes that mapped a file since the last sample.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace collwire::sources {

class MappedProcesses {
public:
    void add(pid_t pid, std::uint64_t inode) { mapped_.emplace_back(pid, inode); }

    // Scans and forgets them. `scan` returns false if the process exited before it could be read.
    // Returns the inodes of the files that such a process had mapped: others will map them.
    template <typename Scan> std::set<std::uint64_t> scan(const Scan &scan) {
        std::set<std::uint64_t> unread;
        for (const auto &[pid, inode] : std::exchange(mapped_, {}))
            if (!scan(pid))
                unread.insert(inode);
        return unread;
    }

private:
    std::vector<std::pair<pid_t, std::uint64_t>> mapped_;
};

} // namespace collwire::sources
