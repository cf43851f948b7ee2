// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl {

// Keeps a layout in a directory, by its build-id, for the file as it will be when it was stripped.
// Puts it in the place of one that is there. Returns its path. BadInput: there is nothing to keep.
Result<std::string> save_layout(const LibraryLayout &layout, const std::string &directory,
                                std::string_view tool_version);

} // namespace collwire::nccl
