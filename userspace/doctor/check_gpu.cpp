// SPDX-License-Identifier: Apache-2.0
// Whether CUDA processes have the guest library, without which their kernels cannot be recorded.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "collwire/gpu_records.h"
#include "userspace/doctor/checks.h"
#include "userspace/inventory/files.h"
#include "userspace/process/guest_library.h"
#include "userspace/process/process_view.h"

namespace collwire::doctor {
namespace {

constexpr std::size_t MAX_MAPS_BYTES = 64 << 20;
constexpr std::size_t MAX_LISTED = 8;

struct CudaProcesses {
    std::vector<std::uint64_t> with; // the guest library
    std::vector<std::uint64_t> without;
};

CudaProcesses cuda_processes(const std::string &root) {
    CudaProcesses found;
    for (const std::string &name : inventory::list_directory(root + "/proc")) {
        const auto pid = inventory::parse_number(name);
        if (!pid)
            continue;
        const auto text = inventory::read_file(
            inventory::concatenated(root, "/proc/", name, "/maps"), MAX_MAPS_BYTES);
        if (!text)
            continue;
        const auto mappings = process::parse_maps(*text);
        const auto has = [&mappings](bool (*is_it)(std::string_view)) {
            return std::ranges::any_of(mappings, [is_it](const process::Mapping &mapping) {
                return mapping.executable && is_it(mapping.path);
            });
        };
        if (has(process::is_guest_library))
            found.with.push_back(*pid);
        else if (has(process::is_cuda_driver))
            found.without.push_back(*pid);
    }
    return found;
}

std::string listed(std::vector<std::uint64_t> pids) {
    std::ranges::sort(pids);
    std::string text;
    for (std::size_t i = 0; i < std::min(pids.size(), MAX_LISTED); ++i)
        text += fmt::format("{}{}", i == 0 ? "" : ", ", pids[i]);
    if (pids.size() > MAX_LISTED)
        text += fmt::format(" and {} more", pids.size() - MAX_LISTED);
    return text;
}

} // namespace

std::vector<Check> check_gpu(const DoctorOptions &options) {
    const auto installed = options.guest_libraries();
    const CudaProcesses processes = cuda_processes(options.root);
    std::string found =
        installed.empty() ? fmt::format("{} is not installed", CW_GPU_LIBRARY) : installed.front();
    if (!processes.with.empty())
        found += "; loaded in process " + listed(processes.with);
    if (!processes.without.empty())
        found += "; CUDA processes without it: " + listed(processes.without);
    if (processes.with.empty() && processes.without.empty())
        found += "; no CUDA process is visible";
    if (!installed.empty() && processes.without.empty())
        return {ok("GPU trace", std::move(found))};
    return {{"GPU trace", CheckState::Limited, std::move(found),
             processes.without.empty()
                 ? "record --gpu has no library to load into CUDA processes"
                 : "record --gpu cannot record the kernels of the processes without it",
             installed.empty()
                 ? fmt::format("install {} next to collwire", CW_GPU_LIBRARY)
                 : "start their jobs with collwire run -- CMD, or record --gpu --inject PID",
             false, installed.empty() ? Code::NoGuestLibrary : Code::GuestLibraryNotLoaded}};
}

} // namespace collwire::doctor
