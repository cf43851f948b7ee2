// SPDX-License-Identifier: Apache-2.0
// SHA-256, as FIPS 180-4 defines it, for the comparison of code
// (userspace/nccl/layout/same_code.h). Any tool can compute the digest in a layout file again.
// None of the libraries that are linked statically has SHA-256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace collwire {

class Sha256 {
public:
    using Digest = std::array<std::byte, 32>;

    void add(std::span<const std::byte> bytes);
    // As 8 bytes, little endian.
    void add_number(std::uint64_t number);
    // Of all that was added. Nothing can be added afterwards.
    Digest finish();

private:
    static constexpr std::size_t BLOCK_BYTES = 64;
    void process(std::span<const std::byte, BLOCK_BYTES> block);

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, BLOCK_BYTES> rest_{};
    std::size_t n_rest_ = 0;
    std::uint64_t n_bytes_ = 0;
};

// 64 hexadecimal digits.
std::string hex_of(const Sha256::Digest &digest);

} // namespace collwire
