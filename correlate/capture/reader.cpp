// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/reader.h"

#include <fmt/format.h>
#include <zstd.h>

#include <memory>

#include "collwire/nccl_comm_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/crc32c.h"
#include "correlate/capture/format.h"
#include "correlate/capture/kinds.h"

namespace collwire::capture {
namespace {

using ByteSpan = std::span<const std::byte>;

template <typename T> T load(ByteSpan bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
}

Error bad_header(std::size_t offset_bytes, std::string_view reason) {
    return error(ErrorKind::BadInput, fmt::format("offset {}: {}", offset_bytes, reason));
}

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

class CaptureDecoder {
public:
    CaptureDecoder(ByteSpan file, const RecordVisitor &visit) : file_(file), visit_(visit) {}

    Result<ReadSummary> run() {
        auto header = read_file_header(file_);
        if (!header)
            return std::move(header).failure();
        summary_.schema_major = header->schema_major;
        summary_.schema_minor = header->schema_minor;
        summary_.start_realtime_ns = header->start_realtime_ns;
        summary_.good_bytes = sizeof(FileHeader);
        if (!context_)
            return error(ErrorKind::Failed, "zstd: no memory for a decompression context");
        while (summary_.good_bytes < file_.size()) {
            const ByteSpan rest = file_.subspan(summary_.good_bytes);
            BlockHeader block;
            std::string reason = decode_block(rest, block);
            if (reason.empty())
                reason = check_records(block);
            if (!reason.empty()) {
                summary_.cut =
                    Cut{summary_.good_bytes, fmt::format("block {}: {}", summary_.blocks, reason)};
                break;
            }
            visit_records(block);
            summary_.blocks++;
            summary_.good_bytes += sizeof(BlockHeader) + block.payload_bytes;
        }
        return std::move(summary_);
    }

private:
    // Fills `header` and raw_ from the block at the start of `rest`. Returns what is wrong with the
    // block; empty: it is good.
    std::string decode_block(ByteSpan rest, BlockHeader &header) {
        if (rest.size() < sizeof(BlockHeader))
            return fmt::format("truncated, {} of the {} bytes of its header are there", rest.size(),
                               sizeof(BlockHeader));
        header = load<BlockHeader>(rest);
        if (header.magic != BLOCK_MAGIC)
            return "corrupt, no block begins here";
        if (header.payload_bytes > MAX_BLOCK_PAYLOAD_BYTES ||
            header.raw_bytes > MAX_BLOCK_RAW_BYTES)
            return fmt::format("corrupt, a size beyond the limit ({} bytes compressed, {} raw)",
                               header.payload_bytes, header.raw_bytes);
        if (rest.size() - sizeof(BlockHeader) < header.payload_bytes)
            return fmt::format("truncated, {} of its {} bytes are there", rest.size(),
                               sizeof(BlockHeader) + header.payload_bytes);
        const ByteSpan payload = rest.subspan(sizeof(BlockHeader), header.payload_bytes);
        BlockHeader unsealed = header;
        unsealed.block_crc32c = 0;
        if (crc32c(payload, crc32c(std::as_bytes(std::span(&unsealed, 1)))) != header.block_crc32c)
            return "corrupt, its checksum is wrong";
        if (header.sequence != summary_.blocks)
            return fmt::format("out of order, its sequence number is {}", header.sequence);
        if ((header.flags & BLOCK_FLAGS_MUST_KNOW) != 0)
            return fmt::format("newer, it needs a reader that knows flags {:#x}", header.flags);
        return decompress(payload, header.raw_bytes);
    }

    std::string decompress(ByteSpan payload, std::uint32_t raw_bytes) {
        raw_.resize(raw_bytes);
        const std::size_t got = ZSTD_decompressDCtx(context_.get(), raw_.data(), raw_.size(),
                                                    payload.data(), payload.size());
        if (ZSTD_isError(got) != 0)
            return fmt::format("corrupt, zstd: {}", ZSTD_getErrorName(got));
        if (got != raw_bytes)
            return fmt::format("corrupt, {} bytes of records and its header says {}", got,
                               raw_bytes);
        return {};
    }

    // A checksum detects a damaged block, but not a hostile or faulty writer: check the lengths
    // too.
    [[nodiscard]] std::string check_records(const BlockHeader &header) const {
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

    void visit_records(const BlockHeader &block) {
        if (block.n_records > 0) {
            const bool first = summary_.records + summary_.unknown_records == 0;
            summary_.first_time_ns =
                first ? block.first_time_ns : std::min(summary_.first_time_ns, block.first_time_ns);
            summary_.last_time_ns = std::max(summary_.last_time_ns, block.last_time_ns);
        }
        ByteSpan rest = raw_;
        while (!rest.empty()) {
            const auto header = load<cw_header>(rest);
            const ByteSpan record = rest.first(header.length_bytes);
            rest = rest.subspan(header.length_bytes);
            summary_.end.reset();
            if (!is_known_kind(header.kind)) {
                summary_.unknown_records++;
                continue;
            }
            if (header.kind == CW_KIND_END)
                summary_.end = record_as<cw_end>(record);
            summary_.records++;
            visit_(header, record);
        }
    }

    struct FreeContext {
        void operator()(ZSTD_DCtx *context) const { ZSTD_freeDCtx(context); }
    };

    ByteSpan file_;
    const RecordVisitor &visit_;
    std::unique_ptr<ZSTD_DCtx, FreeContext> context_{ZSTD_createDCtx()};
    std::vector<std::byte> raw_;
    ReadSummary summary_;
};

} // namespace

Result<ReadSummary> read_capture(std::span<const std::byte> file, const RecordVisitor &visit) {
    return CaptureDecoder(file, visit).run();
}

std::string ReadSummary::describe() const {
    if (cut)
        return fmt::format("cut at offset {}: {}; {}", cut->offset_bytes, cut->reason,
                           records == 0
                               ? "there is no record before it"
                               : fmt::format("the {} records before it are good", records));
    if (!end)
        return fmt::format(
            "no end record: the recorder was killed or still runs; {} up to offset {}{}",
            records == 0 ? "no record" : fmt::format("{} records", records), good_bytes,
            records == 0 ? "" : " are good");
    return fmt::format("complete: {} records in {} blocks", records, blocks);
}

std::vector<cw_counter_sample> samples_of(std::span<const std::byte> record) {
    if (record.size() < sizeof(cw_counter_samples))
        return {};
    const std::size_t room =
        (record.size() - sizeof(cw_counter_samples)) / sizeof(cw_counter_sample);
    const std::size_t said = record_as<cw_counter_samples>(record).n;
    std::vector<cw_counter_sample> samples(std::min(room, said));
    if (!samples.empty())
        std::memcpy(samples.data(), record.data() + sizeof(cw_counter_samples),
                    samples.size() * sizeof(cw_counter_sample));
    return samples;
}

std::vector<cw_nvlink_value> nvlink_values_of(std::span<const std::byte> record) {
    if (record.size() < sizeof(cw_nvlink_sample))
        return {};
    const std::size_t room = (record.size() - sizeof(cw_nvlink_sample)) / sizeof(cw_nvlink_value);
    const std::size_t said = record_as<cw_nvlink_sample>(record).n;
    std::vector<cw_nvlink_value> values(std::min(room, said));
    if (!values.empty())
        std::memcpy(values.data(), record.data() + sizeof(cw_nvlink_sample),
                    values.size() * sizeof(cw_nvlink_value));
    return values;
}

std::vector<std::int32_t> order_of(std::span<const std::byte> record) {
    const auto head = record_as<cw_nccl_channel>(record);
    if (record.size() < sizeof head)
        return {};
    const auto bytes = record.subspan(sizeof head);
    std::vector<std::int32_t> order(
        std::min<std::size_t>(head.n_order, bytes.size() / sizeof(std::int32_t)));
    if (!order.empty())
        std::memcpy(order.data(), bytes.data(), order.size() * sizeof(std::int32_t));
    return order;
}

} // namespace collwire::capture
