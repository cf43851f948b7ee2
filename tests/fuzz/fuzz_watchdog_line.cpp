// SPDX-License-Identifier: Apache-2.0
// Lines that a user pastes after report --find.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "correlate/find/watchdog_line.h"

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    const auto line = collwire::find::parse_watchdog_line(text);
    if (!line) {
        if (line.failure().message.find('\n') != std::string::npos)
            std::abort();
        return 0;
    }
    if ((line->op_type.empty() && !line->seq) || line->op_type.size() > 64 ||
        line->group.size() > 64 || line->rank.value_or(0) < 0 || line->global_rank.value_or(0) < 0)
        std::abort();
    return 0;
}
