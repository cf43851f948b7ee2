// SPDX-License-Identifier: Apache-2.0
// What every import of any bytes has to hold: no crash, and a result that the reader of topology
// files can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "correlate/topology/import/importer.h"
#include "correlate/topology/topology.h"

namespace collwire::topology {

inline void fuzz_import(const char *format, const std::uint8_t *data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    (void)detect_importer(text);
    const std::vector<ImportInput> inputs{{"input", text, "node0"}};
    const auto imported = import_files(*find_importer(format), inputs);
    if (!imported)
        return;
    const auto checked = check_topology(to_json(imported->document));
    // Contradicting input may be refused, with a reason.
    if (!checked.topology && checked.problems.first_error().empty())
        __builtin_trap();
    if (checked.topology && checked.topology->port_count() > imported->document.ports.size())
        __builtin_trap();
}

} // namespace collwire::topology
