// SPDX-License-Identifier: Apache-2.0
// A layout of a stripped file of which nothing was kept: with the layouts of another build.
#pragma once

#include <cstdint>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// Whose layouts they are.
enum class Lender {
    SameVersion, // another build of it
    // Of another version with the same major and minor number, 2.21 and later; which has to be
    // before it, and have its layouts in common with one behind it. Of five such pairs of official
    // builds two have: 2.26.2 and 2.26.5, 2.27.3 and 2.27.7.
    PatchRelease,
};

// Every offset, size, length of an array and enumerator.
bool have_same_offsets(const LibraryLayout &a, const LibraryLayout &b);

// `other`: a layout of a build that has its DWARF. Functions are found in the file's own code, and
// so are its variables. BadInput, with what does not fit: another version, exported getters that
// read elsewhere than `other` says, communicators of another size, code that does not begin as it
// must, functions that are not found. No capability of it is exact.
Result<LibraryLayout> borrow_layout(const LibraryFile &file, const LibraryLayout &other,
                                    Lender lender = Lender::SameVersion);

// By ncclGetVersion; 0: it does not tell.
std::uint32_t version_of(const LibraryFile &file);
// 2.26.5 of 2.26.2
bool is_patch_release(std::uint32_t of, std::uint32_t other);
// By version numbers; 0 is an unknown version, which lends nothing.
bool can_lend(std::uint32_t to, std::uint32_t of, Lender lender);

} // namespace collwire::nccl
