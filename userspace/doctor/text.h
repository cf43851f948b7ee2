// SPDX-License-Identifier: Apache-2.0
// What the two text forms of doctor share.
#pragma once

#include <string>
#include <string_view>

#include "userspace/doctor/report.h"

namespace collwire::doctor {

inline constexpr std::size_t TEXT_COLUMNS = 100;

// Eight columns, coloured if asked.
[[nodiscard]] std::string state_word(CheckState state, bool colour);
// Wraps at blanks; later lines start at the column. Ends with a line end.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t column);
// One sentence: whether recording works here.
[[nodiscard]] std::string verdict(const DoctorReport &report);

} // namespace collwire::doctor
