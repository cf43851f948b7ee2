// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them. "n/a": not measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "correlate/model/model.h"

namespace collwire::report {

// "1,320,702,443"
[[nodiscard]] std::string grouped(std::uint64_t value);
// "0-3, 7"; "..." after `most` ranges.
[[nodiscard]] std::string number_ranges(std::vector<std::uint64_t> numbers,
                                        std::size_t most = SIZE_MAX);
// "1.23 GiB"; below 1 KiB "999 B"
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
[[nodiscard]] std::string human_bytes(const model::Known &bytes);
// "1.23 GiB (1,320,702,443 B)"
[[nodiscard]] std::string exact_bytes(const model::Known &bytes);
// "45.1 %" of the whole; "n/a" if either is not known or the whole is 0.
[[nodiscard]] std::string share(const model::Known &part, const model::Known &whole);
// "####......" of `width` characters
[[nodiscard]] std::string bar(const model::Known &part, const model::Known &whole,
                              std::size_t width);
// "2026-11-21T04:00:00.123456789Z"
[[nodiscard]] std::string utc(std::uint64_t realtime_ns);
// "04:00:00.123"
[[nodiscard]] std::string utc_time(std::uint64_t realtime_ns);
// "12.3 s", "3 min 20 s", "2 h 5 min"
[[nodiscard]] std::string duration(std::uint64_t ns);
// "123 us", "12.3 ms"; from 1 s on like duration()
[[nodiscard]] std::string short_duration(std::uint64_t ns);
// Text from a capture goes to a terminal: base/foreign_text.h.
[[nodiscard]] std::string printable(std::string_view text);

} // namespace collwire::report
