// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/guest_library.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "collwire/gpu_records.h"

namespace collwire::process {
namespace {

// Before the name of a file in memory: one that `record --inject` has made.
constexpr std::string_view MEMFD = "memfd:";

std::string_view name_of_file(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

} // namespace

bool is_guest_library(std::string_view path) {
    auto name = name_of_file(path);
    if (name.starts_with(MEMFD))
        name.remove_prefix(MEMFD.size());
    return name.starts_with(CW_GPU_LIBRARY);
}

// libcuda.so.1, and libcuda.so.570.124.06, but not libcudart.so.12.
bool is_cuda_driver(std::string_view path) {
    return name_of_file(path).starts_with("libcuda.so");
}

std::vector<std::string> installed_guest_libraries() {
    std::error_code failed;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
    if (failed)
        return {};
    const auto folder = program.parent_path();
    std::vector<std::string> found;
    for (const char *place : {".", "../lib/collwire"}) {
        const auto path = (folder / place / CW_GPU_LIBRARY).lexically_normal().string();
        if (status_of(path) && std::ranges::find(found, path) == found.end())
            found.push_back(path);
    }
    return found;
}

} // namespace collwire::process
