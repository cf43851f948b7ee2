// SPDX-License-Identifier: Apache-2.0
#include "userspace/capture/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/exit_status.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"

namespace collwire::capture {
namespace {

constexpr std::uint64_t DISK_UNIT_BYTES = 4096;
constexpr std::uint64_t SEGMENTS_IN_LIMIT = 8; // a segment covers 1/8 of keep_ns or max_bytes
constexpr std::uint64_t END_BLOCK_BYTES = 128; // at most: the block of a cw_end
constexpr int MAX_NAME_SUFFIX = 9999;

std::uint64_t on_disk(std::uint64_t bytes) {
    return (bytes + DISK_UNIT_BYTES - 1) / DISK_UNIT_BYTES * DISK_UNIT_BYTES;
}

std::uint64_t system_realtime_ns() {
    return clock_ns(CLOCK_REALTIME);
}

std::string file_stem(std::string_view host, std::uint64_t realtime_ns) {
    std::string stem(host.substr(0, 100));
    for (char &c : stem)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.' && c != '_')
            c = '_';
    if (stem.empty() || stem.front() == '.')
        stem.insert(0, "_");
    const auto seconds = static_cast<std::time_t>(realtime_ns / 1'000'000'000);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    return fmt::format("{}-{:04}{:02}{:02}T{:02}{:02}{:02}.{:03}Z", stem, utc.tm_year + 1900,
                       utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                       realtime_ns / 1'000'000 % 1000);
}

} // namespace

CaptureWriter::CaptureWriter(WriterOptions options, Preamble preamble)
    : options_(std::move(options)), preamble_(std::move(preamble)), storage_(options_.storage),
      pending_(options_.zstd_level), preamble_block_(options_.zstd_level),
      end_block_(options_.zstd_level) {}

CaptureWriter::~CaptureWriter() {
    if (!file_)
        return;
    file_->close();
    remove_if_empty();
}

Result<std::unique_ptr<CaptureWriter>> CaptureWriter::create(WriterOptions options,
                                                             Preamble preamble) {
    if (options.max_bytes != 0 && options.max_bytes < MIN_MAX_BYTES)
        return error(
            ErrorKind::Usage,
            fmt::format(
                "a limit of {} bytes is too small for a capture. Fix: give {} bytes or more",
                options.max_bytes, MIN_MAX_BYTES));
    options.block_bytes =
        std::clamp<std::size_t>(options.block_bytes, sizeof(cw_header), MAX_BLOCK_RAW_BYTES / 2);
    if (options.max_bytes != 0)
        options.block_bytes =
            std::min<std::size_t>(options.block_bytes, options.max_bytes / (4 * SEGMENTS_IN_LIMIT));
    if (!options.realtime_ns)
        options.realtime_ns = system_realtime_ns;
    const bool is_own_storage = !options.storage;
    if (is_own_storage) {
        auto directory = open_directory(options.directory);
        if (!directory)
            return std::move(directory).failure();
        options.storage = *std::move(directory);
    }
    std::unique_ptr<CaptureWriter> writer(
        new CaptureWriter(std::move(options), std::move(preamble)));
    writer->is_own_storage_ = is_own_storage;
    if (auto opened = writer->open_segment(0); !opened)
        return std::move(opened).failure();
    if (writer->failure_)
        return *std::move(writer->failure_);
    return writer;
}

// Creates the next file and its header. A failure changes nothing.
Result<void> CaptureWriter::open_segment(std::uint32_t segment) {
    const std::uint64_t realtime_ns = options_.realtime_ns();
    const std::string stem = file_stem(options_.host, realtime_ns);
    std::string name = stem + ".cwc";
    std::unique_ptr<StorageFile> file;
    int status = storage_->create(name, file);
    for (int suffix = 1; status == -EEXIST && suffix <= MAX_NAME_SUFFIX; suffix++) {
        name = fmt::format("{}-{}.cwc", stem, suffix);
        status = storage_->create(name, file);
    }
    if (status != 0)
        return error(
            status == -EACCES || status == -EPERM ? ErrorKind::NotPermitted : ErrorKind::Failed,
            fmt::format("{}/{}: cannot create the capture file: {}. Fix: make {} writable, or give "
                        "another directory with -o",
                        options_.directory, name, std::strerror(-status), options_.directory));
    if (file_) {
        write_end(now_ns_, 2, 0);
        file_->close();
        closed_.push_back(std::move(current_));
    }
    file_ = std::move(file);
    current_ = Segment{.name = std::move(name), .size_bytes = 0, .begin_ns = now_ns_};
    segment_ = segment;
    sequence_ = 0;
    has_preamble_ = false;
    has_block_ = false;
    dirty_tail_ = false;
    file_header_ = encode_file_header({.start_realtime_ns = realtime_ns});
    if (make_room(file_header_.size()))
        write_all({});
    return {};
}

void CaptureWriter::append(const cw_header &record) {
    if (closed_for_good_) {
        lost_records_++;
        return;
    }
    BlockEncoder &encoder = in_preamble_ ? preamble_block_ : pending_;
    if (!encoder.empty() && encoder.raw_bytes() + record.length_bytes > MAX_BLOCK_RAW_BYTES) {
        if (in_preamble_) {
            preamble_failed_ = !write_block(preamble_block_) || preamble_failed_;
            preamble_block_.clear();
        } else if (has_preamble_) {
            write_pending();
        }
    }
    if (!encoder.add(record)) {
        lost_records_++;
        return;
    }
    if (!in_preamble_ && has_preamble_ && pending_.raw_bytes() >= options_.block_bytes)
        write_pending();
}

void CaptureWriter::flush(std::uint64_t now_ns) {
    if (closed_for_good_)
        return;
    now_ns_ = std::max(now_ns_, now_ns);
    if (current_.begin_ns == 0)
        current_.begin_ns = now_ns_;
    if (file_->is_gone())
        make_again();
    write_buffered();
    if (rotation_due())
        rotate();
    delete_expired();
}

// Its records are lost, and the next segment starts with all that is known.
void CaptureWriter::make_again() {
    const std::string gone = path();
    lost_records_ += std::exchange(current_.n_records, 0);
    if (is_own_storage_) {
        auto directory = open_directory(options_.directory);
        if (!directory) {
            fail(fmt::format("{}: was deleted while it was written: {}", gone,
                             directory.failure().message));
            return;
        }
        options_.storage = *std::move(directory);
        storage_ = options_.storage;
    }
    if (auto opened = open_segment(segment_ + 1); !opened) {
        fail(fmt::format("{}: was deleted while it was written: {}", gone,
                         opened.failure().message));
        return;
    }
    fail(fmt::format("{}: was deleted while it was written: its records are lost. The recording "
                     "continues in {}",
                     gone, path()));
}

void CaptureWriter::rotate_if_due(std::uint64_t now_ns) {
    now_ns_ = std::max(now_ns_, now_ns);
    if (rotation_due())
        flush(now_ns);
}

bool CaptureWriter::rotation_due() const {
    if (!has_preamble_ || !rotates_)
        return false;
    if (options_.keep_ns != 0 &&
        now_ns_ - current_.begin_ns >=
            std::max<std::uint64_t>(options_.keep_ns / SEGMENTS_IN_LIMIT, 1))
        return true;
    return options_.max_bytes != 0 &&
           current_.size_bytes - preamble_end_bytes_ >= options_.max_bytes / SEGMENTS_IN_LIMIT;
}

void CaptureWriter::rotate() {
    if (auto opened = open_segment(segment_ + 1); !opened) {
        fail(std::move(opened).failure().message);
        return;
    }
    write_buffered();
}

// Writes the preamble first if this file has none: it describes the state before the buffered
// records, or includes them.
void CaptureWriter::write_buffered() {
    if (!has_preamble_ && !write_preamble())
        return;
    if (write_pending() && resync_)
        write_preamble();
}

bool CaptureWriter::write_preamble() {
    in_preamble_ = true;
    preamble_failed_ = false;
    preamble_(*this, segment_);
    in_preamble_ = false;
    if (!preamble_block_.empty())
        preamble_failed_ = !write_block(preamble_block_) || preamble_failed_;
    preamble_block_.clear();
    if (preamble_failed_)
        return false;
    if (!has_preamble_)
        preamble_end_bytes_ = current_.size_bytes;
    has_preamble_ = true;
    resync_ = false;
    return true;
}

bool CaptureWriter::write_pending() {
    if (pending_.empty())
        return true;
    const bool written = write_block(pending_);
    if (written) {
        current_.n_records += pending_.n_records();
    } else {
        lost_records_ += pending_.n_records();
        resync_ = true;
    }
    pending_.clear();
    return written;
}

bool CaptureWriter::write_block(BlockEncoder &encoder) {
    const auto block = encoder.encode(sequence_);
    if (!block) {
        fail(block.failure().message);
        return false;
    }
    if (!make_room(file_header_.size() + block->size())) {
        fail(fmt::format("{}: the limit of {} bytes leaves no room for a block of {} bytes. Fix: "
                         "give a larger --max",
                         path(), options_.max_bytes, block->size()));
        return false;
    }
    if (!write_all(*block))
        return false;
    sequence_++;
    return true;
}

// Writes the file header if it is missing, and `bytes`, after the last good block; all of it or
// nothing.
bool CaptureWriter::write_all(std::span<const std::byte> bytes) {
    Bytes with_header;
    if (!file_header_.empty()) {
        with_header = file_header_;
        with_header.insert(with_header.end(), bytes.begin(), bytes.end());
        bytes = with_header;
    }
    std::uint64_t end_bytes = current_.size_bytes;
    std::int64_t status = 0;
    while (!bytes.empty()) {
        status = file_->write_at(bytes, end_bytes);
        if (status == -EINTR)
            continue;
        if (status == 0)
            status = -ENOSPC;
        if (status < 0)
            break;
        const auto written = static_cast<std::size_t>(status);
        end_bytes += written;
        bytes = bytes.subspan(written);
    }
    if (status >= 0) {
        has_block_ = has_block_ || end_bytes > current_.size_bytes + file_header_.size();
        current_.size_bytes = end_bytes;
        file_header_.clear();
    }
    // Some file systems leave part of a failed write in the file, and a truncate may fail on a
    // broken disk, too: the tail stays marked until one succeeds. Blocks are written at the end of
    // the last good one all the same.
    if (status < 0 || dirty_tail_)
        dirty_tail_ = file_->truncate(current_.size_bytes) != 0;
    if (status >= 0)
        return true;
    fail(fmt::format("{}: cannot write: {}. The recording continues and counts lost records. Fix: "
                     "free space in {}, or give another directory with -o",
                     path(), std::strerror(static_cast<int>(-status)), options_.directory));
    return false;
}

bool CaptureWriter::write_end(std::uint64_t time_ns, std::uint32_t reason,
                              std::uint32_t exit_status) {
    cw_end end{};
    end.header.length_bytes = sizeof(end);
    end.header.kind = CW_KIND_END;
    end.header.cpu = CW_CPU_USERSPACE;
    end.header.time_ns = time_ns;
    end.reason = reason;
    end.exit_status = exit_status;
    end_block_.clear();
    if (!end_block_.add(end.header))
        return false;
    const auto block = end_block_.encode(sequence_);
    return block && block->size() <= END_BLOCK_BYTES && write_all(*block);
}

// Deletes the oldest segments until this file may grow by that much, and by its END block later.
bool CaptureWriter::make_room(std::uint64_t more_bytes) {
    if (options_.max_bytes == 0)
        return true;
    const auto fits = [&] {
        const std::uint64_t now = on_disk(current_.size_bytes);
        const std::uint64_t then = on_disk(current_.size_bytes + more_bytes + END_BLOCK_BYTES);
        return bytes_on_disk() - now + then <= options_.max_bytes;
    };
    while (!fits())
        if (!delete_oldest())
            return false;
    return true;
}

bool CaptureWriter::delete_oldest() {
    if (closed_.empty())
        return false;
    const std::string name = closed_.front().name;
    const int status = storage_->remove(name);
    // A missing file is fine; any other failure would let the files grow beyond the limit.
    if (status != 0 && status != -ENOENT) {
        fail(fmt::format("{}/{}: cannot delete the oldest segment: {}", options_.directory, name,
                         std::strerror(-status)));
        return false;
    }
    closed_.pop_front();
    deleted_segments_++;
    return true;
}

// Deletes a segment a little before its first record reaches keep_ns, because the next check is at
// the next flush.
void CaptureWriter::delete_expired() {
    if (options_.keep_ns == 0)
        return;
    const std::uint64_t early_ns = std::min(2 * options_.tick_ns, options_.keep_ns / 4);
    while (!closed_.empty() && closed_.front().begin_ns + options_.keep_ns <= now_ns_ + early_ns)
        if (!delete_oldest())
            return;
}

Result<void> CaptureWriter::close(std::uint64_t now_ns, std::uint32_t reason,
                                  std::uint32_t exit_status, std::uint64_t ended_ns) {
    if (closed_for_good_)
        return {};
    now_ns_ = std::max(now_ns_, now_ns);
    write_buffered();
    lost_records_ += pending_.n_records();
    pending_.clear();
    closed_for_good_ = true;
    if (exit_status == EXIT_DONE && lost_records_ != 0)
        exit_status = EXIT_LOSS;
    const bool ended = write_end(ended_ns == 0 ? now_ns_ : ended_ns, reason, exit_status);
    const int synced = file_->sync();
    const int closed = file_->close();
    file_.reset();
    remove_if_empty();
    if (!ended && lost_records_ == 0)
        return error(
            ErrorKind::Failed,
            fmt::format("{}: cannot write the end record; all records before it are complete",
                        path()));
    if (synced != 0 || closed != 0)
        return error(ErrorKind::Failed,
                     fmt::format("{}: closing the file failed: {}", path(),
                                 std::strerror(synced != 0 ? -synced : -closed)));
    return {};
}

// A file without a block has no data, and readers reject it.
void CaptureWriter::remove_if_empty() {
    if (!has_block_ && storage_->remove(current_.name) == 0)
        current_.size_bytes = 0;
}

void CaptureWriter::fail(std::string message) {
    if (!std::exchange(failed_before_, true))
        failure_ = error(ErrorKind::Failed, std::move(message));
}

std::optional<Error> CaptureWriter::take_failure() {
    return std::exchange(failure_, std::nullopt);
}

std::string CaptureWriter::path() const {
    return options_.directory + "/" + current_.name;
}

std::uint64_t CaptureWriter::bytes_on_disk() const {
    std::uint64_t bytes = on_disk(current_.size_bytes);
    for (const Segment &segment : closed_)
        bytes += on_disk(segment.size_bytes);
    return bytes;
}

} // namespace collwire::capture
