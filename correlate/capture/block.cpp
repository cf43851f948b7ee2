// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/block.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <zstd.h>

#include "correlate/capture/crc32c.h"

namespace collwire::capture {
namespace {

Error bad_header(std::size_t offset_bytes, std::string_view reason) {
    return error(ErrorKind::BadInput, fmt::format("offset {}: {}", offset_bytes, reason));
}

} // namespace

Result<FileHeader> read_file_header(ByteSpan file) {
    if (file.empty())
        return bad_header(0, "empty file: it holds no capture. Fix: leave it out");
    const std::size_t common = std::min(file.size(), FILE_MAGIC.size());
    if (!std::equal(FILE_MAGIC.begin(), FILE_MAGIC.begin() + common,
                    reinterpret_cast<const char *>(file.data())))
        return bad_header(0, "foreign file, not a collwire capture: it does not begin with "
                             "\"COLLWIRE\". Fix: name files of collwire record");
    if (file.size() < sizeof(FileHeader))
        return bad_header(
            file.size(),
            "truncated file: it ends in the file header. Fix: copy it again, or leave it out");
    const auto header = load<FileHeader>(file);
    // Before the checksum: another major version may place that elsewhere.
    if (header.schema_major != CW_SCHEMA_MAJOR)
        return bad_header(
            offsetof(FileHeader, schema_major),
            fmt::format("schema version {}.{} and this program reads {}.x. Fix: read "
                        "it with the collwire that recorded it{}",
                        header.schema_major, header.schema_minor, CW_SCHEMA_MAJOR,
                        header.schema_major > CW_SCHEMA_MAJOR ? " or a newer one" : ""));
    if (crc32c(file.first(offsetof(FileHeader, header_crc32c))) != header.header_crc32c)
        return bad_header(
            0, "corrupt file header: its checksum is wrong. Fix: copy it again, or leave it out");
    return header;
}

void BlockDecoder::FreeContext::operator()(void *context) const {
    ZSTD_freeDCtx(static_cast<ZSTD_DCtx *>(context));
}

std::string BlockDecoder::check_header(const BlockHeader &header, std::uint64_t rest_bytes) {
    if (header.magic != BLOCK_MAGIC)
        return "corrupt, no block begins here";
    if (header.payload_bytes > MAX_BLOCK_PAYLOAD_BYTES || header.raw_bytes > MAX_BLOCK_RAW_BYTES)
        return fmt::format("corrupt, a size beyond the limit ({} bytes compressed, {} raw)",
                           header.payload_bytes, header.raw_bytes);
    if (rest_bytes - sizeof(BlockHeader) < header.payload_bytes)
        return fmt::format("truncated, {} of its {} bytes are there", rest_bytes,
                           sizeof(BlockHeader) + header.payload_bytes);
    return {};
}

std::string BlockDecoder::check_place(const BlockHeader &header, std::uint64_t sequence) {
    if (header.sequence != sequence)
        return fmt::format("out of order, its sequence number is {}", header.sequence);
    if ((header.flags & BLOCK_FLAGS_MUST_KNOW) != 0)
        return fmt::format("newer, it needs a reader that knows flags {:#x}", header.flags);
    return {};
}

std::string BlockDecoder::decode(ByteSpan rest, std::uint64_t sequence, BlockHeader &header) {
    if (rest.size() < sizeof(BlockHeader))
        return fmt::format("truncated, {} of the {} bytes of its header are there", rest.size(),
                           sizeof(BlockHeader));
    header = load<BlockHeader>(rest);
    if (std::string reason = check_header(header, rest.size()); !reason.empty())
        return reason;
    const ByteSpan payload = rest.subspan(sizeof(BlockHeader), header.payload_bytes);
    BlockHeader unsealed = header;
    unsealed.block_crc32c = 0;
    if (crc32c(payload, crc32c(std::as_bytes(std::span(&unsealed, 1)))) != header.block_crc32c)
        return "corrupt, its checksum is wrong";
    if (std::string reason = check_place(header, sequence); !reason.empty())
        return reason;
    if (std::string reason = decompress(payload, header.raw_bytes); !reason.empty())
        return reason;
    return check_records(header);
}

std::string BlockDecoder::decompress(ByteSpan payload, std::uint32_t raw_bytes) {
    if (!context_)
        context_.reset(ZSTD_createDCtx());
    if (!context_)
        return "not read, zstd has no memory for a decompression context";
    raw_.resize(raw_bytes);
    const std::size_t got =
        ZSTD_decompressDCtx(static_cast<ZSTD_DCtx *>(context_.get()), raw_.data(), raw_.size(),
                            payload.data(), payload.size());
    if (ZSTD_isError(got) != 0)
        return fmt::format("corrupt, zstd: {}", ZSTD_getErrorName(got));
    if (got != raw_bytes)
        return fmt::format("corrupt, {} bytes of records and its header says {}", got, raw_bytes);
    return {};
}

// A checksum detects a damaged block, but not a hostile or faulty writer: check the lengths too.
std::string BlockDecoder::check_records(const BlockHeader &header) const {
    ByteSpan rest = raw_;
    std::uint64_t n_records = 0;
    while (!rest.empty()) {
        const std::size_t offset_bytes = raw_.size() - rest.size();
        if (rest.size() < sizeof(cw_header))
            return fmt::format("corrupt, record {} is cut off", n_records);
        const std::uint32_t length_bytes = load<cw_header>(rest).length_bytes;
        if (length_bytes < sizeof(cw_header) || length_bytes > MAX_RECORD_BYTES ||
            length_bytes % 8 != 0 || length_bytes > rest.size())
            return fmt::format("corrupt, record {} (byte {} of its records) has a length of {}",
                               n_records, offset_bytes, length_bytes);
        rest = rest.subspan(length_bytes);
        n_records++;
    }
    if (n_records != header.n_records)
        return fmt::format("corrupt, {} records and its header says {}", n_records,
                           header.n_records);
    return {};
}

} // namespace collwire::capture
