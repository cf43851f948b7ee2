// SPDX-License-Identifier: Apache-2.0
// Reads facts from the texts of NCCL warnings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace collwire::nccl {

// Whether printf with this format may have produced the text; either may be cut off.
[[nodiscard]] bool is_made_of(std::string_view format, std::string_view text);

// "Got completion from peer ... with status=IBV_WC_RETRY_EXC_ERR(12) ..." and its older forms
// (net_ib.cc, 2.18 to 2.32).
struct CompletionText {
    std::optional<std::uint32_t> status; // enum ibv_wc_status
    std::optional<std::uint32_t> qpn;    // 2.29 and later
    std::string remote_gid;              // as inet_ntop writes it; empty: not given
};
// Absent: another warning.
[[nodiscard]] std::optional<CompletionText> read_completion(std::string_view text);

// The port number in "... 10.0.0.1<2000>"; absent without one.
[[nodiscard]] std::optional<std::uint16_t> peer_port(std::string_view text);

// "IBV_WC_RETRY_EXC_ERR"; "" for an unknown one
[[nodiscard]] std::string_view wc_status_name(std::uint32_t status);
inline constexpr std::uint32_t WC_FLUSH_ERROR = 5; // a request posted to a queue pair in error

} // namespace collwire::nccl
