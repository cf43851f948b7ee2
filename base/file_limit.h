// SPDX-License-Identifier: Apache-2.0
// How many files this process may have open.
#pragma once

#include <sys/resource.h>

namespace collwire {

// Raises the soft limit to the hard one. Programs that were forked before keep theirs: a soft limit
// above 1024 breaks those that use select(). Best effort: where it fails, the limit stays.
inline void raise_file_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

} // namespace collwire
