// SPDX-License-Identifier: Apache-2.0
// Records of the kernel log, which contain names that processes choose.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "userspace/nvidia/xid_line.h"

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    const auto line = collwire::nvidia::parse_kernel_line(text);
    for (const std::string_view from : {text, line ? line->text : std::string_view{}}) {
        const auto xid = collwire::nvidia::parse_xid(from);
        if (!xid)
            continue;
        if (xid->n_registers > CW_XID_REGISTERS || xid->link < -1 || xid->xid == 0 ||
            strnlen(xid->unit, sizeof xid->unit) == sizeof xid->unit ||
            strnlen(xid->text, sizeof xid->text) == sizeof xid->text)
            std::abort();
    }
    return 0;
}
