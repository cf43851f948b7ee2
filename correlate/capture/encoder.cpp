// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/encoder.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "correlate/capture/crc32c.h"
#include "correlate/capture/record_class.h"

namespace collwire::capture {

static_assert(ZSTD_COMPRESSBOUND(MAX_BLOCK_RAW_BYTES) <= MAX_BLOCK_PAYLOAD_BYTES);

Bytes encode_file_header(FileHeader header) {
    header.magic = FILE_MAGIC;
    Bytes bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    const std::size_t covered = offsetof(FileHeader, header_crc32c);
    const std::uint32_t crc = crc32c(std::span(bytes).first(covered));
    std::memcpy(bytes.data() + covered, &crc, sizeof(crc));
    return bytes;
}

void seal_block(std::span<std::byte> block) {
    const std::uint32_t zero = 0;
    std::memcpy(block.data() + offsetof(BlockHeader, block_crc32c), &zero, sizeof(zero));
    const std::uint32_t crc = crc32c(block);
    std::memcpy(block.data() + offsetof(BlockHeader, block_crc32c), &crc, sizeof(crc));
}

void BlockEncoder::FreeContext::operator()(ZSTD_CCtx_s *context) const {
    ZSTD_freeCCtx(context);
}

BlockEncoder::BlockEncoder(int zstd_level) : context_(ZSTD_createCCtx()), zstd_level_(zstd_level) {}

BlockEncoder::~BlockEncoder() = default;

Result<void> BlockEncoder::add(const cw_header &record) {
    const std::uint32_t length_bytes = record.length_bytes;
    if (length_bytes < sizeof(cw_header) || length_bytes > MAX_RECORD_BYTES ||
        length_bytes % 8 != 0)
        return error(ErrorKind::BadInput,
                     fmt::format("record of kind {} has a length of {} bytes: not a multiple of 8 "
                                 "from {} to {}",
                                 record.kind, length_bytes, sizeof(cw_header), MAX_RECORD_BYTES));
    if (raw_.size() + length_bytes > MAX_BLOCK_RAW_BYTES)
        return error(ErrorKind::BadInput, "block is full");
    const auto *bytes = reinterpret_cast<const std::byte *>(&record);
    raw_.insert(raw_.end(), bytes, bytes + length_bytes);
    first_time_ns_ =
        n_records_ == 0 ? record.time_ns : std::min<std::uint64_t>(first_time_ns_, record.time_ns);
    last_time_ns_ = std::max<std::uint64_t>(last_time_ns_, record.time_ns);
    has_state_ = has_state_ || record_class(record.kind) == RecordClass::State;
    n_records_++;
    return {};
}

Result<std::span<const std::byte>> BlockEncoder::encode(std::uint32_t sequence) {
    if (!context_)
        return error(ErrorKind::Failed, "zstd: no memory for a compression context");
    block_.resize(sizeof(BlockHeader) + ZSTD_compressBound(raw_.size()));
    const std::size_t payload_bytes = ZSTD_compressCCtx(
        context_.get(), block_.data() + sizeof(BlockHeader), block_.size() - sizeof(BlockHeader),
        raw_.data(), raw_.size(), zstd_level_);
    if (ZSTD_isError(payload_bytes) != 0)
        return error(ErrorKind::Failed,
                     fmt::format("zstd: cannot compress: {}", ZSTD_getErrorName(payload_bytes)));
    block_.resize(sizeof(BlockHeader) + payload_bytes);
    const BlockHeader header{.payload_bytes = static_cast<std::uint32_t>(payload_bytes),
                             .raw_bytes = static_cast<std::uint32_t>(raw_.size()),
                             .n_records = n_records_,
                             .sequence = sequence,
                             .flags = has_state_ ? 0 : BLOCK_WITHOUT_STATE,
                             .first_time_ns = first_time_ns_,
                             .last_time_ns = last_time_ns_};
    std::memcpy(block_.data(), &header, sizeof(header));
    seal_block(block_);
    return std::span<const std::byte>(block_);
}

void BlockEncoder::clear() {
    raw_.clear();
    n_records_ = 0;
    first_time_ns_ = 0;
    last_time_ns_ = 0;
    has_state_ = false;
}

} // namespace collwire::capture
