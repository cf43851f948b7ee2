// SPDX-License-Identifier: Apache-2.0
// The processes that have NCCL communicators, until they exit.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "userspace/source/source.h"
#include "userspace/sources/nccl/pending_records.h"

namespace collwire::sources {

// A process and a library that it has mapped: a process may have several.
struct LibraryUser {
    std::uint32_t tgid = 0;
    std::uint32_t image_id = 0;
    friend auto operator<=>(const LibraryUser &, const LibraryUser &) = default;
};

class ProcessWatch {
public:
    struct Exited {
        LibraryUser user;
        std::uint64_t start_boottime_ns = 0;
    };

    explicit ProcessWatch(PendingRecords &pending) : pending_(pending) {}

    // The process of a communicator. True: it is new, maybe with the number of one that exited.
    bool add(const cw_nccl_comm &record);
    // Removes the processes that exited since the last poll.
    std::vector<Exited> poll();
    [[nodiscard]] bool uses(std::uint32_t image_id) const;
    // Those with a communicator that have not exited by the last poll.
    [[nodiscard]] std::set<std::uint32_t> tgids() const;

    void append_exited(source::RecordSink &sink);
    // `append_more` appends the other records of a process after it.
    template <typename AppendMore>
    void append_all(source::RecordSink &sink, AppendMore append_more) const {
        for (const auto &[user, process] : processes_) {
            sink.append(record_of(user, process).header);
            append_more(user);
        }
    }

private:
    struct Process {
        std::uint64_t start_ticks = 0;
        std::uint64_t start_boottime_ns = 0;
        std::uint64_t there_ns = 0; // the last poll that found it running
    };

    static cw_nccl_process record_of(const LibraryUser &user, const Process &process);

    PendingRecords &pending_;
    std::map<LibraryUser, Process> processes_;
    std::vector<cw_nccl_process> exited_; // in no sample yet
};

} // namespace collwire::sources
