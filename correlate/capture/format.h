// SPDX-License-Identifier: Apache-2.0
// The layout of a capture file (.cwc); docs/capture-format.md is the prose. A file header, then
// blocks. A block is a header and a zstd frame of records (collwire/records.h), one after the
// other, each a multiple of 8 bytes. Everything is little endian.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "collwire/record_kinds.h"

namespace collwire::capture {

static_assert(std::endian::native == std::endian::little,
              "captures are little endian and are read and written without swapping");

inline constexpr std::array<char, 8> FILE_MAGIC = {'C', 'O', 'L', 'L', 'W', 'I', 'R', 'E'};
inline constexpr std::uint32_t BLOCK_MAGIC = 0x4b425743; // the bytes "CWBK"

// Limits that a reader enforces before it allocates, and that a writer keeps.
inline constexpr std::uint32_t MAX_BLOCK_RAW_BYTES = 4U << 20;
inline constexpr std::uint32_t MAX_BLOCK_PAYLOAD_BYTES = MAX_BLOCK_RAW_BYTES + (64U << 10);
inline constexpr std::uint32_t MAX_RECORD_BYTES = 1U << 20;

struct FileHeader {
    std::array<char, 8> magic = FILE_MAGIC;
    std::uint16_t schema_major = CW_SCHEMA_MAJOR;
    std::uint16_t schema_minor = CW_SCHEMA_MINOR;
    std::uint32_t reserved = 0;
    std::uint64_t start_realtime_ns = 0; // CLOCK_REALTIME when the file was made
    std::uint32_t reserved2 = 0;
    std::uint32_t header_crc32c = 0; // of the bytes before it
};
static_assert(sizeof(FileHeader) == 32);

// A reader ignores flag bits 0 to 15 that it does not know, and rejects the block for any of bits
// 16 to 31.
inline constexpr std::uint32_t BLOCK_FLAGS_MUST_KNOW = 0xffff0000;
// No record of the block is state (record_class.h): a reader of another time can leave it out.
inline constexpr std::uint32_t BLOCK_WITHOUT_STATE = 1;

struct BlockHeader {
    std::uint32_t magic = BLOCK_MAGIC;
    std::uint32_t block_crc32c = 0;  // of this header with this field 0, then the payload
    std::uint32_t payload_bytes = 0; // compressed, this header not included
    std::uint32_t raw_bytes = 0;     // of the records
    std::uint32_t n_records = 0;
    std::uint32_t sequence = 0; // 0, 1, ... in the file
    std::uint32_t flags = 0;
    std::uint32_t reserved = 0;
    std::uint64_t first_time_ns = 0; // least and greatest header.time_ns of the records
    std::uint64_t last_time_ns = 0;
};
static_assert(sizeof(BlockHeader) == 48);

} // namespace collwire::capture
