// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/names.h"

#include "correlate/capture/kinds.h"

namespace collwire::report {

using model::BytesRung;
using model::CaptureEnd;
using model::Pairing;

namespace {
std::string_view file_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}
} // namespace

std::string_view rung_name(BytesRung rung) {
    switch (rung) {
    case BytesRung::Posted:
        return "posted";
    case BytesRung::Wire:
        return "wire";
    case BytesRung::None:
        break;
    }
    return "none";
}

std::string_view pairing_name(Pairing pairing) {
    switch (pairing) {
    case Pairing::Paired:
        return "paired";
    case Pairing::NotCaptured:
        return "peer_not_captured";
    case Pairing::Ambiguous:
        return "ambiguous";
    case Pairing::None:
        break;
    }
    return "none";
}

std::string_view capture_end_name(CaptureEnd end) {
    switch (end) {
    case CaptureEnd::Complete:
        return "complete";
    case CaptureEnd::Damaged:
        return "damaged";
    case CaptureEnd::Unreadable:
        return "unreadable";
    case CaptureEnd::Open:
        break;
    }
    return "open";
}

std::string qp_type_text(std::uint8_t type) {
    const std::string_view name = capture::qp_type_name(type);
    return name.empty() ? "unknown" : std::string(name);
}

std::string process_title(const model::Process &process) {
    std::string title(file_name(process.argv0));
    if (title.empty())
        title = process.comm;
    if (!process.script.empty())
        title += ' ' + std::string(file_name(process.script));
    return title;
}

} // namespace collwire::report
