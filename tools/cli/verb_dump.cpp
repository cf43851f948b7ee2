// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "collwire/record.h"
#include "correlate/capture/kinds.h"
#include "correlate/capture/reader.h"
#include "tools/cli/read_file.h"
#include "tools/cli/record_json.h"
#include "tools/cli/verb.h"

namespace collwire::cli {
namespace {

struct DumpOptions {
    std::vector<std::string> paths;
    std::vector<std::string> kinds;
};

// 0, or why it cannot be written (errno).
int print_record(const cw_header &header, std::span<const std::byte> record) {
    // Names in a capture are bytes that somebody chose: whatever is no UTF-8 is replaced, not
    // thrown at the user.
    const std::string line =
        record_json(header, record)
            .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
        '\n';
    return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() ? 0 : errno;
}

int dump_file(const std::string &path, const DumpOptions &options, int &write_failure) {
    const auto bytes = read_file(path);
    if (!bytes) {
        fmt::print(stderr, "collwire dump: {}\n", bytes.failure().message);
        return exit_status_of(bytes.failure());
    }
    const auto summary = capture::read_capture(
        *bytes, [&](const cw_header &header, std::span<const std::byte> record) {
            const bool wanted = options.kinds.empty() ||
                                std::find(options.kinds.begin(), options.kinds.end(),
                                          capture::kind_name(header.kind)) != options.kinds.end();
            if (wanted && write_failure == 0)
                write_failure = print_record(header, record);
        });
    if (!summary) {
        fmt::print(stderr, "collwire dump: {}: {}\n", path, summary.failure().message);
        return exit_status_of(summary.failure());
    }
    if (!summary->complete())
        fmt::print(stderr, "collwire dump: {}: {}\n", path, summary->describe());
    if (summary->unknown_records > 0)
        fmt::print(
            stderr,
            "collwire dump: {}: skipped {} records of kinds that only a newer collwire knows\n",
            path, summary->unknown_records);
    return summary->cut ? EXIT_LOSS : EXIT_DONE;
}

// What could not be read at all weighs more than what is cut off at its end.
int worse_of(int before, int status) {
    const bool replaces = before == EXIT_DONE || before == EXIT_LOSS;
    return replaces && status != EXIT_DONE ? status : before;
}

int dump(const DumpOptions &options) {
    const NamedCaptures named = expand_captures(options.paths);
    int worst = EXIT_DONE;
    for (const auto &refused : named.refused) {
        fmt::print(stderr, "collwire dump: {}\n", refused.failure.message);
        worst = worse_of(worst, exit_status_of(refused.failure));
    }
    int write_failure = 0;
    for (const std::string &path : named.files)
        if (write_failure == 0)
            worst = worse_of(worst, dump_file(path, options, write_failure));
    if (write_failure == 0 && std::fflush(stdout) != 0)
        write_failure = errno;
    if (write_failure != 0) {
        fmt::print(stderr, "collwire dump: cannot write to standard output: {}\n",
                   std::strerror(write_failure));
        return EXIT_FAILED;
    }
    return worst;
}

} // namespace

void add_dump(CLI::App &app, int &status) {
    auto options = std::make_shared<DumpOptions>();
    CLI::App *verb = app.add_subcommand("dump", "Print every record of captures as a line of JSON");
    verb->add_option("PATH", options->paths, "Capture files; a directory stands for its *.cwc")
        ->required();
    std::vector<std::string> names;
    for (const auto &kind : capture::kind_names())
        names.emplace_back(kind.name);
    verb->add_option("--kind", options->kinds, "Only records of this kind; may be repeated")
        ->check(CLI::IsMember(names))
        ->allow_extra_args(false);
    verb->footer(
        "Exit status: 0 done, 1 an input could not be read (the others still were), 2 usage, "
        "3 not permitted, 5 a capture is cut short: what is before the cut was printed.");
    verb->callback([options, &status] { status = dump(*options); });
}

} // namespace collwire::cli
