// SPDX-License-Identifier: Apache-2.0
// Detaches uprobes even if this process is killed meanwhile.
#pragma once

#include <span>

struct bpf_link;

namespace collwire::loader {

// Destroys links of uprobes, and returns when the kernel has removed their breakpoints. A process
// that is killed while it closes such a link leaves the breakpoint in place: with a SIGKILL pending
// the kernel does not access other processes' pages (fatal_signal_pending() in __get_user_pages(),
// EINTR), and does not retry. So a child holds the last descriptors and only exits: an exiting
// process takes no signal. Without a child they are closed here. Takes ownership of the links; null
// ones are skipped.
void take_off(std::span<bpf_link *const> links);

} // namespace collwire::loader
