// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/silent_users.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "userspace/foreign/foreign.h"
#include "userspace/process/process_view.h"

namespace collwire::process {
namespace {

std::string_view name_of_file(std::string_view path) {
    constexpr std::string_view DELETED = " (deleted)";
    if (path.ends_with(DELETED)) {
        path.remove_suffix(DELETED.size());
    }
    return path.substr(path.rfind('/') + 1);
}

bool may_be(const Mapping &mapping, const ProbedFile &file) {
    return mapping.inode != 0 &&
           (file.inodes.contains(mapping.inode) ||
            std::ranges::any_of(file.paths, [&mapping](const std::string &path) {
                return name_of_file(path) == name_of_file(mapping.path);
            }));
}

} // namespace

std::vector<pid_t> silent_users(const ProbedFile &file) {
    foreign::ask(all_processes());
    std::vector<pid_t> users;
    for (const foreign::Silent &silent : foreign::silent()) {
        if (silent.pid == foreign::NO_PROCESS) {
            continue;
        }
        const auto maps = foreign::read_mappings(silent.pid);
        const auto mappings = maps ? parse_maps(*maps) : std::vector<Mapping>{};
        if (!maps || std::ranges::any_of(mappings, [&file](const Mapping &mapping) {
                return may_be(mapping, file);
            })) {
            users.push_back(silent.pid);
        }
    }
    return users;
}

std::string text_of_silent(const std::vector<pid_t> &pids) {
    return pids.size() == 1 ? fmt::format("process {}, which does not answer", pids.front())
                            : fmt::format("process {} and {} more, which do not answer",
                                          pids.front(), pids.size() - 1);
}

} // namespace collwire::process
