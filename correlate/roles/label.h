// SPDX-License-Identifier: Apache-2.0
// What texts call a communicator. A guess has a question mark: it is never taken for a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace collwire::roles {

// Of a guessed_role_name(): "tp?"; of "" "".
[[nodiscard]] std::string mark_of(std::string_view guessed_role);
// "data0", "0x1122334455667788 (tp?)", else its hash. Not escaped.
[[nodiscard]] std::string label_of(std::string_view name, std::uint64_t hash,
                                   std::string_view guessed_role);
// "data0 (8 ranks)", "0x1122334455667788 (tp?, 8 ranks)", "0x1122334455667788 (8 ranks)". Likewise.
[[nodiscard]] std::string title_of(std::string_view name, std::uint64_t hash,
                                   std::string_view guessed_role, std::int32_t n_ranks);

} // namespace collwire::roles
