// SPDX-License-Identifier: Apache-2.0
// Writes a recording as one capture file, or as rotating segments with limits of age and size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "collwire/record.h"
#include "correlate/capture/encoder.h"
#include "userspace/capture/storage.h"
#include "userspace/source/source.h"

namespace collwire::capture {

inline constexpr std::uint64_t MIN_MAX_BYTES = 64U
                                               << 10; // the smallest max_bytes allowed, except 0

struct WriterOptions {
    std::string directory = "."; // made where it does not exist; other files in it are left alone
    std::string host = {};       // the first part of the file name
    std::size_t block_bytes = 256U
                              << 10; // of records, uncompressed, after which a block is written
    std::uint64_t keep_ns = 0;       // older segments are deleted; 0: no limit
    std::uint64_t max_bytes = 0; // of all segments on disk, in blocks of 4 KiB each; 0: no limit
    std::uint64_t tick_ns = 1'000'000'000; // how often flush() is called
    int zstd_level = 1;
    // CLOCK_REALTIME for file names; empty: the system's.
    std::function<std::uint64_t()> realtime_ns = nullptr;
    // For tests: replaces `directory`.
    std::shared_ptr<Storage> storage = nullptr;
};

// Appends the preamble of a segment to `sink`: node (with this segment number), devices, ports,
// sources, probes, counter definitions, processes and live QPs, and the current values of all
// cumulative counters. Called at the start of a segment, and again within one after records were
// lost. Called from begin(), flush(), rotate_if_due() and close() only, never from append(): a
// source may append while it is being sampled.
using Preamble = std::function<void(source::RecordSink &sink, std::uint32_t segment)>;

// Not thread-safe. A failed write never stops the recording: the file is cut back to its last good
// block, the lost records are counted, and the next block is tried again.
class CaptureWriter final : public source::RecordSink {
public:
    // Creates the first file: <host>-<UTC, as 20261121T034500.123Z>.cwc, with -1, -2, ... before
    // ".cwc" if that exists. NotPermitted or Failed with the path if it cannot be created; Usage
    // for limits that are too small.
    static Result<std::unique_ptr<CaptureWriter>> create(WriterOptions options, Preamble preamble);
    // Closes the file without an END record if close() was not called; removes an empty file.
    ~CaptureWriter() override;

    // Writes the first preamble. Records appended before are buffered, up to MAX_BLOCK_RAW_BYTES,
    // and follow it. `now_ns` is CLOCK_MONOTONIC here and below.
    void begin(std::uint64_t now_ns) { flush(now_ns); }

    // Copies record.length_bytes bytes; writes a block when enough are buffered. A record of an
    // impossible length is counted as lost.
    void append(const cw_header &record) override;

    // Writes the buffered records, starts a new segment and deletes old ones as the limits require.
    // Call it every tick_ns.
    void flush(std::uint64_t now_ns);

    // The same, only if the segment has reached its size or age. Call it between two batches of
    // records when many arrive.
    void rotate_if_due(std::uint64_t now_ns);

    // No new segment starts from now on: the recording has ended, and the preamble of a new segment
    // would contain later state.
    void stop_rotating() { rotates_ = false; }

    // Writes the buffered records and an END record of ended_ns (0: now), and closes the file.
    // Later calls of any function do nothing. An exit status of 0 is written as EXIT_LOSS if
    // records were lost, even at the last moment; an empty file is removed. Fails if the END record
    // alone could not be written or the file system reports a late error; an END record dropped
    // with other records is their loss, not a failure.
    Result<void> close(std::uint64_t now_ns, std::uint32_t reason, std::uint32_t exit_status,
                       std::uint64_t ended_ns = 0);

    // Appended records (without preambles, which are written again) that are in no file.
    // Cumulative.
    [[nodiscard]] std::uint64_t lost_records() const { return lost_records_; }
    // The first failure of writing, once; nothing afterwards or without a failure.
    [[nodiscard]] std::optional<Error> take_failure();
    // Of the file being written.
    [[nodiscard]] const std::string &file_name() const { return current_.name; }
    [[nodiscard]] std::string path() const;
    [[nodiscard]] std::uint32_t segment() const { return segment_; }
    // Bytes on disk of this recording now, each file rounded up to 4 KiB.
    [[nodiscard]] std::uint64_t bytes_on_disk() const;
    // Segments deleted to keep the limits.
    [[nodiscard]] std::uint64_t deleted_segments() const { return deleted_segments_; }

private:
    struct Segment {
        std::string name;
        std::uint64_t size_bytes = 0; // up to the end of the last good block
        std::uint64_t begin_ns = 0;   // CLOCK_MONOTONIC
        std::uint64_t n_records = 0;  // without preambles
    };

    CaptureWriter(WriterOptions options, Preamble preamble);
    Result<void> open_segment(std::uint32_t segment);
    [[nodiscard]] bool rotation_due() const;
    void rotate();
    void make_again();
    void write_buffered();
    bool write_preamble();
    bool write_pending();
    bool write_block(BlockEncoder &encoder);
    bool write_all(std::span<const std::byte> bytes);
    bool write_end(std::uint64_t time_ns, std::uint32_t reason, std::uint32_t exit_status);
    bool make_room(std::uint64_t more_bytes);
    bool delete_oldest();
    void delete_expired();
    void remove_if_empty();
    void fail(std::string message);

    WriterOptions options_;
    Preamble preamble_;
    std::shared_ptr<Storage> storage_;
    std::unique_ptr<StorageFile> file_;
    BlockEncoder pending_;
    BlockEncoder preamble_block_;
    BlockEncoder end_block_;
    Bytes file_header_; // not written yet where not empty
    Segment current_;
    std::deque<Segment> closed_; // oldest first
    std::uint32_t segment_ = 0;
    std::uint32_t sequence_ = 0;           // of the next block of this file
    std::uint64_t preamble_end_bytes_ = 0; // size of this file with its preamble
    std::uint64_t now_ns_ = 0;
    std::uint64_t lost_records_ = 0;
    std::uint64_t deleted_segments_ = 0;
    bool has_preamble_ = false; // this file
    bool has_block_ = false;    // this file: of any kind
    bool in_preamble_ = false;  // append() is called by the preamble
    bool preamble_failed_ = false;
    bool rotates_ = true;
    bool is_own_storage_ = false;
    bool resync_ = false;     // records were lost: write the preamble again
    bool dirty_tail_ = false; // a half-written block may follow the last good one
    bool closed_for_good_ = false;
    std::optional<Error> failure_;
    bool failed_before_ = false;
};

} // namespace collwire::capture
