// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/private_file.h"

#include <sys/stat.h>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace collwire::cli {

Result<void> write_private_file(const std::string &path, std::string_view option,
                                const std::function<void(std::ostream &)> &write) {
    const mode_t umask_before = ::umask(S_IRWXG | S_IRWXO);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    ::umask(umask_before);
    if (file) {
        write(file);
        file.close();
    }
    if (!file)
        return error(ErrorKind::Failed, fmt::format("{}: cannot write: {}. Fix: give another file "
                                                    "with {}",
                                                    path, std::strerror(errno), option));
    return {};
}

} // namespace collwire::cli
