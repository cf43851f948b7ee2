// SPDX-License-Identifier: Apache-2.0
// Words that several row types share. Whose bytes they are, and how many there are, are two
// questions with two answers: Certainty and ByteSource.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "correlate/rows/column.h"

namespace collwire::rows {

// How sure the owner of bytes is, weakest first.
enum class Certainty : std::uint8_t { Process, Inferred, Exact };
template <> struct Vocabulary<Certainty> {
    static constexpr std::array<std::string_view, 3> words{"process", "inferred", "exact"};
};

// How bytes were measured, weakest first. Without a number it is null.
enum class ByteSource : std::uint8_t { Derived, Posted, Wire };
template <> struct Vocabulary<ByteSource> {
    static constexpr std::array<std::string_view, 3> words{"derived", "posted", "wire"};
};

// The highest switch level that a path crosses.
enum class Tier : std::uint8_t { Self, Leaf, Spine, Superspine, Unknown };
template <> struct Vocabulary<Tier> {
    static constexpr std::array<std::string_view, 5> words{"self", "leaf", "spine", "superspine",
                                                           "unknown"};
};

enum class OperationKind : std::uint8_t { Collective, Pair };
template <> struct Vocabulary<OperationKind> {
    static constexpr std::array<std::string_view, 2> words{"collective", "p2p"};
};

} // namespace collwire::rows
