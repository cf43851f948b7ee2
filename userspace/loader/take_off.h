// SPDX-License-Identifier: Apache-2.0
// Detaches uprobes even if this process is killed meanwhile.
#pragma once

#include <span>

#include <sys/types.h>

struct bpf_link;

namespace collwire::loader {

// Destroys links of uprobes, and returns when the kernel has removed their breakpoints. A process
// that is killed while it closes such a link leaves the breakpoint in place: with a SIGKILL pending
// the kernel does not access other processes' pages (fatal_signal_pending() in __get_user_pages(),
// EINTR), and does not retry. So a child holds the last descriptors and only exits: an exiting
// process takes no signal. Without a child they are closed here. Takes ownership of the links; null
// ones are skipped.
// `held_by`: processes that would keep the kernel waiting (process::silent_users). Then a process
// that stays behind keeps the links until they answer, and take_off does not wait for it.
void take_off(std::span<bpf_link *const> links, std::span<const pid_t> held_by = {});

// The same for links of any kind, but returns when their programs run no more (fentry: soon after).
// The kernel removes the breakpoints, with a wait for each, while the child exits. `held_by`: as
// above.
void start_taking_off(std::span<bpf_link *const> links, std::span<const pid_t> held_by = {});

// Whether breakpoints of start_taking_off may still be in place.
[[nodiscard]] bool is_taking_off();

} // namespace collwire::loader
