// SPDX-License-Identifier: Apache-2.0
#include "userspace/verbs/installed.h"

#include <filesystem>
#include <set>

#include "userspace/process/process_view.h"

namespace collwire::verbs {
namespace {

// VERBS_PROVIDER_DIR of rdma-core in the builds of Debian and Ubuntu, Red Hat and SUSE, and others.
constexpr const char *FOLDERS[] = {"/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib64/libibverbs",
                                   "/usr/lib/libibverbs"};

} // namespace

std::vector<std::string> installed_providers() {
    std::set<std::string> paths;
    for (const char *folder : FOLDERS) {
        std::error_code problem;
        for (std::filesystem::directory_iterator entry{folder, problem}, end;
             !problem && entry != end; entry.increment(problem)) {
            std::error_code gone;
            const auto path = std::filesystem::canonical(entry->path(), gone);
            if (!gone && process::is_provider_name(entry->path().native()))
                paths.insert(path.native());
        }
    }
    return {paths.begin(), paths.end()};
}

std::string_view stem_of_driver(std::string_view driver) {
    if (driver.starts_with("rdma_"))
        return driver.substr(5);
    for (const std::string_view suffix : {"_core", "_ib"})
        if (driver.ends_with(suffix))
            return driver.substr(0, driver.size() - suffix.size());
    return driver;
}

std::string_view stem_of_library(std::string_view path) {
    if (const auto slash = path.rfind('/'); slash != std::string_view::npos)
        path.remove_prefix(slash + 1);
    if (path.starts_with("lib"))
        path.remove_prefix(3);
    return path.substr(0, path.find_first_of("-."));
}

} // namespace collwire::verbs
