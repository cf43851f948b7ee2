// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <array>
#include <charconv>
#include <limits>

#include <fmt/format.h>

namespace collwire {
namespace {

struct Unit {
    std::string_view name;
    double factor;
};

constexpr std::array<Unit, 8> DURATION_UNITS{{{"", 1e9},
                                              {"ns", 1},
                                              {"us", 1e3},
                                              {"ms", 1e6},
                                              {"s", 1e9},
                                              {"m", 60e9},
                                              {"h", 3600e9},
                                              {"d", 86400e9}}};
constexpr std::array<Unit, 10> SIZE_UNITS{{{"", 1},
                                           {"B", 1},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"TB", 1e12},
                                           {"KiB", 1024.0},
                                           {"MiB", 1048576.0},
                                           {"GiB", 1073741824.0},
                                           {"TiB", 1099511627776.0}}};

template <std::size_t N>
Result<std::uint64_t> parse(std::string_view text, const std::array<Unit, N> &units,
                            std::string_view what, std::string_view example) {
    const auto bad = [&] {
        return error(ErrorKind::Usage,
                     fmt::format("'{}' is not a {}. Fix: write it like {}", text, what, example));
    };
    // from_chars, not strtod: the locale must not change the meaning of a dot.
    double number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc{} || !std::isfinite(number) || number < 0)
        return bad();
    const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
    for (const Unit &unit : units) {
        if (suffix != unit.name)
            continue;
        const double scaled = number * unit.factor;
        if (scaled >= static_cast<double>(std::numeric_limits<std::int64_t>::max()))
            return bad();
        return static_cast<std::uint64_t>(std::llround(scaled));
    }
    return bad();
}

} // namespace

Result<std::uint64_t> parse_duration_ns(std::string_view text) {
    return parse(text, DURATION_UNITS, "duration", "500ms, 90s, 30m, 12h or 2d");
}

Result<std::uint64_t> parse_size_bytes(std::string_view text) {
    return parse(text, SIZE_UNITS, "size", "4096, 64KiB, 500MB or 2GiB");
}

} // namespace collwire
