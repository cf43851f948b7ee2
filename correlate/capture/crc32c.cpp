// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/crc32c.h"

#include <array>
#include <cstring>

namespace collwire::capture {
namespace {

constexpr std::uint32_t REFLECTED_POLYNOMIAL = 0x82f63b78;
constexpr std::size_t SLICES = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, SLICES>;

// Slicing-by-8: table k advances a byte over k further zero bytes, so that eight bytes take eight
// independent look-ups.
constexpr Tables make_tables() {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; byte++) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? REFLECTED_POLYNOMIAL : 0);
        tables[0][byte] = crc;
    }
    for (std::size_t slice = 1; slice < SLICES; slice++)
        for (std::size_t byte = 0; byte < 256; byte++) {
            const std::uint32_t before = tables[slice - 1][byte];
            tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xff];
        }
    return tables;
}

constexpr Tables TABLES = make_tables();

} // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
    std::uint32_t crc = ~previous;
    while (bytes.size() >= SLICES) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), sizeof(word));
        word ^= crc;
        crc = 0;
        for (std::size_t i = 0; i < SLICES; i++)
            crc ^= TABLES[SLICES - 1 - i][(word >> (8 * i)) & 0xff];
        bytes = bytes.subspan(SLICES);
    }
    for (const std::byte byte : bytes)
        crc = (crc >> 8) ^ TABLES[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
    return ~crc;
}

} // namespace collwire::capture
