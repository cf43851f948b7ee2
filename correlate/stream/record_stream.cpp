// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/record_stream.h"

#include <fmt/format.h>

namespace collwire::stream {
namespace {

using capture::BlockHeader;
using capture::FileHeader;

} // namespace

Result<RecordStream> RecordStream::open(ReadAt read) {
    std::vector<std::byte> bytes(sizeof(FileHeader));
    auto got = read(0, bytes);
    if (!got)
        return std::move(got).failure();
    bytes.resize(*got);
    const auto header = capture::read_file_header(bytes);
    if (!header)
        return Error(header.failure());
    RecordStream stream(std::move(read));
    stream.summary_.schema_major = header->schema_major;
    stream.summary_.schema_minor = header->schema_minor;
    stream.summary_.start_realtime_ns = header->start_realtime_ns;
    stream.summary_.good_bytes = sizeof(FileHeader);
    return stream;
}

void RecordStream::cut(const std::string &reason) {
    is_over_ = true;
    next_.reset();
    summary_.cut =
        capture::Cut{summary_.good_bytes, fmt::format("block {}: {}", summary_.blocks, reason)};
}

bool RecordStream::read(std::vector<std::byte> &into, std::size_t bytes) {
    into.resize(bytes);
    const auto got = read_(summary_.good_bytes, into);
    into.resize(got ? *got : 0);
    if (!got)
        cut(fmt::format("not read, {}", got.failure().message));
    return into.size() == bytes;
}

const BlockHeader *RecordStream::next() {
    if (next_ || is_over_)
        return next_ ? &*next_ : nullptr;
    std::vector<std::byte> bytes;
    if (!read(bytes, sizeof(BlockHeader))) {
        if (!bytes.empty() && !is_over_)
            cut(fmt::format("truncated, {} of the {} bytes of its header are there", bytes.size(),
                            sizeof(BlockHeader)));
        is_over_ = true;
        return nullptr;
    }
    const auto header = capture::load<BlockHeader>(bytes);
    // Whether the file is long enough shows when the block is loaded.
    if (const std::string reason = capture::BlockDecoder::check_header(header, UINT64_MAX);
        !reason.empty()) {
        cut(reason);
        return nullptr;
    }
    next_ = header;
    return &*next_;
}

bool RecordStream::load(LoadedBlock &block) {
    if (next() == nullptr)
        return false;
    if (!read(block.bytes, sizeof(BlockHeader) + next_->payload_bytes) && is_over_)
        return false;
    BlockHeader header;
    const std::string reason = block.decoder.decode(block.bytes, summary_.blocks, header);
    if (!reason.empty()) {
        cut(reason);
        return false;
    }
    summary_.add(header);
    next_.reset();
    return true;
}

void RecordStream::rewind() {
    capture::ReadSummary begin;
    begin.schema_major = summary_.schema_major;
    begin.schema_minor = summary_.schema_minor;
    begin.start_realtime_ns = summary_.start_realtime_ns;
    begin.good_bytes = sizeof(FileHeader);
    summary_ = begin;
    next_.reset();
    is_over_ = false;
}

void RecordStream::skip() {
    if (next() == nullptr)
        return;
    BlockHeader without_records = *next_;
    without_records.n_records = 0;
    summary_.add(without_records);
    next_.reset();
}

} // namespace collwire::stream
