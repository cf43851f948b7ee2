// SPDX-License-Identifier: Apache-2.0
// The NVIDIA driver's errors ("NVRM: Xid ...") in records of /dev/kmsg.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "collwire/nvlink_records.h"

namespace collwire::nvidia {

// A record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg).
struct KernelLine {
    std::uint64_t sequence = 0;
    std::uint64_t kernel_ns = 0;
    unsigned facility = 0; // 0: the kernel's own; programs can write others only
    std::string_view text; // of `record`, without continuation lines
};
[[nodiscard]] std::optional<KernelLine> parse_kernel_line(std::string_view record);

// The error in a line of the driver; its header, after_ns, kernel_ns and sequence are 0. Formats,
// from logs that operators published (drivers 340 to 590):
//   NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on
//     link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)
//   NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x0 ...)
//   NVRM: Xid (PCI:0000:ba:00): 45, pid=1818989, name=python3, Ch 00000002 caused by previous Xid
//     145
[[nodiscard]] std::optional<cw_xid> parse_xid(std::string_view text);

} // namespace collwire::nvidia
