// SPDX-License-Identifier: Apache-2.0
// NCCL's errors of all communicators: read with each sample, after each warning, and where a
// communicator ends.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "collwire/nccl_comm_records.h"
#include "userspace/source/source.h"
#include "userspace/sources/nccl/errors.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::sources {

class ErrorWatch {
public:
    // `on_queue_pair_error`: an error that queue pairs may have caused. May be empty.
    ErrorWatch(const NcclLibraries &libraries, std::function<void()> on_queue_pair_error)
        : libraries_(libraries), on_queue_pair_error_(std::move(on_queue_pair_error)) {}

    void add(const cw_nccl_comm &record);
    void on_warning(std::uint32_t tgid);
    // Reads the text of the last error first: a rank that gives up on an error ends its
    // communicators next.
    void remove(std::uint32_t tgid, std::uint64_t comm);
    void forget(std::uint32_t tgid) { errors_.forget(tgid); }
    void poll() { add_new(errors_.sample()); }
    // New errors; with `everything` also those that were appended before and are still there.
    void append(source::RecordSink &sink, bool everything);

private:
    void add_new(const NcclErrors::Found &found);

    const NcclLibraries &libraries_;
    std::function<void()> on_queue_pair_error_;
    NcclErrors errors_;
    NcclErrors::Found new_; // in no sample yet
};

} // namespace collwire::sources
