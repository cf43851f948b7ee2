// SPDX-License-Identifier: Apache-2.0
// What `--help` prints after the options: whether root is needed, examples, exit statuses.
#pragma once

#include <string>
#include <string_view>

namespace collwire::cli {

extern const std::string_view HELP_COLLWIRE;
extern const std::string_view HELP_DOCTOR;
extern const std::string_view HELP_RECORD;
extern const std::string_view HELP_RUN;
extern const std::string_view HELP_TOPOLOGY;
extern const std::string_view HELP_TOPOLOGY_CHECK;
extern const std::string_view HELP_TOPOLOGY_SHOW;
extern const std::string_view HELP_TOPOLOGY_IMPORT;
extern const std::string_view HELP_REPORT;
extern const std::string_view HELP_INSPECT;
extern const std::string_view HELP_DIAGNOSE;
// Lists the record kinds that this program knows.
[[nodiscard]] std::string help_dump();

// Breaks lines at spaces, at most `columns` wide where the words allow. Keeps line ends.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t columns);

} // namespace collwire::cli
