// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "base/exit_status.h"
#include "tools/cli/print_error.h"
#include "tools/cli/verbs.h"
#include "userspace/doctor/doctor.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/layout/save_layout.h"

namespace collwire::cli {
namespace {

int print(std::string_view text, int status) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)
        return status;
    std::fputs("collwire doctor: cannot write to standard output\n", stderr);
    return EXIT_FAILED;
}

doctor::NcclLook look_at_library(const std::string &path) {
    using Outcome = doctor::NcclLook::Outcome;
    const auto layout = nccl::layout_of_file(path);
    if (!layout)
        return {Outcome::Unreadable, layout.failure().message};
    const std::string version = layout->version.empty() ? "unknown version" : layout->version;
    const nccl::Capability *operations = nccl::find_capability(*layout, "operations");
    if (!layout->not_recorded.empty() || operations == nullptr)
        return {Outcome::Unknown, version + ", not recorded"};
    if (!layout->calls_only.empty())
        return {Outcome::Unknown, version + ", stripped, no layout is known"};
    const bool exact = operations->rung == nccl::Certainty::Exact;
    return {exact ? Outcome::Exact : Outcome::Inferred,
            fmt::format("{}, operations {}", version, nccl::certainty_name(operations->rung))};
}

int check_machine(const DoctorCommand &command) {
    doctor::DoctorOptions options;
    options.nccl_library = look_at_library;
    const doctor::DoctorReport report = doctor::run_doctor(std::move(options));
    const char *no_colour = std::getenv("NO_COLOR");
    const bool colour = isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
    if (command.json)
        return print(render_json(report, COLLWIRE_VERSION), report.exit_status);
    return print(command.all ? render_text(report, colour) : render_screen(report, colour),
                 report.exit_status);
}

int check_library(const DoctorCommand &command) {
    std::error_code unknown;
    const auto absolute = std::filesystem::absolute(command.nccl_file, unknown);
    const auto layout = nccl::layout_of_file(
        command.nccl_file, {absolute.string(), command.symbols}, !command.export_directory.empty());
    if (!layout) {
        print_error("collwire doctor: {}\n", layout.failure().message);
        return exit_status_of(layout.failure());
    }
    if (!command.export_directory.empty()) {
        const auto saved = nccl::save_layout(*layout, command.export_directory, COLLWIRE_VERSION);
        if (!saved) {
            print_error("collwire doctor: {}\n", saved.failure().message);
            return EXIT_FAILED;
        }
        return print(*saved + "\n", 0);
    }
    return print(command.json ? nccl::render_json(*layout, COLLWIRE_VERSION)
                              : nccl::render_text(*layout),
                 0);
}

} // namespace

int run_doctor(const DoctorCommand &command) {
    return command.nccl_file.empty() ? check_machine(command) : check_library(command);
}

} // namespace collwire::cli
