// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/exit_status.h"
#include "correlate/diagnose/diagnosis.h"
#include "correlate/diagnose/render.h"
#include "correlate/inspect/json.h"
#include "tools/cli/read_file.h"
#include "tools/cli/verb.h"

namespace collwire::cli {
namespace {

struct DiagnoseOptions {
    std::vector<std::string> files;
    bool json = false;
};

Result<inspect::Inspection> read_inspection(const std::string &path) {
    const auto bytes = read_file(path);
    if (!bytes)
        return bytes.failure();
    auto parsed =
        inspect::parse_inspection({reinterpret_cast<const char *>(bytes->data()), bytes->size()});
    if (!parsed)
        return std::move(parsed).failure().in(path);
    return parsed;
}

int run_diagnose(const DiagnoseOptions &options) {
    std::vector<inspect::Inspection> inspections;
    int worst = EXIT_DONE;
    for (const std::string &path : options.files) {
        auto read = read_inspection(path);
        if (read) {
            inspections.push_back(std::move(*read));
            continue;
        }
        // The others may say enough.
        fmt::print(stderr, "collwire diagnose: {}\n", read.failure().message);
        worst = worst == EXIT_DONE ? exit_status_of(read.failure()) : worst;
    }
    if (inspections.empty())
        return worst;
    const diagnose::Diagnosis diagnosis = diagnose::diagnose(inspections);
    const std::string text = options.json ? diagnose::render_json(diagnosis, COLLWIRE_VERSION)
                                          : diagnose::render_text(diagnosis);
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        std::fputs("collwire diagnose: cannot write to standard output\n", stderr);
        return EXIT_FAILED;
    }
    return worst;
}

} // namespace

void add_diagnose(CLI::App &app, int &status) {
    CLI::App *verb = app.add_subcommand(
        "diagnose", "Which rank is late and why, from what inspect wrote on all nodes");
    const auto options = std::make_shared<DiagnoseOptions>();
    verb->add_option("files", options->files, "Files of collwire inspect --json")->required();
    verb->add_flag("--json", options->json, "One JSON document (schema: docs/diagnose.md)");
    verb->footer("Exit status: 0 done, 1 a file could not be used (the others were), 2 usage.");
    verb->callback([options, &status] { status = run_diagnose(*options); });
}

} // namespace collwire::cli
