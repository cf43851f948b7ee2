// SPDX-License-Identifier: Apache-2.0
// What `collwire record` does with a plan.
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

std::string basis_of(const Plan &plan, std::string_view capability, std::size_t most_bytes) {
    const Capability *found = find_capability(plan, capability);
    if (found == nullptr || found->source.empty() || plan.debug_file.empty())
        return found == nullptr ? std::string{} : found->source;
    std::string text = fmt::format("{} ({})", found->source, plan.debug_file);
    if (text.size() > most_bytes)
        text = fmt::format("{} ({})", found->source,
                           std::filesystem::path(plan.debug_file).filename().native());
    return text;
}

bool sees_all_launches(const Plan &plan) {
    const std::uint32_t version = version_number(plan.version);
    return version != 0 && version < FIRST_WITH_UNSEEN_LAUNCHES;
}

bool measures_times(const Plan &plan) {
    const Capability *times = find_capability(plan, "times");
    return times != nullptr && times->rung == Rung::Exact;
}

bool tells_of_sockets(const Plan &plan) {
    const auto type = plan.enumerators.lower_bound("ncclSocketType");
    return plan.offsets.contains("ncclSocket.type") && type != plan.enumerators.end() &&
           type->first.starts_with("ncclSocketType") &&
           (plan.offsets.contains("ncclSocket.fd") ||
            plan.offsets.contains("ncclSocket.socketDescriptor"));
}

Placed placed_when(const Plan &plan, const PlannedFunction &probe) {
    if (!plan.not_recorded.empty())
        return Placed::Never;
    if (!plan.calls_only.empty())
        return is_exported_call(probe.function) ? Placed::Always : Placed::Never;
    if (std::ranges::find(NEEDED_FUNCTIONS, probe.function) != NEEDED_FUNCTIONS.end() ||
        probe.function == "ncclLocalOpAppend")
        return Placed::Always;
    if (probe.function == "ncclSocketClose")
        return tells_of_sockets(plan) ? Placed::Always : Placed::Never;
    if (probe.function == "hostStreamPlanTask")
        return sees_all_launches(plan) ? Placed::Never : Placed::LocalLaunches;
    if (probe.function.starts_with("ncclProfiler"))
        return measures_times(plan) ? Placed::NetworkTimes : Placed::Never;
    const PlannedFunction *warning = find_warning(plan);
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
