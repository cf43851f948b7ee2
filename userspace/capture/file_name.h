// SPDX-License-Identifier: Apache-2.0
// Names of capture files: <host>-<UTC, as 20261121T034500.123Z>.cwc, with -1, -2, ... before
// ".cwc".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace collwire::capture {

// Without ".cwc". What a file name cannot well hold of the host's is "_".
[[nodiscard]] std::string file_stem(std::string_view host, std::uint64_t realtime_ns);

// Whether a capture of this host may have this name.
[[nodiscard]] bool is_name_of_host(std::string_view name, std::string_view host);

} // namespace collwire::capture
