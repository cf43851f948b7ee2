// SPDX-License-Identifier: Apache-2.0
#include "ports.skel.h"

#include "userspace/sources/port_event_source.h"

#include <sys/stat.h>

namespace collwire {
namespace {

// Without carrier edges there is no source; without the others it tells less.
Hook entry(const char *function, unsigned parameters, const char *fentry, const char *kprobe,
           bool optional) {
    Hook hook;
    hook.function = function;
    hook.parameters = parameters;
    hook.fentry = fentry;
    hook.kprobe = kprobe;
    hook.optional = optional;
    return hook;
}

} // namespace

PortEventSource::PortEventSource(const SharedMaps &maps, HookMode mode)
    : ProbedSource(
          maps, "ports",
          {entry("ib_dispatch_event", 1, "dispatch_fentry", "dispatch_kprobe", true),
           entry("__ib_unregister_device", 1, "unregister_fentry", "unregister_kprobe", true),
           entry("netif_carrier_on", 1, "carrier_on_fentry", "carrier_on_kprobe", false),
           entry("netif_carrier_off", 1, "carrier_off_fentry", "carrier_off_kprobe", false)},
          mode) {}

PortEventSource::~PortEventSource() = default;

bool PortEventSource::configure() {
    for (const auto *function : {"netif_carrier_on", "netif_carrier_off"})
        if (!need(function))
            return false;
    for (const auto *function : {"ib_dispatch_event", "__ib_unregister_device"})
        if (!hooks_.present(function))
            unusable(CW_SOURCE_DEGRADED, "carrier edges only: " + hooks_.why_absent(function));
    struct stat network_namespace = {};
    if (stat("/proc/self/ns/net", &network_namespace) == 0)
        skeleton_->rodata->recorder_netns = static_cast<std::uint32_t>(network_namespace.st_ino);
    return true;
}

} // namespace collwire
