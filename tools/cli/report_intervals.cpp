// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/report_intervals.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "base/exit_status.h"
#include "base/units.h"
#include "correlate/intervals/sequence.h"
#include "correlate/model/ingest.h"
#include "correlate/rows/row_sink.h"
#include "outputs/sqlite/sqlite_file.h"
#include "tools/cli/memory_need.h"
#include "tools/cli/print_error.h"
#include "tools/cli/private_file.h"
#include "tools/cli/read_captures.h"
#include "tools/cli/read_intervals.h"
#include "tools/cli/select_window.h"

namespace collwire::cli {
namespace {

using intervals::Interval;

void complain(const std::string &message) {
    print_error("collwire report: {}\n", message);
}

void put_rows(rows::RowSink &sink, const Interval &interval) {
    rows::put(sink, interval.row);
    for (const rows::IntervalTierRow &row : interval.tiers)
        rows::put(sink, row);
    for (const rows::IntervalPortRow &row : interval.ports)
        rows::put(sink, row);
    for (const rows::IntervalCommRow &row : interval.comms)
        rows::put(sink, row);
}

class IntervalReport {
public:
    IntervalReport(const ReportCommand &command, IntervalsToRead to_read,
                   const intervals::Recorded &recorded, const intervals::TextStyle &style)
        : command_(command), to_read_(std::move(to_read)), text_(recorded, style),
          json_(recorded, COLLWIRE_VERSION) {}

    // An exit status.
    int run() {
        // A reader of standard output that goes away ends it in order, where a file is written.
        if (!command_.sqlite.empty() || !command_.json.empty())
            (void)std::signal(SIGPIPE, SIG_IGN);
        if (!command_.sqlite.empty()) {
            auto created = sqlite::SqliteFile::create(command_.sqlite, rows::Scope::Intervals);
            if (!created)
                return failed(created.failure());
            sqlite_ = std::move(*created);
        }
        if (command_.json.empty() || command_.json == "-") {
            write(command_.json.empty() ? nullptr : &std::cout);
        } else if (const auto written = write_json_file(); !written) {
            return failed(written.failure());
        }
        if (!std::cout.flush()) {
            complain("cannot write to standard output. Fix: check its disk or pipe");
            return EXIT_FAILED;
        }
        if (sqlite_ != nullptr)
            if (const auto finished = sqlite_->finish(); !finished)
                return failed(finished.failure());
        return !all_used_ ? EXIT_FAILED : lost_records_ != 0 ? EXIT_LOSS : EXIT_DONE;
    }

private:
    // It takes as long as the reading: until then it has no name.
    Result<void> write_json_file() {
        std::stringstream document;
        write(&document);
        if (is_stopped_)
            return {};
        return write_private_file(command_.json, "--json",
                                  [&](std::ostream &out) { out << document.rdbuf(); });
    }

    static int failed(const Error &failure) {
        complain(failure.message);
        return EXIT_FAILED;
    }

    // `json`: null: none. Text goes to standard output, if JSON does not.
    void write(std::ostream *json) {
        const bool has_text = json != &std::cout;
        if (has_text)
            std::cout << text_.head() << std::flush;
        if (json != nullptr)
            *json << json_.head();
        const Complain of_capture = [](const std::string &, const std::string &message) {
            complain(message);
        };
        all_used_ = read_intervals(to_read_, of_capture, [&](Interval &interval) {
            lost_records_ = std::max(lost_records_, interval.lost_records);
            if (has_text)
                std::cout << text_.line(interval) << std::flush;
            if (json != nullptr)
                *json << json_.part(interval);
            if (sqlite_ != nullptr)
                put_rows(*sqlite_, interval);
            is_stopped_ = !std::cout.good() || (json != nullptr && !json->good()) ||
                          (sqlite_ != nullptr && sqlite_->should_stop());
            return !is_stopped_;
        });
        if (is_stopped_)
            return;
        if (has_text)
            std::cout << text_.end();
        if (json != nullptr)
            *json << json_.end();
    }

    const ReportCommand &command_;
    IntervalsToRead to_read_;
    intervals::TextLines text_;
    intervals::JsonParts json_;
    std::unique_ptr<sqlite::SqliteFile> sqlite_;
    bool all_used_ = true;
    bool is_stopped_ = false; // before its end
    std::uint64_t lost_records_ = 0;
};

} // namespace

int run_intervals(const ReportCommand &command, const topology::Topology *topology,
                  const intervals::TextStyle &style) {
    const auto every_ns = parse_duration_ns(command.every);
    if (!every_ns) {
        complain("--every: " + every_ns.failure().message);
        return EXIT_USAGE;
    }
    auto chosen = choose_captures(command.paths, command.selection, Part::Windowed);
    if (!chosen) {
        for (const auto &refused : expand_captures(command.paths).refused)
            complain(refused.failure.message);
        complain(chosen.failure().message);
        return exit_status_of(chosen.failure());
    }
    const model::WindowFacts &facts = chosen->selected->facts;
    const intervals::Recorded recorded{.begin_ns = facts.from_ns,
                                       .end_ns = facts.to_ns,
                                       .every_ns = *every_ns,
                                       .local = facts.local};
    auto bounds = intervals::divide({facts.from_ns, facts.to_ns}, *every_ns);
    if (!bounds) {
        complain("--every: " + bounds.failure().message);
        return EXIT_USAGE;
    }
    if (bounds->empty()) { // no capture can be read
        model::Ingest into;
        (void)ingest("report", *chosen, into); // it says why
        return EXIT_FAILED;
    }
    const std::uint64_t records = count_records(*chosen, &chosen->selected->window);
    const std::uint64_t free_bytes = free_memory_bytes();
    if (const auto warning = memory_warning_of_interval(records, bounds->size(), free_bytes))
        complain(*warning);
    IntervalsToRead to_read{.chosen = std::move(*chosen),
                            .bounds = std::move(*bounds),
                            .job = command.selection.job,
                            .topology = topology};
    to_read.at_once = intervals_at_once(records, to_read.bounds.size(), free_bytes,
                                        std::thread::hardware_concurrency());
    return IntervalReport(command, std::move(to_read), recorded, style).run();
}

} // namespace collwire::cli
