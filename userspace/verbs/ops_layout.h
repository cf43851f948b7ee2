// SPDX-License-Identifier: Apache-2.0
// The layouts of the private struct verbs_context_ops in the versions of rdma-core.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace collwire::verbs {

// One order of the slots, each a pointer. Source: libibverbs/driver.h, releases 17 to 65; the slots
// have been in alphabetical order in all of them.
struct OpsLayout {
    std::string releases; // of rdma-core, "36 - 58"
    std::vector<std::string_view> slots;
    int first_release = 0;
    int last_release = 0; // the highest number for "and later"

    [[nodiscard]] std::optional<std::size_t> index(std::string_view slot) const;
    // Whether a release with this private ABI (ElfImage::private_abi) can have this order. The
    // ABI's number is that of the release that changed it, but not every change of the order
    // changed it. True for 0 and for numbers that are no release's.
    [[nodiscard]] bool possible_in(unsigned private_abi) const;
};

// Every layout that was released, oldest first.
const std::vector<OpsLayout> &ops_layouts();

} // namespace collwire::verbs
