// SPDX-License-Identifier: Apache-2.0
// What a communicator is called. NCCL keeps the caller's pointer and no copy: once the communicator
// is made, the caller may free the text, and whatever is written there next is read as the name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace collwire::nccl {

// What a rank's record has of it; empty: nothing.
struct ReadName {
    std::string text;
    bool at_creation = false; // when NCCL itself still needed it
};

// The name that all ranks agree on: those that were read at creation, else all. Empty: there is
// none, or it is not known.
[[nodiscard]] std::string agreed_name(std::span<const ReadName> names);

} // namespace collwire::nccl
