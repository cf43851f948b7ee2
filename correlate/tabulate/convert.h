// SPDX-License-Identifier: Apache-2.0
// The model's values as those of rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "correlate/model/model.h"
#include "correlate/rows/words.h"

namespace collwire::tabulate {

[[nodiscard]] rows::Certainty certainty_of(nccl::Rung rung);
[[nodiscard]] std::optional<rows::ByteSource> byte_source_of(nccl::ByteSource source);
[[nodiscard]] std::optional<rows::ByteSource> byte_source_of(model::BytesRung rung);
[[nodiscard]] rows::Tier tier_of(topology::Tier tier);

// The model's value for "not known".
[[nodiscard]] inline std::optional<std::string> if_any(std::string_view text) {
    return text.empty() ? std::nullopt : std::optional<std::string>(text);
}
[[nodiscard]] inline std::optional<std::uint64_t> if_not_0(std::uint64_t value) {
    return value == 0 ? std::nullopt : std::optional(value);
}
[[nodiscard]] inline std::optional<std::int64_t> if_not_negative(std::int64_t value) {
    return value < 0 ? std::nullopt : std::optional(value);
}
[[nodiscard]] inline std::optional<std::uint64_t> if_index(model::Index index) {
    return index == model::NONE ? std::nullopt : std::optional<std::uint64_t>(index);
}
template <typename T> std::optional<T> only_if(bool is_known, T value) {
    return is_known ? std::optional<T>(value) : std::nullopt;
}

// The fields of a flow that its queue pairs and sockets have, too: comm, rank, peer_rank,
// channel. `link` may be NONE.
template <typename Row> void set_flow(Row &row, const nccl::NcclFacts &nccl, model::Index link);

} // namespace collwire::tabulate
