// SPDX-License-Identifier: Apache-2.0
#include "userspace/nvidia/xid_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>

#include "base/set_text.h"
#include "collwire/record_kinds.h"

namespace collwire::nvidia {
namespace {

constexpr std::string_view BEGIN = "NVRM: Xid (";
constexpr std::uint64_t NS_PER_US = 1'000;
constexpr unsigned FACILITY_SHIFT = 3;
constexpr std::uint32_t FIRST_NVLINK_5 = 144, LAST_NVLINK_5 = 150, NVLINK_ERROR = 74;
constexpr std::uint64_t MAX_DOMAIN = 0xffffffff;
constexpr std::uint64_t MAX_LINK = 255;

// Reads a number from the front, at least one digit.
template <typename Number> bool take_number(std::string_view &text, Number &number, int base = 10) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (read.ec != std::errc{})
        return false;
    text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
    return true;
}

bool take(std::string_view &text, std::string_view word) {
    if (!text.starts_with(word))
        return false;
    text.remove_prefix(word.size());
    return true;
}

std::string_view without_blanks(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(' ');
    return begin == std::string_view::npos ? std::string_view{} : text.substr(begin);
}

// "PCI:0000:b9:00", "0000:b9:00", "PCI:0000:b9:00.0", and what follows ")".
bool take_address(std::string_view &text, std::uint64_t &bus_id) {
    take(text, "PCI:");
    std::uint64_t domain = 0, bus = 0, device = 0, function = 0;
    if (!take_number(text, domain, 16) || domain > MAX_DOMAIN || !take(text, ":") ||
        !take_number(text, bus, 16) || bus > 0xff || !take(text, ":") ||
        !take_number(text, device, 16) || device > 0x1f)
        return false;
    if (take(text, ".") && (!take_number(text, function, 16) || function > 7))
        return false;
    bus_id = domain << 20U | bus << 12U | device << 4U | function;
    return take(text, ")");
}

// What follows "pid=..., name=..., ". A name is the process's own choice and may contain anything:
// of an older NVLink error the words from the last "NVLink:" on count.
std::string_view after_process(std::string_view text, cw_xid &xid) {
    std::string_view rest = without_blanks(text);
    if (!take(rest, "pid="))
        return text;
    take(rest, "'");
    take_number(rest, xid.pid);
    if (xid.xid == NVLINK_ERROR)
        return rest.substr(std::min(rest.rfind("NVLink:"), rest.size()));
    for (const std::string_view end : {"name=", ","})
        rest.remove_prefix(std::min(rest.find(end), rest.size()));
    return rest.substr(std::min<std::size_t>(1, rest.size()));
}

std::string lower(std::string_view text) {
    std::string lowered(text);
    std::ranges::transform(lowered, lowered.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lowered;
}

// " link 6(", "Link 09 (", "Link -1"
void find_link(std::string_view text, cw_xid &xid) {
    const std::string lowered = lower(text);
    for (std::size_t at = 0; (at = lowered.find("link ", at)) != std::string::npos; ++at) {
        if (at != 0 && lowered[at - 1] != ' ')
            continue;
        std::string_view number = without_blanks(std::string_view(lowered).substr(at + 4));
        if (std::uint64_t link = 0; take_number(number, link)) {
            xid.link = link <= MAX_LINK ? static_cast<__s32>(link) : -1;
            return;
        }
    }
}

void find_severity(std::string_view text, cw_xid &xid) {
    const std::string lowered = lower(text);
    if (lowered.find("nonfatal") != std::string::npos ||
        lowered.find("non-fatal") != std::string::npos)
        xid.flags |= CW_XID_NONFATAL;
    else if (lowered.find("fatal") != std::string::npos)
        xid.flags |= CW_XID_FATAL;
}

// The last list in brackets whose entries all begin with 0x.
void find_registers(std::string_view text, cw_xid &xid) {
    const std::size_t begin = text.find_last_of("([");
    if (begin == std::string_view::npos)
        return;
    std::string_view rest = text.substr(begin + 1);
    while (xid.n_registers < CW_XID_REGISTERS) {
        const std::size_t next = rest.find_first_not_of(" ,");
        if (next == std::string_view::npos)
            break;
        rest.remove_prefix(next);
        std::uint32_t value = 0;
        if (!take(rest, "0x") || !take_number(rest, value, 16))
            break;
        xid.registers[xid.n_registers++] = value;
    }
}

} // namespace

std::optional<KernelLine> parse_kernel_line(std::string_view record) {
    KernelLine line;
    std::uint64_t priority = 0, kernel_us = 0;
    if (!take_number(record, priority) || !take(record, ",") ||
        !take_number(record, line.sequence) || !take(record, ",") ||
        !take_number(record, kernel_us) || kernel_us > UINT64_MAX / NS_PER_US)
        return std::nullopt;
    const std::size_t begin = record.find(';');
    if (begin == std::string_view::npos)
        return std::nullopt;
    line.facility = static_cast<unsigned>(priority >> FACILITY_SHIFT);
    line.kernel_ns = kernel_us * NS_PER_US;
    line.text = record.substr(begin + 1);
    line.text = line.text.substr(0, line.text.find('\n'));
    return line;
}

std::optional<cw_xid> parse_xid(std::string_view text) {
    if (!take(text, BEGIN))
        return std::nullopt;
    const std::string_view from_xid{text.data() - (BEGIN.size() - BEGIN.find("Xid")),
                                    text.size() + BEGIN.size() - BEGIN.find("Xid")};
    cw_xid xid{};
    xid.header = {sizeof xid, CW_KIND_XID, CW_CPU_USERSPACE, 0};
    xid.link = -1;
    __u64 bus_id = 0;
    if (std::uint64_t address = 0; take_address(text, address))
        bus_id = address;
    else
        return std::nullopt;
    xid.bus_id = bus_id;
    if (!take(text, ":"))
        return std::nullopt;
    text = without_blanks(text);
    if (!take_number(text, xid.xid) || xid.xid == 0)
        return std::nullopt;
    set_text(xid.text, from_xid);
    if (from_xid.size() >= sizeof xid.text)
        xid.flags |= CW_XID_CUT;
    take(text, ",");
    const bool is_nvlink_5 = xid.xid >= FIRST_NVLINK_5 && xid.xid <= LAST_NVLINK_5;
    constexpr std::string_view CAUSE = " caused by previous Xid ";
    if (const std::size_t cause = text.rfind(CAUSE); cause != std::string_view::npos) {
        std::string_view number = text.substr(cause + CAUSE.size());
        take_number(number, xid.caused_by);
    }
    const std::string_view what = without_blanks(after_process(text, xid));
    if (is_nvlink_5)
        set_text(xid.unit, what.substr(0, what.find_first_of(" ,")));
    if (is_nvlink_5 || xid.xid == NVLINK_ERROR) {
        find_link(what, xid);
        find_severity(what, xid);
        find_registers(what, xid);
    }
    return xid;
}

} // namespace collwire::nvidia
