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
    // NCCL has read the parameters of connections by now: poll() reads those of this process again.
    void on_connection(const LibraryUser &user);
    void poll();
    void forget(const LibraryUser &user) { processes_.erase(user); }
    void append(source::RecordSink &sink, const LibraryUser &user) const;

private:
    struct Process {
        std::map<std::string, std::int64_t> parameters; // as emitted
        bool is_due = false;
    };

    void read(const LibraryUser &user, Process &process);

    const NcclLibraries &libraries_;
    PendingRecords &pending_;
    std::map<LibraryUser, Process> processes_;
};

} // namespace collwire::sources
