// SPDX-License-Identifier: Apache-2.0
// A communicator's name. NCCL keeps the caller's pointer and no copy: after the creation the caller
// may free the text, and new content at that address is then read as the name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace collwire::nccl {

// The name in a rank's record; empty: none.
struct ReadName {
    std::string text;
    bool at_creation = false; // while NCCL itself still needed it
};

// The name that all ranks agree on: among those read at creation, else among all. Empty: no name,
// or unknown.
[[nodiscard]] std::string agreed_name(std::span<const ReadName> names);

} // namespace collwire::nccl
