// SPDX-License-Identifier: Apache-2.0
// Finds post_send in a provider library that has no symbols for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "userspace/elf/elf_image.h"

namespace collwire::verbs {

struct PostSendFunctions {
    std::vector<std::uint64_t>
        addresses;        // in the file; some drivers have one per hardware generation
    std::string evidence; // how they were found, for people
};

// Every driver passes tables of functions to verbs_set_ops(), which copies the filled slots. The
// tables are found through those calls or, if no call is recognised, by their contents. Their order
// is private and changes with the release of rdma-core, and forks have version numbers of their
// own: all known orders are tried, and only a single answer is accepted. Unsupported if there is
// none, or more than one.
Result<PostSendFunctions> find_post_send(const elf::ElfImage &image);

} // namespace collwire::verbs
