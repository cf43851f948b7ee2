// SPDX-License-Identifier: Apache-2.0
// Takes probes off the code of processes, whatever becomes of this one meanwhile.
#pragma once

#include <span>

struct bpf_link;

namespace collwire::loader {

// Destroys links of uprobes, and returns when the kernel has removed their breakpoints. A process
// that is killed while it closes such a link leaves the breakpoint behind: with a SIGKILL pending
// the kernel does not reach for the pages of others (fatal_signal_pending() in __get_user_pages(),
// EINTR), and does not try again. So the last descriptors are those of a child that only exits,
// where no signal is heard any more. Without a child they are closed here. Takes the links; null
// ones are passed over.
void take_off(std::span<bpf_link *const> links);

} // namespace collwire::loader
