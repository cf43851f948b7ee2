// SPDX-License-Identifier: Apache-2.0
// A file with what captures contain: command lines, too.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "base/result.h"

namespace collwire::cli {

// A new file has mode 0600, as captures have. Failed: it cannot be written; `option` named it.
[[nodiscard]] Result<void> write_private_file(const std::string &path, std::string_view option,
                                              const std::function<void(std::ostream &)> &write);

} // namespace collwire::cli
