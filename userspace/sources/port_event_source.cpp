// SPDX-License-Identifier: Apache-2.0
#include "ports.skel.h"

#include "userspace/sources/port_event_source.h"

#include <sys/stat.h>

namespace collwire::sources {
namespace {

// Those that are called with what ib_core defines.
const std::vector<std::string_view> of_ib_core = {"ib_dispatch_event", "__ib_unregister_device"};

// Without carrier edges there is no source; without the others it reports less.
loader::Hook entry(std::string_view function, unsigned parameters, const char *fentry,
                   const char *kprobe, const char *without) {
    loader::Hook hook;
    hook.function = function;
    hook.parameters = parameters;
    hook.fentry = fentry;
    hook.kprobe = kprobe;
    hook.without = without;
    return hook;
}

} // namespace

PortEventSource::PortEventSource(const loader::SharedMaps &maps, std::string ib_core_unknown,
                                 loader::HookMode mode)
    : ProbedSource(maps, "ports",
                   {entry(of_ib_core[0], 1, "dispatch_fentry", "dispatch_kprobe", "no port events"),
                    entry(of_ib_core[1], 1, "unregister_fentry", "unregister_kprobe",
                          "no removals of devices"),
                    entry("netif_carrier_on", 1, "carrier_on_fentry", "carrier_on_kprobe", ""),
                    entry("netif_carrier_off", 1, "carrier_off_fentry", "carrier_off_kprobe", "")},
                   mode),
      ib_core_unknown_(std::move(ib_core_unknown)) {}

PortEventSource::~PortEventSource() = default;

void PortEventSource::choose(loader::KernelFunctions &functions, loader::HookMode) {
    if (!ib_core_unknown_.empty())
        functions.forget(of_ib_core);
}

bool PortEventSource::configure() {
    for (const auto *function : {"netif_carrier_on", "netif_carrier_off"})
        if (!need(function))
            return false;
    if (!ib_core_unknown_.empty())
        degrade("carrier changes only: " + ib_core_unknown_ +
                ". Fix: load the in-tree ib_core, or rebuild that module with BTF");
    struct stat network_namespace = {};
    if (stat("/proc/self/ns/net", &network_namespace) == 0)
        skeleton_->rodata->recorder_netns = static_cast<std::uint32_t>(network_namespace.st_ino);
    return true;
}

} // namespace collwire::sources
