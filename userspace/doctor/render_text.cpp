// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/exit_status.h"
#include "base/foreign_text.h"
#include "userspace/doctor/report.h"
#include "userspace/doctor/text.h"

namespace collwire::doctor {
namespace {

constexpr std::size_t name_column = 10;
constexpr std::size_t text_column = name_column + 22;

void add_detail(std::string &out, std::string_view label, std::string_view text) {
    if (text.empty())
        return;
    constexpr std::size_t label_width = 7;
    out += std::string(text_column, ' ') + fmt::format("{:<{}}", label, label_width) +
           wrapped(text, text_column + label_width);
}

} // namespace

std::string state_word(CheckState state, bool colour) {
    std::string text = fmt::format("{:<8}", state_name(state));
    if (!colour)
        return text;
    const int code = state == CheckState::Ok ? 32 : state == CheckState::Limited ? 33 : 31;
    return fmt::format("\033[{}m{}\033[0m", code, text);
}

// Wraps at blanks; later lines start at the column.
std::string wrapped(std::string_view foreign, std::size_t column) {
    const std::string safe = escaped(foreign);
    std::string_view text = safe;
    std::string out;
    std::size_t room = TEXT_COLUMNS - column;
    while (text.size() > room) {
        std::size_t end = text.rfind(' ', room);
        if (end == std::string_view::npos)
            end = text.find(' ');
        if (end == std::string_view::npos)
            break;
        out += fmt::format("{}\n{}", text.substr(0, end), std::string(column, ' '));
        text.remove_prefix(end + 1);
    }
    return out + std::string(text) + "\n";
}

std::string verdict(const DoctorReport &report) {
    switch (report.exit_status) {
    case EXIT_DONE:
        return "Recording works on this machine.";
    case EXIT_NOT_PERMITTED: {
        const Check *capabilities = find_check(report, "capabilities");
        if (capabilities != nullptr && capabilities->code == Code::CapabilityMissing)
            return "Not permitted. Run it as root to check everything: sudo collwire doctor";
        return "Not permitted: `record` refuses here until what is `missing` is changed.";
    }
    default:
        return "Something that recording needs is missing on this machine: see `missing`.";
    }
}

std::string render_text(const DoctorReport &report, bool colour) {
    std::string out = fmt::format("collwire doctor: {}, Linux {}\n\nWhat can be recorded here\n",
                                  escaped(report.host), escaped(report.kernel));
    for (const SourceOutlook &source : report.sources) {
        std::string because;
        for (const std::string &name : source.because)
            because += (because.empty() ? "" : ", ") + name;
        out += "  " + state_word(source.state, colour) + fmt::format("{:<22}", source.name);
        out += wrapped(because.empty() ? source.what : source.what + " (see: " + because + ")",
                       text_column);
    }
    out += "\nChecks\n";
    for (const Check &check : report.checks) {
        out += "  " + state_word(check.state, colour) + fmt::format("{:<22}", check.name);
        out += wrapped(check.found, text_column);
        add_detail(out, "means", check.effect);
        add_detail(out, "fix", check.fix);
    }
    return out + "\n" + verdict(report) + "\n";
}

} // namespace collwire::doctor
