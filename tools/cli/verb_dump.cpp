// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "base/foreign_text.h"
#include "collwire/record.h"
#include "correlate/capture/kinds.h"
#include "correlate/capture/reader.h"
#include "tools/cli/print_error.h"
#include "tools/cli/read_file.h"
#include "tools/cli/record_json.h"
#include "tools/cli/verbs.h"

namespace collwire::cli {
namespace {

// Returns 0, or the errno of a failed write.
int print_record(const cw_header &header, std::span<const std::byte> record) {
    // Names in a capture are bytes that users chose: invalid UTF-8 is replaced, else dump() throws.
    const std::string line =
        escaped_json(record_json(header, record)
                         .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) +
        '\n';
    return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() ? 0 : errno;
}

int dump_file(const std::string &path, const DumpCommand &command, int &write_failure) {
    const auto bytes = read_file(path);
    if (!bytes) {
        print_error("collwire dump: {}\n", bytes.failure().message);
        return exit_status_of(bytes.failure());
    }
    const auto summary = capture::read_capture(
        *bytes, [&](const cw_header &header, std::span<const std::byte> record) {
            const bool wanted = command.kinds.empty() ||
                                std::find(command.kinds.begin(), command.kinds.end(),
                                          capture::kind_name(header.kind)) != command.kinds.end();
            if (wanted && write_failure == 0)
                write_failure = print_record(header, record);
        });
    if (!summary) {
        print_error("collwire dump: {}: {}\n", path, summary.failure().message);
        return exit_status_of(summary.failure());
    }
    if (!summary->complete())
        print_error("collwire dump: {}: {}\n", path, summary->describe());
    if (summary->unknown_records > 0)
        print_error("collwire dump: {}: skipped {} record(s) of kinds that this version does not "
                    "know. Fix: use the collwire that wrote the capture\n",
                    path, summary->unknown_records);
    return summary->cut ? EXIT_LOSS : EXIT_DONE;
}

// An unreadable file outranks one that is cut short.
int worse_of(int before, int status) {
    const bool replaces = before == EXIT_DONE || before == EXIT_LOSS;
    return replaces && status != EXIT_DONE ? status : before;
}

} // namespace

int run_dump(const DumpCommand &command) {
    const NamedCaptures named = expand_captures(command.paths);
    int worst = EXIT_DONE;
    for (const auto &refused : named.refused) {
        print_error("collwire dump: {}\n", refused.failure.message);
        worst = worse_of(worst, exit_status_of(refused.failure));
    }
    int write_failure = 0;
    for (const std::string &path : named.files)
        if (write_failure == 0)
            worst = worse_of(worst, dump_file(path, command, write_failure));
    if (write_failure == 0 && std::fflush(stdout) != 0)
        write_failure = errno;
    if (write_failure != 0) {
        print_error("collwire dump: cannot write to standard output: {}\n",
                    std::strerror(write_failure));
        return EXIT_FAILED;
    }
    return worst;
}

} // namespace collwire::cli
