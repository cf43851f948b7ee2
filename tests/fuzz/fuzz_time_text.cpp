// SPDX-License-Identifier: Apache-2.0
// Times after --from and --to.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/time_text.h"

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    const collwire::TimeRange range{1'795'816'800'000'000'000, 1'795'927'600'000'000'000};
    const auto time = collwire::parse_time_ns(text, range, collwire::DayOf::Begin);
    // The year 2201.
    if (time && *time > 7'300'000'000'000'000'000)
        std::abort();
    return 0;
}
