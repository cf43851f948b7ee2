// SPDX-License-Identifier: Apache-2.0
// The guest library libcollwire_cupti.so, which CUDA or `record --inject` loads into processes:
// where it is installed, and which processes have it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "userspace/process/process_view.h"

namespace collwire::process {

// Whether the last part of a path is the library's name, as a file or as one in memory (memfd); a
// version may follow.
bool is_guest_library(std::string_view path);
// Whether it is the CUDA driver's library, libcuda.so.1 or the file that it stands for.
bool is_cuda_driver(std::string_view path);

// Where the library of this program is, as far as it is there: next to the program, or in the
// library folder of its installation. The first is the one to load.
std::vector<std::string> installed_guest_libraries();

} // namespace collwire::process
