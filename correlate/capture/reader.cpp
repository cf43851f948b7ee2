// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/reader.h"

#include <fmt/format.h>

#include "collwire/nccl_comm_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/block.h"
#include "correlate/capture/format.h"
#include "correlate/capture/kinds.h"

namespace collwire::capture {
namespace {

class CaptureDecoder {
public:
    CaptureDecoder(std::uint64_t file_bytes, const ReadAt &read, const BlockChooser &choose,
                   const RecordVisitor &visit)
        : file_bytes_(file_bytes), read_(read), choose_(choose), visit_(visit) {}

    Result<ReadSummary> run() {
        auto header = read_file_header(read_(0, sizeof(FileHeader)));
        if (!header)
            return std::move(header).failure();
        summary_.schema_major = header->schema_major;
        summary_.schema_minor = header->schema_minor;
        summary_.start_realtime_ns = header->start_realtime_ns;
        summary_.good_bytes = sizeof(FileHeader);
        while (summary_.good_bytes < file_bytes_) {
            BlockHeader block;
            std::string reason = read_header(block);
            const bool is_needed = !reason.empty() || choose_(block);
            if (reason.empty())
                reason =
                    is_needed ? decode(block) : BlockDecoder::check_place(block, summary_.blocks);
            if (!reason.empty()) {
                summary_.cut =
                    Cut{summary_.good_bytes, fmt::format("block {}: {}", summary_.blocks, reason)};
                break;
            }
            summary_.add(block);
            if (!is_needed) {
                summary_.blocks_left_out++;
                summary_.end.reset();
                continue;
            }
            decoder_.visit_records([this](const cw_header &of_record, ByteSpan record) {
                if (summary_.add(of_record, record))
                    visit_(of_record, record);
            });
        }
        return std::move(summary_);
    }

private:
    // Of the block at good_bytes. Returns what is wrong with it; empty: nothing so far.
    std::string read_header(BlockHeader &header) {
        const ByteSpan bytes = read_(summary_.good_bytes, sizeof(BlockHeader));
        if (bytes.size() < sizeof(BlockHeader))
            return fmt::format("truncated, {} of the {} bytes of its header are there",
                               bytes.size(), sizeof(BlockHeader));
        header = load<BlockHeader>(bytes);
        return BlockDecoder::check_header(header, file_bytes_ - summary_.good_bytes);
    }

    std::string decode(BlockHeader &header) {
        return decoder_.decode(
            read_(summary_.good_bytes, sizeof(BlockHeader) + header.payload_bytes), summary_.blocks,
            header);
    }

    std::uint64_t file_bytes_;
    const ReadAt &read_;
    const BlockChooser &choose_;
    const RecordVisitor &visit_;
    BlockDecoder decoder_;
    ReadSummary summary_;
};

} // namespace

void ReadSummary::add(const BlockHeader &block) {
    if (block.n_records > 0) {
        const bool is_first = first_time_ns == 0 && last_time_ns == 0;
        first_time_ns =
            is_first ? block.first_time_ns : std::min(first_time_ns, block.first_time_ns);
        last_time_ns = std::max(last_time_ns, block.last_time_ns);
    }
    ++blocks;
    good_bytes += sizeof(BlockHeader) + block.payload_bytes;
}

bool ReadSummary::add(const cw_header &header, std::span<const std::byte> record) {
    end.reset();
    if (!is_known_kind(header.kind)) {
        ++unknown_records;
        return false;
    }
    if (header.kind == CW_KIND_END)
        end = record_as<cw_end>(record);
    ++records;
    return true;
}

Result<ReadSummary> read_capture(std::span<const std::byte> file, const RecordVisitor &visit) {
    return read_chosen_blocks(
        file.size(),
        [file](std::uint64_t offset, std::size_t length) {
            const ByteSpan rest = file.subspan(std::min<std::uint64_t>(offset, file.size()));
            return rest.first(std::min(length, rest.size()));
        },
        [](const BlockHeader &) { return true; }, visit);
}

Result<ReadSummary> read_chosen_blocks(std::uint64_t file_bytes, const ReadAt &read,
                                       const BlockChooser &choose, const RecordVisitor &visit) {
    return CaptureDecoder(file_bytes, read, choose, visit).run();
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
    return fmt::format("complete: {} records in {} blocks", records, blocks - blocks_left_out);
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
