// SPDX-License-Identifier: Apache-2.0
// Three ways to a capture from the same bytes: as they are; with every checksum in them set right,
// so that the code after the checks is reached; and as the records of one good block.
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/encoder.h"
#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"
#include "correlate/capture/survey.h"
#include "correlate/capture/window_filter.h"
#include "tools/cli/record_json.h"

namespace {

using namespace collwire;
using capture::BlockHeader;
using capture::Bytes;
using capture::FileHeader;
using ByteSpan = std::span<const std::byte>;

void require(bool condition) {
    if (!condition)
        std::abort();
}

// The second half of what the file says that it covers.
void read_window(ByteSpan file) {
    const auto read_at = [file](std::uint64_t offset, std::size_t length) {
        const ByteSpan rest = file.subspan(std::min<std::uint64_t>(offset, file.size()));
        return rest.first(std::min(length, rest.size()));
    };
    const auto covered = capture::survey(file.size(), read_at);
    if (!covered)
        return;
    const std::uint64_t half_ns = (covered->end_ns - covered->begin_ns) / 2;
    capture::WindowFilter filter(
        {covered->begin_ns + half_ns, covered->begin_ns + half_ns + half_ns / 2});
    const capture::RecordVisitor visit = [](const cw_header &header, ByteSpan record) {
        require(header.length_bytes == record.size());
    };
    auto summary = capture::read_chosen_blocks(
        file.size(), read_at, [&](const BlockHeader &block) { return filter.needs(block); },
        [&](const cw_header &header, ByteSpan record) { filter.add(header, record, visit); });
    filter.finish(visit);
    require(bool(summary));
    filter.clip(*summary);
}

void read(ByteSpan file) {
    std::uint64_t visited = 0;
    const auto summary = capture::read_capture(file, [&](const cw_header &header, ByteSpan record) {
        visited++;
        require(header.length_bytes == record.size());
        const auto text = cli::record_json(header, record)
                              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        require(!text.empty());
    });
    if (!summary) {
        require(visited == 0 && !summary.failure().message.empty());
        return;
    }
    require(visited == summary->records && summary->good_bytes <= file.size());
    require(summary->cut.has_value() == (summary->good_bytes != file.size()));
    require(summary->describe().find('\n') == std::string::npos);
    read_window(file);
}

Bytes with_right_checksums(ByteSpan data) {
    Bytes file(data.begin(), data.end());
    if (file.size() < sizeof(FileHeader))
        return file;
    FileHeader header;
    std::memcpy(&header, file.data(), sizeof(header));
    header.schema_major = CW_SCHEMA_MAJOR;
    const Bytes sealed = capture::encode_file_header(header);
    std::copy(sealed.begin(), sealed.end(), file.begin());
    std::size_t offset = sizeof(header);
    for (std::uint32_t sequence = 0; file.size() - offset >= sizeof(BlockHeader); sequence++) {
        BlockHeader block;
        std::memcpy(&block, file.data() + offset, sizeof(block));
        block.magic = capture::BLOCK_MAGIC;
        block.sequence = sequence;
        std::memcpy(file.data() + offset, &block, sizeof(block));
        if (block.payload_bytes > file.size() - offset - sizeof(block))
            break;
        capture::seal_block(std::span(file).subspan(offset, sizeof(block) + block.payload_bytes));
        offset += sizeof(block) + block.payload_bytes;
    }
    return file;
}

Bytes as_records(ByteSpan data) {
    BlockHeader block{.raw_bytes = static_cast<std::uint32_t>(data.size())};
    // Right for as many records as the lengths say, so that the count is not what stops the
    // reader.
    for (ByteSpan rest = data; rest.size() >= sizeof(cw_header); block.n_records++) {
        std::uint32_t length_bytes = 0;
        std::memcpy(&length_bytes, rest.data(), sizeof(length_bytes));
        if (length_bytes == 0)
            break;
        rest = rest.subspan(std::min<std::size_t>(length_bytes, rest.size()));
    }
    Bytes sealed(sizeof(block) + ZSTD_compressBound(data.size()));
    const std::size_t payload_bytes = ZSTD_compress(
        sealed.data() + sizeof(block), sealed.size() - sizeof(block), data.data(), data.size(), 1);
    block.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
    sealed.resize(sizeof(block) + payload_bytes);
    std::memcpy(sealed.data(), &block, sizeof(block));
    capture::seal_block(sealed);
    Bytes file = capture::encode_file_header({});
    file.insert(file.end(), sealed.begin(), sealed.end());
    return file;
}

} // namespace

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *bytes, std::size_t size) {
    const ByteSpan data = std::as_bytes(std::span(bytes, size));
    read(data);
    read(with_right_checksums(data));
    read(as_records(data));
    return 0;
}
