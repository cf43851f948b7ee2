// SPDX-License-Identifier: Apache-2.0
// The NCCL libraries that processes have mapped now, and how certain a recording of each would be.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "userspace/doctor/checks.h"
#include "userspace/inventory/files.h"
#include "userspace/process/process_view.h"

namespace collwire::doctor {
namespace {

constexpr std::size_t MAX_MAPS_BYTES = 64 << 20;
// Reading the debug data of one takes seconds.
constexpr std::size_t MAX_LIBRARIES = 4;

struct MappedLibrary {
    std::string pid;
    std::string path; // for this process
};

std::vector<MappedLibrary> mapped_libraries(const std::string &root) {
    std::vector<MappedLibrary> found;
    std::set<std::pair<std::uint64_t, std::string>> known;
    for (const std::string &pid : inventory::list_directory(root + "/proc")) {
        if (!inventory::parse_number(pid))
            continue;
        const auto text = inventory::read_file(
            inventory::concatenated(root, "/proc/", pid, "/maps"), MAX_MAPS_BYTES);
        if (!text || text->find("/libnccl.so") == std::string::npos)
            continue;
        for (const process::Mapping &mapping : process::parse_maps(*text)) {
            const std::string_view path = mapping.path;
            if (!mapping.executable || !path.substr(path.rfind('/') + 1).starts_with("libnccl.so"))
                continue;
            if (known.emplace(mapping.inode, mapping.path).second)
                found.push_back({pid, inventory::concatenated(root, "/proc/", pid, "/root", path)});
        }
    }
    return found;
}

Check of_worst(const NcclLook &worst, std::string found) {
    const std::string name = "NCCL in use";
    switch (worst.outcome) {
    case NcclLook::Outcome::Exact:
        return ok(name, std::move(found));
    case NcclLook::Outcome::Inferred:
        return {name,
                CheckState::Limited,
                std::move(found),
                "operations are inferred; no --network-times, --warnings and NCCL parameters",
                "record --symbols PLACE: the unstripped library or debug file of this build",
                false,
                Code::NcclInferred};
    case NcclLook::Outcome::Unknown:
        return {name,
                CheckState::Limited,
                std::move(found),
                "only calls are recorded: no algorithm, no times, bytes of almost no operation",
                "record --symbols PLACE: the unstripped library or debug file of this build",
                false,
                Code::NcclUnknown};
    case NcclLook::Outcome::Unreadable:
        break;
    }
    return {name,
            CheckState::Limited,
            std::move(found),
            "what can be recorded of this library is not known",
            privilege_fix_without_root,
            true,
            Code::NcclUnreadable};
}

} // namespace

std::vector<Check> check_nccl(const DoctorOptions &options) {
    if (!options.nccl_library)
        return {};
    const auto libraries = mapped_libraries(options.root);
    if (libraries.empty())
        return {ok("NCCL in use", "no visible process has NCCL mapped; of a file: collwire doctor "
                                  "--nccl FILE")};
    NcclLook worst;
    std::string found;
    for (std::size_t i = 0; i < std::min(libraries.size(), MAX_LIBRARIES); ++i) {
        const NcclLook look = options.nccl_library(libraries[i].path);
        if (i == 0 || look.outcome > worst.outcome)
            worst = look;
        found += fmt::format("{}process {}: {}", i == 0 ? "" : "; ", libraries[i].pid, look.text);
    }
    if (libraries.size() > MAX_LIBRARIES)
        found += fmt::format("; {} more libraries were not read", libraries.size() - MAX_LIBRARIES);
    return {of_worst(worst, std::move(found))};
}

} // namespace collwire::doctor
