// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/file_bytes.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace collwire::elf {

void FileBytes::Unmapper::operator()(void *at) const {
    munmap(at, bytes);
}

Result<FileBytes> FileBytes::open(const std::string &path) {
    // O_NONBLOCK: a FIFO must not block.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error(errno == EACCES || errno == EPERM ? ErrorKind::NotPermitted
                                                       : ErrorKind::BadInput,
                     fmt::format("{}: {}", path, std::strerror(errno)));
    struct stat status {};
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0) {
        close(fd);
        return error(ErrorKind::BadInput, fmt::format("{}: empty, or not a regular file", path));
    }
    const auto bytes = static_cast<std::size_t>(status.st_size);
    // A shared mapping: the kernel writes the breakpoints of uprobes, also another tracer's, into
    // private ones.
    void *at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) // some user-space file systems have no shared mappings
        at = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    const int why = errno;
    close(fd);
    if (at == MAP_FAILED)
        return error(ErrorKind::Failed, fmt::format("{}: {}", path, std::strerror(why)));
    return FileBytes{at, bytes};
}

} // namespace collwire::elf
