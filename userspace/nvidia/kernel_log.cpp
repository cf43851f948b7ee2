// SPDX-License-Identifier: Apache-2.0
#include "userspace/nvidia/kernel_log.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/record_kinds.h"
#include "userspace/nvidia/xid_line.h"

namespace collwire::nvidia {
namespace {

// CONSOLE_EXT_LOG_MAX of kernel/printk: a record with its escapes.
constexpr std::size_t MAX_RECORD_BYTES = 8192;
// Of one call: a log of 16 MiB has some 200,000 lines, and only the first call meets so many.
constexpr std::size_t MAX_RECORDS = 1'000'000;

} // namespace

Result<void> KernelLog::open(const std::string &path) {
    fd_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd_ >= 0)
        return {};
    const int why = errno;
    if (why == EPERM || why == EACCES)
        return error(ErrorKind::NotPermitted,
                     path +
                         ": reading the kernel log needs CAP_SYSLOG. Fix: run as root, or add it");
    return error(ErrorKind::Unsupported,
                 path + ": " + strerror(why) + ". Fix: in a container, pass the device through");
}

KernelLog::~KernelLog() {
    if (fd_ >= 0)
        close(fd_);
}

void KernelLog::read(std::vector<cw_xid> &errors, std::vector<cw_nvlink_gap> &gaps) {
    if (fd_ < 0)
        return;
    std::array<char, MAX_RECORD_BYTES> record{};
    for (std::size_t n_records = 0; n_records < MAX_RECORDS; ++n_records) {
        const ssize_t n = ::read(fd_, record.data(), record.size());
        const std::uint64_t now_ns = monotonic_ns();
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EPIPE) { // overwritten before it was read
            // At the first call: what had been dropped before is not this recording's loss.
            if (has_read_) {
                cw_nvlink_gap gap{};
                gap.header = {sizeof gap, CW_KIND_NVLINK_GAP, CW_CPU_USERSPACE, now_ns};
                gap.begin_ns = empty_ns_;
                gap.gpu = CW_NVLINK_ALL_GPUS;
                gap.reason = CW_NVLINK_LOG_OVERRUN;
                gaps.push_back(gap);
            }
            continue;
        }
        if (n <= 0) {
            if (n < 0 && errno == EINVAL) // a record that is longer than any should be
                continue;
            empty_ns_ = now_ns;
            break;
        }
        const auto line = parse_kernel_line({record.data(), static_cast<std::size_t>(n)});
        if (!line || line->facility != 0) // a program's line is no driver's
            continue;
        auto xid = parse_xid(line->text);
        if (!xid)
            continue;
        xid->header.time_ns = now_ns;
        xid->after_ns = empty_ns_;
        xid->kernel_ns = line->kernel_ns;
        xid->sequence = line->sequence;
        if (!has_read_)
            xid->flags |= CW_XID_BEFORE;
        errors.push_back(*xid);
    }
    has_read_ = true;
}

} // namespace collwire::nvidia
