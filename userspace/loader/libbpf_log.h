// SPDX-License-Identifier: Apache-2.0
// Turns libbpf's log of a failure, which has many lines, into one clear line.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace collwire::loader {

// Collects libbpf's log on this thread during its lifetime. Can be nested: the innermost gets the
// lines.
class LibbpfLog {
public:
    LibbpfLog();
    LibbpfLog(const LibbpfLog &) = delete;
    LibbpfLog &operator=(const LibbpfLog &) = delete;
    ~LibbpfLog();
    [[nodiscard]] const std::string &text() const { return text_; }

private:
    friend struct LibbpfLogAccess;
    std::string text_;
    LibbpfLog *outer_;
};

// The line of a libbpf log that names the cause: the verifier's last words, a relocation that
// failed, or libbpf's last line. Empty if there is none.
[[nodiscard]] std::string cause_in_libbpf_log(std::string_view log);

// The error for a failed libbpf or bpf() call. `error_number` may have either sign.
[[nodiscard]] Error bpf_error(std::string_view what, int error_number, std::string_view log);

} // namespace collwire::loader
