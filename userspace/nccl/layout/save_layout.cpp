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

Result<std::string> save_layout(const LibraryLayout &layout, const std::string &directory,
                                std::string_view tool_version) {
    if (const std::string &why =
            layout.not_recorded.empty() ? layout.calls_only : layout.not_recorded;
        !why.empty())
        return error(ErrorKind::BadInput,
                     fmt::format("{}: no layout to save: {}", layout.file, why));
    if (layout.build_id.empty())
        return error(ErrorKind::BadInput,
                     fmt::format("{}: it has no build-id, by which its layout would be found. Fix: "
                                 "record with the file as it is",
                                 layout.file));
    const std::string path =
        fmt::format("{}/{}", directory, layout_file_name(layout.version, layout.build_id));
    // Written under another name first: readers never see half a file.
    const std::string unfinished = fmt::format("{}.{}", path, getpid());
    std::error_code ignored;
    std::filesystem::create_directories(directory, ignored);
    {
        std::ofstream out{unfinished, std::ios::binary | std::ios::trunc};
        out << render_json(layout, tool_version);
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
