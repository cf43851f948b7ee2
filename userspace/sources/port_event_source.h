// SPDX-License-Identifier: Apache-2.0
// Events of ports and devices, and carrier edges (bpf/ports.bpf.c). docs/sources/ports.md
#pragma once

#include "userspace/sources/probed_source.h"

struct ports; // the skeleton of bpf/ports.bpf.c

namespace collwire {

class PortEventSource : public ProbedSource<ports> {
public:
    explicit PortEventSource(const SharedMaps &maps, HookMode mode = default_hook_mode());
    ~PortEventSource() override;

private:
    bool applicable() override { return true; }
    bool configure() override;
};

} // namespace collwire
