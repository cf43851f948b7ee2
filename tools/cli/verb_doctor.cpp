// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "correlate/base/exit_status.h"
#include "tools/cli/verb.h"
#include "userspace/doctor/doctor.h"

namespace collwire::cli {

void add_doctor(CLI::App &app, int &status) {
    CLI::App *verb = app.add_subcommand(
        "doctor", "What this machine can and cannot trace, why, and what would help");
    const auto json = std::make_shared<bool>(false);
    verb->add_flag("--json", *json, "One JSON document (schema: docs/doctor.md)");
    verb->footer(
        "Exit status: 0 everything works, 3 not permitted, 4 unsupported or no RDMA device.");
    verb->callback([json, &status] {
        const DoctorReport report = run_doctor({});
        const char *no_colour = std::getenv("NO_COLOR");
        const bool colour =
            isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
        const std::string text =
            *json ? render_json(report, COLLWIRE_VERSION) : render_text(report, colour);
        std::fwrite(text.data(), 1, text.size(), stdout);
        status = report.exit_status;
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
            std::fputs("collwire doctor: cannot write to standard output\n", stderr);
            status = EXIT_FAILED;
        }
    });
}

} // namespace collwire::cli
