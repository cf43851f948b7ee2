// SPDX-License-Identifier: Apache-2.0
// Reads one capture block by block, so that one block is in memory at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "correlate/capture/block.h"
#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"

namespace collwire::stream {

// Reads a file: as many of the bytes from offset_bytes on as there are, at most `into`. Returns
// their number.
using ReadAt =
    std::function<Result<std::size_t>(std::uint64_t offset_bytes, std::span<std::byte> into)>;

// The block that is in memory: of one of many streams.
struct LoadedBlock {
    capture::BlockDecoder decoder;
    std::vector<std::byte> bytes; // of the file
};

class RecordStream {
public:
    // BadInput: not a capture, or of another major version. Failed: it cannot be read.
    [[nodiscard]] static Result<RecordStream> open(ReadAt read);

    // Header of the next block, of which nothing but sizes and numbers is checked yet. Null: the
    // capture ends here, and summary() says how.
    [[nodiscard]] const capture::BlockHeader *next();
    // Decompresses the next block. False: it is damaged or cut off, the capture ends before it.
    [[nodiscard]] bool load(LoadedBlock &block);
    // Back to before the first block.
    void rewind();
    // Passes over the next block without a look at it. Its records count as none.
    void skip();
    // Calls `visit` (const cw_header &, std::span<const std::byte>) for each record of the block,
    // which this stream has loaded, whose kind this program knows.
    template <typename Visit> void visit(const LoadedBlock &block, Visit &&visit) {
        block.decoder.visit_records([&](const cw_header &header, capture::ByteSpan record) {
            if (summary_.add(header, record))
                visit(header, record);
        });
    }

    // Of what was read so far.
    [[nodiscard]] const capture::ReadSummary &summary() const { return summary_; }

private:
    explicit RecordStream(ReadAt read) : read_(std::move(read)) {}
    // The file from the end of the last block on. False: it has fewer bytes; `into` has those.
    [[nodiscard]] bool read(std::vector<std::byte> &into, std::size_t bytes);
    void cut(const std::string &reason);

    ReadAt read_;
    capture::ReadSummary summary_;
    std::optional<capture::BlockHeader> next_;
    bool is_over_ = false;
};

} // namespace collwire::stream
