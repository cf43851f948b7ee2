// SPDX-License-Identifier: Apache-2.0
// NCCL's parameters (NCCL_IB_QPS_PER_CONNECTION ...) in each process: NCCL reads each of them at
// its first use.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "userspace/source/source.h"
#include "userspace/sources/nccl/libraries.h"
#include "userspace/sources/nccl/pending_records.h"
#include "userspace/sources/nccl/process_watch.h"

namespace collwire::sources {

class ParameterWatch {
public:
    ParameterWatch(const NcclLibraries &libraries, PendingRecords &pending)
        : libraries_(libraries), pending_(pending) {}

    // Reads the parameters of a process from memory.
    void read(const LibraryUser &user);
    // NCCL reads the parameters of connections now, and others at the first operation on them:
    // poll() reads those of this process at once, and again after growing pauses.
    void on_connection(const LibraryUser &user);
    void poll();
    // The process may exit before the next poll().
    void on_comm_end(const LibraryUser &user);
    void forget(const LibraryUser &user) { processes_.erase(user); }
    void append(source::RecordSink &sink, const LibraryUser &user) const;

private:
    struct Process {
        std::map<std::string, std::int64_t> parameters; // as emitted
        std::uint64_t read_ns = 0;                      // 0: never
        std::uint64_t due_ns = UINT64_MAX;              // UINT64_MAX: not to be read again
        std::uint64_t pause_ns = 0;
    };

    void read(const LibraryUser &user, Process &process);

    const NcclLibraries &libraries_;
    PendingRecords &pending_;
    std::map<LibraryUser, Process> processes_;
};

} // namespace collwire::sources
