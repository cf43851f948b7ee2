// SPDX-License-Identifier: Apache-2.0
// Checks and decompresses the parts of a capture file: its header, and one block after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "collwire/record.h"
#include "correlate/capture/format.h"

namespace collwire::capture {

using ByteSpan = std::span<const std::byte>;

// A copy of the T at the start of `bytes`, which has as many.
template <typename T> T load(ByteSpan bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
}

// BadInput: not a capture, truncated or corrupt in its header, another major version. The message
// names the byte offset and the reason.
[[nodiscard]] Result<FileHeader> read_file_header(ByteSpan file);

class BlockDecoder {
public:
    // The records of the block at the start of `rest`, which may continue after it. `sequence`: the
    // number that it has to have. Returns what is wrong with the block; empty: it is good.
    [[nodiscard]] std::string decode(ByteSpan rest, std::uint64_t sequence, BlockHeader &header);
    // Its first checks, which need the header alone. `rest_bytes`: from the header on to the end of
    // the file.
    [[nodiscard]] static std::string check_header(const BlockHeader &header,
                                                  std::uint64_t rest_bytes);

    // The checks of a block that is passed over: its place in the file, and that the program may
    // read it.
    [[nodiscard]] static std::string check_place(const BlockHeader &header, std::uint64_t sequence);

    // Calls `visit` (const cw_header &, ByteSpan) for every record of the last block.
    template <typename Visit> void visit_records(Visit &&visit) const {
        ByteSpan rest = raw_;
        while (!rest.empty()) {
            const auto header = load<cw_header>(rest);
            visit(header, rest.first(header.length_bytes));
            rest = rest.subspan(header.length_bytes);
        }
    }

private:
    std::string decompress(ByteSpan payload, std::uint32_t raw_bytes);
    [[nodiscard]] std::string check_records(const BlockHeader &header) const;

    struct FreeContext {
        void operator()(void *context) const;
    };
    std::unique_ptr<void, FreeContext> context_; // ZSTD_DCtx
    std::vector<std::byte> raw_;
};

} // namespace collwire::capture
