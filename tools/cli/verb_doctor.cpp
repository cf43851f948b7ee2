// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/exit_status.h"
#include "tools/cli/symbols_option.h"
#include "tools/cli/verb.h"
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

int this_machine(bool json) {
    const doctor::DoctorReport report = run_doctor({});
    const char *no_colour = std::getenv("NO_COLOR");
    const bool colour = isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
    return print(json ? render_json(report, COLLWIRE_VERSION) : render_text(report, colour),
                 report.exit_status);
}

struct NcclOptions {
    std::string library;
    std::vector<std::string> symbols;
    std::string export_to; // a directory
};

int nccl_library(const NcclOptions &options, bool json) {
    std::error_code unknown;
    const auto absolute = std::filesystem::absolute(options.library, unknown);
    const auto layout = nccl::layout_of_file(options.library, {absolute.string(), options.symbols});
    if (!layout) {
        fmt::print(stderr, "collwire doctor: {}\n", layout.failure().message);
        return exit_status_of(layout.failure());
    }
    if (!options.export_to.empty()) {
        const auto saved = nccl::save_layout(*layout, options.export_to, COLLWIRE_VERSION);
        if (!saved) {
            fmt::print(stderr, "collwire doctor: {}\n", saved.failure().message);
            return EXIT_FAILED;
        }
        return print(*saved + "\n", 0);
    }
    return print(json ? nccl::render_json(*layout, COLLWIRE_VERSION) : nccl::render_text(*layout),
                 0);
}

} // namespace

void add_doctor(CLI::App &app, int &status) {
    CLI::App *verb = app.add_subcommand(
        "doctor", "What this machine can and cannot trace, why, and what would help");
    const auto json = std::make_shared<bool>(false);
    verb->add_flag("--json", *json, "One JSON document (schema: docs/doctor.md)");
    const auto options = std::make_shared<NcclOptions>();
    auto *nccl =
        verb->add_option(
                "--nccl", options->library,
                "Instead: what can be known of the NCCL in this file (docs/nccl-layout.md)")
            ->type_name("FILE");
    add_symbols(*verb, options->symbols)->needs(nccl);
    verb->add_option("--export-plan", options->export_to,
                     "Save the layout in this directory, by build-id: --symbols DIR finds it for a "
                     "stripped copy of the file")
        ->type_name("DIR")
        ->needs(nccl);
    verb->footer(
        "Exit status: 0 everything works, 2 usage, 3 not permitted, 4 unsupported or no RDMA "
        "device; "
        "with --nccl: 0 a layout was made, 1 no NCCL in it or not readable, 3 not permitted, 4 not "
        "x86-64.");
    verb->callback([json, options, &status] {
        status = options->library.empty() ? this_machine(*json) : nccl_library(*options, *json);
    });
}

} // namespace collwire::cli
