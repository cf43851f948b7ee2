// SPDX-License-Identifier: Apache-2.0
#include "correlate/topology/problems.h"

#include <fmt/format.h>

namespace collwire::topology {

std::string Problems::first_error() const {
    for (const auto &problem : kept_) {
        if (problem.severity == Severity::Error)
            return problem.message;
    }
    return {};
}

std::string quote(std::string_view text) {
    constexpr std::size_t SHOWN_MAX = 64;
    std::string out = "\"";
    std::size_t shown = text.size();
    if (shown > SHOWN_MAX) {
        shown = SHOWN_MAX;
        while (shown > 0 && (static_cast<unsigned char>(text[shown]) & 0xc0) == 0x80)
            shown--; // never cut inside a UTF-8 sequence
    }
    for (const char c : text.substr(0, shown)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f)
            out += fmt::format("\\x{:02x}", byte);
        else if (c == '"' || c == '\\')
            out += {'\\', c};
        else
            out += c;
    }
    if (shown < text.size())
        out += "...";
    return out + '"';
}

} // namespace collwire::topology
