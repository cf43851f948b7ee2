// SPDX-License-Identifier: Apache-2.0
// SHA-256 against FIPS 180-4's examples and against sha256sum.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace collwire {
namespace {

std::string sha256_of(const std::string &text, std::size_t part_bytes = SIZE_MAX) {
    Sha256 hash;
    for (auto rest = std::as_bytes(std::span{text}); !rest.empty();) {
        const auto part = rest.first(std::min(part_bytes, rest.size()));
        hash.add(part);
        rest = rest.subspan(part.size());
    }
    return hex_of(hash.finish());
}

TEST(Sha256, IsThatOfFips180) {
    EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

// printf, head -c and sha256sum made these.
TEST(Sha256, IsThatOfSha256sum) {
    const std::pair<std::size_t, const char *> of_letters[] = {
        {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
        {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
        {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
        {1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (const auto &[n, digest] : of_letters)
        for (const std::size_t part_bytes : {std::size_t{1}, std::size_t{63}, std::size_t{65}, n})
            EXPECT_EQ(sha256_of(std::string(n, 'a'), part_bytes), digest) << n << " " << part_bytes;
    Sha256 number;
    number.add_number(0x0807060504030201);
    EXPECT_EQ(hex_of(number.finish()), sha256_of("\1\2\3\4\5\6\7\10"));
}

} // namespace
} // namespace collwire
