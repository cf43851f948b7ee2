// SPDX-License-Identifier: Apache-2.0
// The kernel log: the NVIDIA driver's errors in it, those from before the recording too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "collwire/nvlink_records.h"

namespace collwire::nvidia {

class KernelLog {
public:
    // `path` is read without waiting, one record a read, as /dev/kmsg gives them.
    // NotPermitted, Unsupported: it cannot be read; the message says why.
    Result<void> open(const std::string &path);
    KernelLog() = default;
    KernelLog(const KernelLog &) = delete;
    KernelLog &operator=(const KernelLog &) = delete;
    ~KernelLog();

    [[nodiscard]] bool is_open() const { return fd_ >= 0; }
    // Appends the errors since the last call. The first call's errors are from before:
    // CW_XID_BEFORE. Also appends a gap if the kernel has dropped lines unread.
    void read(std::vector<cw_xid> &errors, std::vector<cw_nvlink_gap> &gaps);

private:
    int fd_ = -1;
    bool has_read_ = false;
    std::uint64_t empty_ns_ = 0; // when it was last found without a new record
};

} // namespace collwire::nvidia
