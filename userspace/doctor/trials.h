// SPDX-License-Identifier: Apache-2.0
// Tries kernel features. Each trial undoes its changes before it returns and changes nothing that
// another process could see.
#pragma once

#include <functional>
#include <string>

namespace collwire::doctor {

struct Trial {
    enum class Outcome { Works, NotPermitted, Fails };
    Outcome outcome = Outcome::Fails;
    std::string reason; // empty if it works
};

struct Trials {
    std::function<Trial()> ring_buffer;
    std::function<Trial()> kprobe;
    std::function<Trial()> uprobe;
    std::function<Trial()> fentry;
    // BPF memory is charged to the cgroup (5.11), not to the limit of locked memory.
    std::function<Trial()> memory_in_cgroup;
    // A BPF program on the tracepoint of TCP sockets' states.
    std::function<Trial()> tracepoint;
};

// On this machine.
Trials machine_trials();

} // namespace collwire::doctor
