// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topology_file.h"

#include <fmt/format.h>

#include "correlate/capture/format.h"
#include "correlate/topology/import/importer.h"
#include "tools/cli/read_file.h"

namespace collwire::cli {
namespace {

constexpr std::size_t FILE_BYTES_MAX = 512U << 20;

} // namespace

Result<std::string> read_topology_text(const std::string &path) {
    const auto bytes = read_file(path, FILE_BYTES_MAX + 1);
    if (!bytes)
        return bytes.failure();
    if (bytes->size() > FILE_BYTES_MAX)
        return error(ErrorKind::BadInput,
                     fmt::format("{}: larger than {} bytes. Fix: use patterns, or split the file",
                                 path, FILE_BYTES_MAX));
    return std::string(reinterpret_cast<const char *>(bytes->data()), bytes->size());
}

std::string other_format_hint(std::string_view text) {
    const std::string_view magic(capture::FILE_MAGIC.data(), capture::FILE_MAGIC.size());
    if (text.starts_with(magic))
        return "this is a capture. Fix: read it with collwire report or collwire dump";
    // A topology file with an error in it, even if it mentions other tools.
    if (text.find("collwire_topology") != std::string_view::npos)
        return {};
    const auto *importer = topology::detect_importer(text);
    if (importer == nullptr)
        return {};
    return fmt::format(
        "this looks like the output of {0}. Fix: collwire topology import --format {0}{1} FILE -o "
        "topology.json",
        importer->name, importer->needs_host ? " --host NAME" : "");
}

} // namespace collwire::cli
