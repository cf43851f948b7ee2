// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace collwire::cli {

// --symbols, of every verb that reads NCCL's files. `places` must outlive the parse.
CLI::Option *add_symbols(CLI::App &verb, std::vector<std::string> &places);

} // namespace collwire::cli
