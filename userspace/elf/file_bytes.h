// SPDX-License-Identifier: Apache-2.0
// The bytes of a file, mapped: read at access.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace collwire::elf {

class FileBytes {
public:
    // Regular files only. The errors name the path. If a file is truncated while it is mapped, an
    // access beyond its end raises SIGBUS.
    static Result<FileBytes> open(const std::string &path);

    [[nodiscard]] std::span<const std::byte> bytes() const {
        return {static_cast<const std::byte *>(at_.get()), at_.get_deleter().bytes};
    }

private:
    struct Unmapper {
        std::size_t bytes = 0;
        void operator()(void *at) const;
    };
    explicit FileBytes(void *at, std::size_t bytes) : at_(at, Unmapper{bytes}) {}

    std::unique_ptr<void, Unmapper> at_;
};

} // namespace collwire::elf
