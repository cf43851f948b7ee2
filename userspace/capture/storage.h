// SPDX-License-Identifier: Apache-2.0
// Where captures are put: as little of a file system as the writer needs, so that full disks and
// broken ones can be tested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace collwire::capture {

// All return 0 (or a count of bytes) or -errno.
class StorageFile {
public:
    virtual ~StorageFile() = default;
    // May write less than asked for.
    virtual std::int64_t write_at(std::span<const std::byte> bytes, std::uint64_t offset_bytes) = 0;
    virtual int truncate(std::uint64_t size_bytes) = 0;
    virtual int sync() = 0;
    virtual int close() = 0;
};

class Storage {
public:
    virtual ~Storage() = default;
    // Makes a new file; never opens an existing one: -EEXIST.
    virtual int create(const std::string &name, std::unique_ptr<StorageFile> &file) = 0;
    // Removes a file that create() of this object made. One that somebody put in its place stays:
    // -ENOENT.
    virtual int remove(const std::string &name) = 0;
};

// A directory, made (mode 0755 less the umask) with its parents where it does not exist. Files get
// mode 0600 and do not survive an exec. Fails where the path is something else or may not be
// written to.
[[nodiscard]] Result<std::unique_ptr<Storage>> open_directory(const std::string &path);

} // namespace collwire::capture
