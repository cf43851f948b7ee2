// SPDX-License-Identifier: Apache-2.0
// The file system below the writer, with only the calls that the writer needs, so that tests can
// replace it by a full or broken disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace collwire::capture {

// All return 0, a count of bytes, or -errno.
class StorageFile {
public:
    virtual ~StorageFile() = default;
    // May write less than asked for.
    virtual std::int64_t write_at(std::span<const std::byte> bytes, std::uint64_t offset_bytes) = 0;
    virtual int truncate(std::uint64_t size_bytes) = 0;
    virtual int sync() = 0;
    virtual int close() = 0;
    // Whether it was deleted by somebody else: what is written to it is lost.
    [[nodiscard]] virtual bool is_gone() const { return false; }
};

class Storage {
public:
    virtual ~Storage() = default;
    // Creates a new file; never opens an existing one: -EEXIST.
    virtual int create(const std::string &name, std::unique_ptr<StorageFile> &file) = 0;
    // Removes a file that create() of this object made. Another file of that name stays: -ENOENT.
    virtual int remove(const std::string &name) = 0;
};

// A directory, created with its parents if missing (mode 0700). Files get mode 0600 and are closed
// on exec. Fails if the path is no directory or not writable. For root also if the way there leads
// through a link or a directory of another user (but the one who ran sudo): that user could lead
// the files elsewhere.
[[nodiscard]] Result<std::unique_ptr<Storage>> open_directory(const std::string &path);

} // namespace collwire::capture
