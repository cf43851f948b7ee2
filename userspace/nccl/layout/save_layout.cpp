// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/layout/save_layout.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "userspace/nccl/library/debug_file.h"

namespace collwire::nccl {

Result<std::string> export_plan(const Plan &plan, const std::string &directory,
                                std::string_view tool_version) {
    if (const std::string &why = plan.not_recorded.empty() ? plan.calls_only : plan.not_recorded;
        !why.empty())
        return error(ErrorKind::BadInput, fmt::format("{}: no plan to keep: {}", plan.file, why));
    if (plan.build_id.empty())
        return error(ErrorKind::BadInput,
                     fmt::format("{}: it has no build-id, by which its plan would be found. Fix: "
                                 "record with the file as it is",
                                 plan.file));
    const std::string path = fmt::format("{}/{}", directory, plan_file_name(plan.build_id));
    // Nobody finds half of it.
    const std::string unfinished = fmt::format("{}.{}", path, getpid());
    std::error_code ignored;
    std::filesystem::create_directories(directory, ignored);
    {
        std::ofstream out{unfinished, std::ios::binary | std::ios::trunc};
        out << render_json(plan, tool_version);
        out.close();
        if (!out || std::rename(unfinished.c_str(), path.c_str()) != 0) {
            const int why = errno;
            std::filesystem::remove(unfinished, ignored);
            return error(ErrorKind::Failed,
                         fmt::format("{}: cannot be written: {}. Fix: a directory that you may "
                                     "write to",
                                     path, std::strerror(why)));
        }
    }
    return path;
}

} // namespace collwire::nccl
