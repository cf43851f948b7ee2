// SPDX-License-Identifier: Apache-2.0
// The importers. A new one is a file with a `read` function, a line here and a line in
// registry.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "correlate/topology/import/fabric.h"

namespace collwire::topology {

struct ImportInput {
    std::string name;      // of the file, for messages
    std::string_view text; // its content
    std::string host;      // the host of the output, for formats that do not contain it
};

struct Importer {
    std::string_view name;
    std::string_view description;
    bool needs_host;
    // Whether the text looks like this format. Cheap: the beginning of the text decides.
    bool (*matches)(std::string_view text);
    // Adds the input's content to the fabric. An error: the input is unusable. Problems: everything
    // less.
    Result<void> (*read)(const ImportInput &input, Fabric &fabric, Problems &problems);
};

std::span<const Importer> importers();
const Importer *find_importer(std::string_view name);
const Importer *detect_importer(std::string_view text); // nullptr: no format matches

struct Imported {
    Document document;
    ImportCounts counts;
    Problems problems;
};

// Several inputs (hosts, subnets) become one document.
Result<Imported> import_files(const Importer &importer, std::span<const ImportInput> inputs);

bool matches_ibnetdiscover(std::string_view text);
Result<void> read_ibnetdiscover(const ImportInput &input, Fabric &fabric, Problems &problems);
bool matches_lldpctl(std::string_view text);
Result<void> read_lldpctl(const ImportInput &input, Fabric &fabric, Problems &problems);

} // namespace collwire::topology
