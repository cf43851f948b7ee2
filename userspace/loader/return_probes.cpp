// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/return_probes.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <system_error>

#include <sys/utsname.h>

namespace collwire::loader {

bool may_refuse_return_probes(std::string_view release) {
    std::array<unsigned, 3> version{};
    const char *at = release.data();
    const char *end = at + release.size();
    for (std::size_t i = 0; i < version.size(); ++i) {
        const auto [next, problem] = std::from_chars(at, end, version[i]);
        if (problem != std::errc{})
            break;
        at = next;
        if (at == end || *at != '.')
            break;
        ++at;
    }
    const auto [major, minor, patch] = version;
    if (major != 6)
        return false;
    return minor == 11 || (minor == 12 && patch < 14) || (minor == 13 && patch < 3);
}

bool may_refuse_return_probes() {
    utsname name{};
    return uname(&name) == 0 && may_refuse_return_probes(name.release);
}

} // namespace collwire::loader
