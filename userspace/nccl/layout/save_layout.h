// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl {

// Saves a layout in a directory under layout_file_name(), and replaces a file with this name.
// Returns its path. BadInput: a layout that collwire does not record with, or without build-id.
Result<std::string> save_layout(const LibraryLayout &layout, const std::string &directory,
                                std::string_view tool_version);

} // namespace collwire::nccl
