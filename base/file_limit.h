// SPDX-License-Identifier: Apache-2.0
// The limit of open files.
#pragma once

#include <sys/resource.h>

namespace collwire {

// Raises the soft limit to the hard one. Programs forked before keep theirs: a soft limit above
// 1024 breaks programs that use select(). Best effort: after a failure the limit stays.
inline void raise_file_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

} // namespace collwire
