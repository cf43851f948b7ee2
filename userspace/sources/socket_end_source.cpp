// SPDX-License-Identifier: Apache-2.0
#include "socket_ends.skel.h"

#include "userspace/sources/socket_end_source.h"

namespace collwire::sources {
namespace {

// Linux 4.16.
constexpr const char *TRACEPOINT = "inet_sock_set_state";

loader::Hook state_hook() {
    loader::Hook hook;
    hook.function = TRACEPOINT;
    hook.raw_tracepoint = "socket_state";
    return hook;
}

} // namespace

SocketEndSource::SocketEndSource(const loader::SharedMaps &maps)
    : ProbedSource(maps, "socket_ends", {state_hook()}, loader::default_hook_mode()) {}

SocketEndSource::~SocketEndSource() = default;

bool SocketEndSource::configure() {
    return need(TRACEPOINT);
}

} // namespace collwire::sources
