// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "base/exit_status.h"
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

int check_machine(bool json) {
    const doctor::DoctorReport report = doctor::run_doctor({});
    const char *no_colour = std::getenv("NO_COLOR");
    const bool colour = isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
    return print(json ? render_json(report, COLLWIRE_VERSION) : render_text(report, colour),
                 report.exit_status);
}

int check_library(const DoctorCommand &command) {
    std::error_code unknown;
    const auto absolute = std::filesystem::absolute(command.nccl_file, unknown);
    const auto layout =
        nccl::layout_of_file(command.nccl_file, {absolute.string(), command.symbols});
    if (!layout) {
        fmt::print(stderr, "collwire doctor: {}\n", layout.failure().message);
        return exit_status_of(layout.failure());
    }
    if (!command.export_directory.empty()) {
        const auto saved = nccl::save_layout(*layout, command.export_directory, COLLWIRE_VERSION);
        if (!saved) {
            fmt::print(stderr, "collwire doctor: {}\n", saved.failure().message);
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
    return command.nccl_file.empty() ? check_machine(command.json) : check_library(command);
}

} // namespace collwire::cli
