// SPDX-License-Identifier: Apache-2.0
// Events of ports and devices, and carrier edges (bpf/ports.bpf.c). docs/sources/ports.md
#pragma once

#include <string>

#include "userspace/sources/probed_source.h"

struct ports; // the skeleton of bpf/ports.bpf.c

namespace collwire::sources {

class PortEventSource : public ProbedSource<ports> {
public:
    // `ib_core_unknown`: of module_origin.h; if it is not empty, only netdevs are looked at.
    explicit PortEventSource(const loader::SharedMaps &maps, std::string ib_core_unknown = {},
                             loader::HookMode mode = loader::default_hook_mode());
    ~PortEventSource() override;

private:
    bool applicable() override { return true; }
    void choose(loader::KernelFunctions &functions, loader::HookMode mode) override;
    bool configure() override;
    std::string ib_core_unknown_;
};

} // namespace collwire::sources
