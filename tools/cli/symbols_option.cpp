// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/symbols_option.h"

#include <CLI/CLI.hpp>

namespace collwire::cli {

CLI::Option *add_symbols(CLI::App &verb, std::vector<std::string> &places) {
    return verb
        .add_option("--symbols", places,
                    "Where to find the debug file of a stripped NCCL, its saved layout (doctor "
                    "--export-plan), or another build of its version, besides /usr/lib/debug: a "
                    "directory, or the file")
        ->type_name("PLACE")
        ->check(CLI::ExistingPath)
        ->allow_extra_args(false);
}

} // namespace collwire::cli
