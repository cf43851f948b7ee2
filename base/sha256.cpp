// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include <fmt/format.h>

namespace collwire {
namespace {

// FIPS 180-4, 4.2.2: the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> ROUNDS{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::size_t LENGTH_BYTES = 8; // at the end of the last block

std::uint32_t big_endian(std::span<const std::byte> bytes) {
    std::uint32_t word = 0;
    for (const std::byte byte : bytes.first(sizeof word))
        word = word << 8 | std::to_integer<std::uint32_t>(byte);
    return word;
}

} // namespace

void Sha256::process(std::span<const std::byte, BLOCK_BYTES> block) {
    std::array<std::uint32_t, ROUNDS.size()> words{};
    for (std::size_t i = 0; i < BLOCK_BYTES / 4; ++i)
        words[i] = big_endian(block.subspan(i * 4));
    for (std::size_t i = BLOCK_BYTES / 4; i < words.size(); ++i) {
        const std::uint32_t x = words[i - 15], y = words[i - 2];
        words[i] = words[i - 16] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3) + words[i - 7] +
                   (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                    ((e & f) ^ (~e & g)) + ROUNDS[i] + words[i];
        const std::uint32_t second =
            (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < added.size(); ++i)
        state_[i] += added[i];
}

void Sha256::add(std::span<const std::byte> bytes) {
    n_bytes_ += bytes.size();
    while (!bytes.empty()) {
        if (n_rest_ == 0 && bytes.size() >= BLOCK_BYTES) {
            process(bytes.first<BLOCK_BYTES>());
            bytes = bytes.subspan(BLOCK_BYTES);
            continue;
        }
        const std::size_t n = std::min(bytes.size(), BLOCK_BYTES - n_rest_);
        std::ranges::copy(bytes.first(n), rest_.begin() + static_cast<std::ptrdiff_t>(n_rest_));
        bytes = bytes.subspan(n);
        n_rest_ = (n_rest_ + n) % BLOCK_BYTES;
        if (n_rest_ == 0)
            process(rest_);
    }
}

void Sha256::add_number(std::uint64_t number) {
    std::array<std::byte, sizeof number> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(number >> (8 * i));
    add(bytes);
}

Sha256::Digest Sha256::finish() {
    const std::uint64_t n_bits = n_bytes_ * 8;
    constexpr std::array END{std::byte{0x80}};
    constexpr std::array ZERO{std::byte{0}};
    add(END);
    while (n_rest_ != BLOCK_BYTES - LENGTH_BYTES)
        add(ZERO);
    std::array<std::byte, LENGTH_BYTES> length{};
    for (std::size_t i = 0; i < LENGTH_BYTES; ++i)
        length[i] = static_cast<std::byte>(n_bits >> (8 * (LENGTH_BYTES - 1 - i)));
    add(length);
    Digest digest{};
    for (std::size_t i = 0; i < digest.size(); ++i)
        digest[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
}

std::string hex_of(const Sha256::Digest &digest) {
    std::string text;
    for (const std::byte byte : digest)
        fmt::format_to(std::back_inserter(text), "{:02x}", std::to_integer<unsigned>(byte));
    return text;
}

} // namespace collwire
