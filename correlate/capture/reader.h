// SPDX-License-Identifier: Apache-2.0
// Decodes a capture from memory. Never does I/O, never allocates more than one block
// (MAX_BLOCK_RAW_BYTES).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "collwire/node_records.h"
#include "collwire/nvlink_records.h"
#include "collwire/port_records.h"
#include "collwire/record.h"
#include "correlate/capture/format.h"

namespace collwire::capture {

// Gets a copy of the record's header and the whole record (header included), which lives until the
// call returns.
using RecordVisitor = std::function<void(const cw_header &, std::span<const std::byte>)>;

// `length` bytes of a file from an offset on, which live until the next call; fewer where the file
// ends or cannot be read.
using ReadAt = std::function<std::span<const std::byte>(std::uint64_t offset, std::size_t length)>;
// Whether the records of a block are needed. Its header is not verified: the checksum covers its
// payload, too.
using BlockChooser = std::function<bool(const BlockHeader &)>;

// Where and why reading ended before the end of the file.
struct Cut {
    std::uint64_t offset_bytes = 0; // of the block that is truncated or corrupt
    std::string reason;
};

struct ReadSummary {
    std::uint16_t schema_major = 0;
    std::uint16_t schema_minor = 0;
    std::uint64_t start_realtime_ns = 0; // CLOCK_REALTIME when the file was made
    std::uint64_t blocks = 0;
    std::uint64_t blocks_left_out = 0; // of these; not read, and not checked for damage
    std::uint64_t records = 0;         // given to the visitor
    std::uint64_t unknown_records = 0; // of kinds that this program does not know: skipped
    std::uint64_t first_time_ns = 0;   // CLOCK_MONOTONIC of the node; 0 without records
    std::uint64_t last_time_ns = 0;
    std::uint64_t good_bytes = 0; // of the file, up to the end of the last good block
    std::optional<cw_end> end;    // the END record, if it is the last record
    std::optional<Cut>
        cut; // the file continues after the last good block, but not with a good block

    // Takes a good block into account, and then each of its records: false if the program does not
    // know its kind.
    void add(const BlockHeader &block);
    bool add(const cw_header &header, std::span<const std::byte> record);

    // Ends with an END record: nothing is missing at its end.
    [[nodiscard]] bool complete() const { return end.has_value() && !cut.has_value(); }
    // One line on how the file ends.
    [[nodiscard]] std::string describe() const;
};

// Calls `visit` for every record of every good block, in file order, up to the first block that is
// truncated or corrupt: this is not an error, the summary reports it. A block is checked as a whole
// before its first record is visited. BadInput: not a capture, truncated or corrupt in the file
// header, another major version. The message names the byte offset and the reason; put the file's
// name before it with Error::in.
[[nodiscard]] Result<ReadSummary> read_capture(std::span<const std::byte> file,
                                               const RecordVisitor &visit);

// The same for a file that is not in memory. Blocks that `choose` refuses are passed over by their
// headers.
[[nodiscard]] Result<ReadSummary> read_chosen_blocks(std::uint64_t file_bytes, const ReadAt &read,
                                                     const BlockChooser &choose,
                                                     const RecordVisitor &visit);

// The record as a T: fields that an older minor version lacks are 0; fields that a newer one
// appended are dropped.
template <typename T> [[nodiscard]] T record_as(std::span<const std::byte> record) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    std::memcpy(&value, record.data(), std::min(sizeof(T), record.size()));
    return value;
}

// The samples after a cw_counter_samples, at most as many as fit into the record.
[[nodiscard]] std::vector<cw_counter_sample> samples_of(std::span<const std::byte> record);
// The values after a cw_nvlink_sample, likewise.
[[nodiscard]] std::vector<cw_nvlink_value> nvlink_values_of(std::span<const std::byte> record);
// The ranks after a cw_nccl_channel, likewise.
[[nodiscard]] std::vector<std::int32_t> order_of(std::span<const std::byte> record);

// The text of a zero-filled field; safe for a field without a terminating zero.
template <std::size_t N> [[nodiscard]] std::string_view text_of(const char (&field)[N]) {
    return {field, strnlen(field, N)};
}

} // namespace collwire::capture
