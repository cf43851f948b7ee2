// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <fmt/format.h>

#include "correlate/topology/import/importer.h"

namespace collwire::topology {

namespace {

constexpr std::array IMPORTERS{
    Importer{"ibnetdiscover", "InfiniBand: text of ibnetdiscover", false, matches_ibnetdiscover,
             read_ibnetdiscover},
    Importer{"lldpctl", "Ethernet: lldpctl -f json or json0, one file per host", true,
             matches_lldpctl, read_lldpctl},
};

} // namespace

std::span<const Importer> importers() {
    return IMPORTERS;
}

const Importer *find_importer(std::string_view name) {
    for (const auto &importer : IMPORTERS) {
        if (importer.name == name)
            return &importer;
    }
    return nullptr;
}

const Importer *detect_importer(std::string_view text) {
    for (const auto &importer : IMPORTERS) {
        if (importer.matches(text))
            return &importer;
    }
    return nullptr;
}

Result<Imported> import_files(const Importer &importer, std::span<const ImportInput> inputs) {
    Imported imported;
    Fabric fabric;
    for (const auto &input : inputs) {
        if (importer.needs_host && input.host.empty())
            return error(
                ErrorKind::Usage,
                fmt::format(
                    "{}: {} output does not name its host. Fix: give --host NAME once per file",
                    input.name, importer.name));
        if (auto read = importer.read(input, fabric, imported.problems); !read)
            return std::move(read).failure().in(input.name);
    }
    fabric.source = fmt::format("imported from {}, tiers inferred from the cabling", importer.name);
    imported.document = fabric.to_document(imported.problems);
    imported.counts = fabric.counts;
    return imported;
}

} // namespace collwire::topology
