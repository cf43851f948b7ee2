// SPDX-License-Identifier: Apache-2.0
// Makes the bytes of file headers and blocks. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "collwire/record.h"
#include "correlate/capture/format.h"

struct ZSTD_CCtx_s;

namespace collwire::capture {

using Bytes = std::vector<std::byte>;

// The 32 bytes that a file begins with, checksum included.
[[nodiscard]] Bytes encode_file_header(FileHeader header);

// Sets the checksum of the block that `block` holds from its first byte on (header and payload).
void seal_block(std::span<std::byte> block);

// Gathers records and makes blocks of them. Not safe for several threads.
class BlockEncoder {
public:
    explicit BlockEncoder(int zstd_level = 1);
    ~BlockEncoder();
    BlockEncoder(BlockEncoder &&) noexcept = default;
    BlockEncoder &operator=(BlockEncoder &&) noexcept = default;

    // Copies record.length_bytes bytes. BadInput if the length is not a multiple of 8 between the
    // size of a header and MAX_RECORD_BYTES, or if the block would exceed MAX_BLOCK_RAW_BYTES;
    // nothing is added then.
    Result<void> add(const cw_header &record);

    [[nodiscard]] std::size_t raw_bytes() const { return raw_.size(); }
    [[nodiscard]] std::uint32_t n_records() const { return n_records_; }
    [[nodiscard]] bool empty() const { return n_records_ == 0; }

    // The block of the records so far, with this sequence number. Keeps the records until clear().
    [[nodiscard]] Result<std::span<const std::byte>> encode(std::uint32_t sequence);

    void clear();

private:
    struct FreeContext {
        void operator()(ZSTD_CCtx_s *context) const;
    };
    std::unique_ptr<ZSTD_CCtx_s, FreeContext> context_;
    int zstd_level_;
    Bytes raw_;
    Bytes block_;
    std::uint32_t n_records_ = 0;
    std::uint64_t first_time_ns_ = 0;
    std::uint64_t last_time_ns_ = 0;
    bool has_state_ = false;
};

} // namespace collwire::capture
