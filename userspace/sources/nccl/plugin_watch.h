// SPDX-License-Identifier: Apache-2.0
// Connections through a network plugin, whose queue pairs NcclPlugins finds.
#pragma once

#include <string>
#include <utility>

#include "collwire/nccl_connection_records.h"
#include "userspace/source/source.h"
#include "userspace/sources/nccl/comm_registry.h"
#include "userspace/sources/nccl/plugins.h"

namespace collwire::sources {

class PluginWatch {
public:
    PluginWatch(const NcclLibraries &libraries, CommRegistry &comms,
                NcclPlugins::ReadNumbers read_numbers)
        : libraries_(libraries), comms_(comms), plugins_(std::move(read_numbers)) {}

    // Connections that are not a plugin's are ignored.
    void add(const CommAddress &address, const cw_nccl_connection &connection);
    // Searches if there was no search for long enough.
    void poll_if_due();
    // What was found, and with `everything` all networks. Connections of communicators that have
    // ended since are appended, too: a new segment has the others twice.
    void append(source::RecordSink &sink, bool everything, bool is_last);
    void forget(std::uint32_t tgid) { plugins_.forget(tgid); }
    void remove(const CommAddress &address) { plugins_.forget({address.tgid, address.comm}); }
    // Empty: the queue pairs of all connections were searched. `is_over`: no search follows.
    [[nodiscard]] std::string problem(bool is_over) const;

private:
    void poll();

    const NcclLibraries &libraries_;
    CommRegistry &comms_;
    NcclPlugins plugins_;
    NcclPlugins::Found found_; // in no sample yet
};

} // namespace collwire::sources
