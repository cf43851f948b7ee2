// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/say.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <poll.h>
#include <unistd.h>

#include "base/foreign_text.h"

namespace collwire::record {

void say_line(const std::string &text) {
    const std::string line = escaped(text) + '\n';
    for (std::string_view rest = line; !rest.empty();) {
        // A pipe without a reader, or a stopped terminal, must not block the recording.
        pollfd output{STDERR_FILENO, POLLOUT, 0};
        if (poll(&output, 1, 0) != 1 || (output.revents & POLLOUT) == 0)
            return;
        // A writable pipe takes at least this much.
        const ssize_t written =
            write(STDERR_FILENO, rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
}

} // namespace collwire::record
