// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/exit_status.h"
#include "correlate/diagnose/diagnosis.h"
#include "correlate/diagnose/render.h"
#include "correlate/inspect/json.h"
#include "tools/cli/read_file.h"
#include "tools/cli/verbs.h"

namespace collwire::cli {
namespace {

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

} // namespace

int run_diagnose(const DiagnoseCommand &command) {
    std::vector<inspect::Inspection> inspections;
    int worst = EXIT_DONE;
    for (const std::string &path : command.files) {
        auto read = read_inspection(path);
        if (read) {
            inspections.push_back(std::move(*read));
            continue;
        }
        // The other files may be enough.
        fmt::print(stderr, "collwire diagnose: {}\n", read.failure().message);
        worst = worst == EXIT_DONE ? exit_status_of(read.failure()) : worst;
    }
    if (inspections.empty())
        return worst;
    const diagnose::Diagnosis diagnosis = diagnose::diagnose(inspections);
    const std::string text = command.json ? diagnose::render_json(diagnosis, COLLWIRE_VERSION)
                                          : diagnose::render_text(diagnosis);
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        std::fputs("collwire diagnose: cannot write to standard output\n", stderr);
        return EXIT_FAILED;
    }
    return worst;
}

} // namespace collwire::cli
