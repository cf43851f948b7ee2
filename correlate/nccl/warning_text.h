// SPDX-License-Identifier: Apache-2.0
// What can be read out of NCCL's warnings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace collwire::nccl {

// Whether printf with this format may have made the text; of either only the beginning may be here.
[[nodiscard]] bool is_made_of(std::string_view format, std::string_view text);

// "Got completion from peer ... with status=IBV_WC_RETRY_EXC_ERR(12) ..." and how older versions
// say it (net_ib.cc, 2.18 to 2.32).
struct CompletionText {
    std::optional<std::uint32_t> status; // enum ibv_wc_status
    std::optional<std::uint32_t> qpn;    // 2.29 and later
    std::string remote_gid;              // as inet_ntop writes it; empty: not said
};
// Nothing: it is about something else.
[[nodiscard]] std::optional<CompletionText> read_completion(std::string_view text);

// The number of the port in "... 10.0.0.1<2000>"; nothing: there is none.
[[nodiscard]] std::optional<std::uint16_t> peer_port(std::string_view text);

// "IBV_WC_RETRY_EXC_ERR"; "" of one that is not known
[[nodiscard]] std::string_view wc_status_name(std::uint32_t status);
inline constexpr std::uint32_t WC_FLUSH_ERROR = 5; // what was posted to a queue pair in error

} // namespace collwire::nccl
