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
#include "tools/cli/print_error.h"
#include "tools/cli/read_file.h"
#include "tools/cli/verbs.h"

namespace collwire::cli {
namespace {

// An inspection of a process with 64 operations in flight has about 100 KiB; parsing takes ten
// times the memory of the text.
constexpr std::size_t MAX_INSPECTION_BYTES = 64UL << 20U;

Result<inspect::Inspection> read_inspection(const std::string &path) {
    const auto bytes = read_file(path, MAX_INSPECTION_BYTES + 1);
    if (!bytes)
        return bytes.failure();
    if (bytes->size() > MAX_INSPECTION_BYTES)
        return error(ErrorKind::BadInput,
                     fmt::format("{}: larger than {} MiB, which no inspection of a node is. Fix: "
                                 "inspect fewer processes at once",
                                 path, MAX_INSPECTION_BYTES >> 20U));
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
        print_error("collwire diagnose: {}\n", read.failure().message);
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
