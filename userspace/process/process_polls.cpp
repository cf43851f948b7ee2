// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/process_polls.h"

#include <utility>

namespace collwire::process {
namespace {

constexpr unsigned POLLS_WHILE_YOUNG = 60;
constexpr unsigned LATER_POLLS_EVERY = 30;

} // namespace

std::vector<pid_t> ProcessPolls::due(const std::vector<pid_t> &pids) {
    std::map<pid_t, unsigned> polls;
    std::vector<pid_t> due;
    for (const pid_t pid : pids) {
        const auto before = polls_.find(pid);
        const unsigned n = before == polls_.end() ? 0 : before->second + 1;
        polls.emplace(pid, n);
        if (n < POLLS_WHILE_YOUNG || n % LATER_POLLS_EVERY == 0)
            due.push_back(pid);
    }
    polls_ = std::move(polls);
    return due;
}

} // namespace collwire::process
