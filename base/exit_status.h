// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"

namespace collwire {

// The exit statuses of all verbs, documented in the README.
enum ExitStatus : int {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NOT_PERMITTED = 3,
    EXIT_UNSUPPORTED = 4,
    EXIT_LOSS = 5,
};

inline int exit_status_of(const Error &failure) {
    switch (failure.kind) {
    case ErrorKind::Usage:
        return EXIT_USAGE;
    case ErrorKind::NotPermitted:
        return EXIT_NOT_PERMITTED;
    case ErrorKind::Unsupported:
        return EXIT_UNSUPPORTED;
    case ErrorKind::Failed:
    case ErrorKind::BadInput:
        break;
    }
    return EXIT_FAILED;
}

} // namespace collwire
