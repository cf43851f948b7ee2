// SPDX-License-Identifier: Apache-2.0
// How `collwire record` uses a layout.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/exported_layout.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/recipe.h"

namespace collwire::nccl {
namespace {

// Up to 2.26 NCCL calls ncclProxyStart for each launch.
constexpr std::uint32_t FIRST_WITH_UNSEEN_LAUNCHES = 22700;

} // namespace

std::string basis_of(const LibraryLayout &layout, std::string_view capability,
                     std::size_t most_bytes) {
    const Capability *found = find_capability(layout, capability);
    if (found == nullptr || found->source.empty() || layout.debug_file.empty())
        return found == nullptr ? std::string{} : found->source;
    std::string text = fmt::format("{} ({})", found->source, layout.debug_file);
    if (text.size() > most_bytes)
        text = fmt::format("{} ({})", found->source,
                           std::filesystem::path(layout.debug_file).filename().native());
    return text;
}

bool sees_all_launches(const LibraryLayout &layout) {
    const std::uint32_t version = version_number(layout.version);
    return version != 0 && version < FIRST_WITH_UNSEEN_LAUNCHES;
}

bool measures_times(const LibraryLayout &layout) {
    const Capability *times = find_capability(layout, "times");
    return times != nullptr && times->rung == Certainty::Exact;
}

bool has_socket_fields(const LibraryLayout &layout) {
    const auto type = layout.enumerators.lower_bound("ncclSocketType");
    return layout.offsets.contains("ncclSocket.type") && type != layout.enumerators.end() &&
           type->first.starts_with("ncclSocketType") &&
           (layout.offsets.contains("ncclSocket.fd") ||
            layout.offsets.contains("ncclSocket.socketDescriptor"));
}

Placed placed_when(const LibraryLayout &layout, const ProbedFunction &probe) {
    if (!layout.not_recorded.empty())
        return Placed::Never;
    if (!layout.calls_only.empty())
        return is_exported_call(probe.function) ? Placed::Always : Placed::Never;
    if (std::ranges::find(NEEDED_FUNCTIONS, probe.function) != NEEDED_FUNCTIONS.end() ||
        probe.function == "ncclLocalOpAppend")
        return Placed::Always;
    if (probe.function == "ncclSocketClose")
        return has_socket_fields(layout) ? Placed::Always : Placed::Never;
    if (probe.function == "hostStreamPlanTask")
        return sees_all_launches(layout) ? Placed::Never : Placed::LocalLaunches;
    if (probe.function.starts_with("ncclProfiler"))
        return measures_times(layout) ? Placed::NetworkTimes : Placed::Never;
    const ProbedFunction *warning = find_warning(layout);
    return warning != nullptr && warning->function == probe.function ? Placed::Warnings
                                                                     : Placed::Never;
}

std::string_view placed_name(Placed placed) {
    switch (placed) {
    case Placed::Always:
        return "always";
    case Placed::LocalLaunches:
        return "--local-launches";
    case Placed::NetworkTimes:
        return "--network-times";
    case Placed::Warnings:
        return "--warnings";
    case Placed::Never:
        break;
    }
    return {};
}

} // namespace collwire::nccl
