// SPDX-License-Identifier: Apache-2.0
// The layout of a stripped file without debug file or saved layout: offsets of another build, and
// functions that are found in the file's own code.
#pragma once

#include <cstdint>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// The build that lends its offsets.
enum class Lender {
    SameVersion, // another build of the same version
    // An earlier version with the same major and minor number (2.21 and later), whose offsets equal
    // those of a later one. Of five such pairs of official builds two are equal: 2.26.2 and 2.26.5,
    // 2.27.3 and 2.27.7.
    PatchRelease,
};

// Compares every offset, size, array length and enumerator.
bool have_same_offsets(const LibraryLayout &a, const LibraryLayout &b);

// `other`: the layout of a build with DWARF. Functions and variables are found in the file's own
// code. No capability of the result is exact. BadInput, with the mismatch: another version,
// exported getters that read other offsets, another size of communicators, functions that are not
// found.
Result<LibraryLayout> borrow_layout(const LibraryFile &file, const LibraryLayout &other,
                                    Lender lender = Lender::SameVersion);

// From the code of ncclGetVersion; 0: unknown.
std::uint32_t version_of(const LibraryFile &file);
// True for 2.26.5 and 2.26.2.
bool is_patch_release(std::uint32_t of, std::uint32_t other);
// By version numbers; 0 is an unknown version, which lends nothing.
bool can_lend(std::uint32_t to, std::uint32_t of, Lender lender);

} // namespace collwire::nccl
