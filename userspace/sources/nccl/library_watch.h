// SPDX-License-Identifier: Apache-2.0
// Decides which processes are searched for NCCL libraries, and when; writes the libraries' records.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include <sys/types.h>

#include "collwire/recorder_records.h"
#include "userspace/process/process_polls.h"
#include "userspace/source/source.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::sources {

class LibraryWatch {
public:
    struct Options {
        // Whether CW_KIND_FILE_MAPPED records come. Without them processes are polled: with every
        // sample while they are young, later less often.
        std::function<bool()> has_mapping_records;
        // Emit the next mapping of a file with one of these numbers again. May be empty.
        std::function<void(const NcclLibraries::Inodes &)> rearm_mappings;
        // There are libraries with a greater number than this one.
        std::function<void(std::uint32_t last_known)> on_new_libraries;
        // Whether a library's number is in records of processes that run.
        std::function<bool(std::uint32_t image_id)> is_used;
    };

    LibraryWatch(NcclLibraries &libraries, Options options)
        : libraries_(libraries), options_(std::move(options)) {}

    // All processes, without on_new_libraries. Returns them.
    std::vector<pid_t> scan_all();
    void on_file_mapped(const cw_file_mapped &record);
    // `starts_segment`: records that were sampled before it may be written after its start, so no
    // library is forgotten.
    void poll(bool starts_segment);
    // New libraries with their probes; all libraries without probes, with `everything`.
    void append(source::RecordSink &sink, bool everything);

private:
    struct Mapped {
        pid_t pid = 0;
        std::uint64_t inode = 0;
        bool is_known = false; // whether the file is NCCL
    };

    void scan(const std::vector<pid_t> &pids);
    void scan_mapped();
    void poll_processes();
    void forget_libraries();

    NcclLibraries &libraries_;
    Options options_;
    std::vector<Mapped> mapped_;    // since the last poll
    std::vector<pid_t> unfinished_; // have files that there was no time for
    process::ProcessPolls polls_;
    std::uint32_t last_written_ = 0; // the greatest number in a record
};

} // namespace collwire::sources
