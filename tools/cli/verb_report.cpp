// SPDX-License-Identifier: Apache-2.0
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>

#include "base/exit_status.h"
#include "collwire/record.h"
#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"
#include "correlate/model/ingest.h"
#include "correlate/model/join.h"
#include "correlate/model/segment_order.h"
#include "correlate/report/json_report.h"
#include "correlate/report/text_report.h"
#include "correlate/topology/topology.h"
#include "tools/cli/read_file.h"
#include "tools/cli/topology_file.h"
#include "tools/cli/verbs.h"

namespace collwire::cli {

namespace {

constexpr std::size_t WIDTH_WITHOUT_TERMINAL = 120;

void complain(std::string_view message) {
    std::cerr << "collwire report: " << message << '\n';
}

struct Input {
    std::string path;
    model::SegmentOrder order;
};

model::SegmentOrder order_of(const std::string &path) {
    auto bytes = read_file(path, model::FIRST_BYTES);
    if (bytes && bytes->size() == model::FIRST_BYTES)
        bytes = read_file(path, model::bytes_for_order(*bytes));
    return bytes ? model::segment_order(*bytes) : model::SegmentOrder{};
}

// In the order that Ingest needs.
std::vector<Input> in_order(std::vector<std::string> files) {
    std::vector<Input> inputs;
    for (std::string &file : files) {
        const model::SegmentOrder order = order_of(file);
        inputs.push_back({std::move(file), order});
    }
    std::stable_sort(inputs.begin(), inputs.end(),
                     [](const Input &a, const Input &b) { return a.order < b.order; });
    return inputs;
}

void refuse(const std::string &path, const Error &failure, model::Ingest &ingest) {
    complain(failure.message);
    ingest.unreadable(path, failure.message.substr(path.size() + std::strlen(": ")));
}

// False: the file was not used.
bool ingest_file(const std::string &path, model::Ingest &ingest) {
    const auto bytes = read_file(path);
    if (!bytes) {
        refuse(path, bytes.failure(), ingest);
        return false;
    }
    ingest.begin_capture(path);
    const auto summary = capture::read_capture(
        *bytes, [&](const cw_header &header, std::span<const std::byte> record) {
            ingest.add(header, record);
        });
    if (!summary) {
        complain(fmt::format("{}: {}", path, summary.failure().message));
        ingest.fail_capture(summary.failure().message);
        return false;
    }
    const bool used = ingest.end_capture(*summary);
    if (summary->cut || !used)
        complain(fmt::format("{}: {}; {}", path, summary->describe(),
                             used                    ? "records before that are used"
                             : summary->records == 0 ? "not used"
                                                     : "not used: no node record in it"));
    return used;
}

// False: some file was refused. `used`: number of captures that were ingested.
bool ingest_all(const std::vector<std::string> &paths, model::Ingest &ingest, std::size_t &used) {
    NamedCaptures named = expand_captures(paths);
    for (const auto &refused : named.refused)
        refuse(refused.path, refused.failure, ingest);
    const std::vector<Input> inputs = in_order(std::move(named.files));
    for (const Input &input : inputs)
        used += ingest_file(input.path, ingest) ? 1 : 0;
    return named.refused.empty() && used == inputs.size();
}

report::TextOptions text_options(std::size_t rows) {
    report::TextOptions options;
    options.rows = rows;
    options.width = WIDTH_WITHOUT_TERMINAL;
    winsize size{};
    const char *columns = std::getenv("COLUMNS");
    if (isatty(STDOUT_FILENO) == 1) {
        const char *no_color = std::getenv("NO_COLOR");
        options.color = no_color == nullptr || *no_color == 0;
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0)
            options.width = size.ws_col;
    } else if (columns != nullptr) {
        std::size_t width = 0;
        if (std::from_chars(columns, columns + std::strlen(columns), width).ec == std::errc{} &&
            width != 0)
            options.width = width;
    }
    return options;
}

bool is_capture(const std::string &path) {
    const auto bytes = read_file(path, capture::FILE_MAGIC.size());
    return bytes && std::ranges::equal(*bytes, std::as_bytes(std::span(capture::FILE_MAGIC)));
}

Result<void> write_json_file(const model::Model &model, const ReportCommand &command) {
    const std::string &path = command.json;
    // Mode 0600, as captures have: the JSON contains command lines.
    const mode_t umask_before = ::umask(S_IRWXG | S_IRWXO);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    ::umask(umask_before);
    if (file) {
        report::write_json(model, file, {.detail = command.detail});
        file.close();
    }
    if (!file)
        return error(ErrorKind::Failed,
                     fmt::format("{}: cannot write: {}. Fix: give another file with --json", path,
                                 std::strerror(errno)));
    return {};
}

Result<void> write_reports(const model::Model &model, const ReportCommand &command) {
    if (command.json == "-")
        report::write_json(model, std::cout, {.detail = command.detail});
    else
        std::cout << report::text_report(model, text_options(command.rows));
    if (!std::cout.flush())
        return error(ErrorKind::Failed,
                     "cannot write to standard output. Fix: check its disk or pipe");
    if (!command.json.empty() && command.json != "-")
        return write_json_file(model, command);
    return {};
}

Result<topology::Topology> read_topology(const std::string &path) {
    const auto text = read_topology_text(path);
    if (!text)
        return text.failure();
    auto parsed = topology::parse_topology(*text);
    if (parsed)
        return parsed;
    const std::string hint = other_format_hint(*text);
    return hint.empty() ? std::move(parsed).failure().in(path)
                        : error(ErrorKind::BadInput, hint).in(path);
}

} // namespace

int run_report(const ReportCommand &command) {
    if (command.json != "-" && is_capture(command.json)) {
        complain(fmt::format(
            "--json {}: refusing to overwrite a capture. Fix: give another file after --json",
            command.json));
        return EXIT_USAGE;
    }
    std::optional<topology::Topology> topology;
    if (!command.topology.empty()) {
        auto read = read_topology(command.topology);
        if (!read) {
            complain(read.failure().message);
            return EXIT_FAILED;
        }
        topology = std::move(read).value();
    }

    model::Ingest ingest;
    std::size_t used = 0;
    const bool all_used = ingest_all(command.paths, ingest, used);
    if (used == 0)
        return EXIT_FAILED;

    model::Model model = ingest.take();
    model::join(model, topology ? &*topology : nullptr);
    if (const auto written = write_reports(model, command); !written) {
        complain(written.failure().message);
        return EXIT_FAILED;
    }
    if (!all_used)
        return EXIT_FAILED;
    return model.lost_records != 0 ? EXIT_LOSS : EXIT_DONE;
}

} // namespace collwire::cli
