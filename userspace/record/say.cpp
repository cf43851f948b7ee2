// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/say.h"

#include <cerrno>

#include <unistd.h>

namespace collwire {

void say_line(std::string line) {
    line += '\n';
    for (std::string_view rest = line; !rest.empty();) {
        const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
}

} // namespace collwire
