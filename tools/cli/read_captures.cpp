// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/read_captures.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "collwire/record.h"
#include "correlate/capture/format.h"
#include "correlate/capture/reader.h"
#include "correlate/capture/window_filter.h"
#include "correlate/model/segment_order.h"
#include "tools/cli/find_tail.h"
#include "tools/cli/memory_need.h"
#include "tools/cli/print_error.h"
#include "tools/cli/read_file.h"
#include "tools/cli/select_job.h"
#include "tools/cli/select_window.h"

namespace collwire::cli {

namespace {

Complain complain_as(std::string_view verb) {
    return [verb = std::string(verb)](const std::string &, const std::string &message) {
        print_error("collwire {}: {}\n", verb, message);
    };
}

model::SegmentOrder order_of(const std::string &path) {
    auto bytes = read_file(path, model::FIRST_BYTES);
    if (bytes && bytes->size() == model::FIRST_BYTES)
        bytes = read_file(path, model::bytes_for_order(*bytes));
    return bytes ? model::segment_order(*bytes) : model::SegmentOrder{};
}

// In the order that Ingest needs.
std::vector<ChosenCapture> in_order(std::vector<std::string> files) {
    std::vector<ChosenCapture> captures;
    for (std::string &file : files) {
        const model::SegmentOrder order = order_of(file);
        captures.push_back({std::move(file), order});
    }
    std::stable_sort(
        captures.begin(), captures.end(),
        [](const ChosenCapture &a, const ChosenCapture &b) { return a.order < b.order; });
    return captures;
}

std::vector<std::string> paths_of(const std::vector<ChosenCapture> &captures) {
    std::vector<std::string> files;
    files.reserve(captures.size());
    for (const ChosenCapture &capture : captures)
        files.push_back(capture.path);
    return files;
}

void refuse(const Complain &complain, const std::string &path, const Error &failure,
            model::Ingest &ingest) {
    complain(path, failure.message);
    ingest.unreadable(path, failure.message.substr(path.size() + std::strlen(": ")));
}

// False: the file was not used.
bool read(const Complain &complain, const std::string &path, const capture::Window *window,
          WindowCounts &counts, model::Ingest &ingest) {
    auto file = FileInParts::open(path);
    if (!file) {
        refuse(complain, path, file.failure(), ingest);
        return false;
    }
    ingest.begin_capture(path);
    const auto summary = read_part(*file, window, counts,
                                   [&](const cw_header &header, std::span<const std::byte> record) {
                                       ingest.add(header, record);
                                   });
    if (!summary) {
        complain(path, fmt::format("{}: {}", path, summary.failure().message));
        ingest.fail_capture(summary.failure().message);
        return false;
    }
    const bool used = ingest.end_capture(*summary);
    if (summary->cut || !used)
        complain(path, fmt::format("{}: {}", path, how_used(*summary, used)));
    return used;
}

} // namespace

bool is_capture(const std::string &path) {
    const auto bytes = read_file(path, capture::FILE_MAGIC.size());
    return bytes && std::ranges::equal(*bytes, std::as_bytes(std::span(capture::FILE_MAGIC)));
}

std::string how_used(const capture::ReadSummary &summary, bool is_used) {
    return fmt::format("{}; {}", summary.describe(),
                       is_used                ? "records before that are used"
                       : summary.records == 0 ? "not used"
                                              : "not used: no node record in it");
}

void WindowCounts::add(const capture::ReadSummary &summary, const capture::WindowFilter &filter) {
    blocks += summary.blocks;
    blocks_left_out += summary.blocks_left_out;
    records_inside += filter.records_inside();
    counters_without_start += filter.counters_without_start();
}

void WindowCounts::add(const WindowCounts &others) {
    blocks += others.blocks;
    blocks_left_out += others.blocks_left_out;
    records_inside += others.records_inside;
    counters_without_start += others.counters_without_start;
}

void WindowCounts::put(model::WindowFacts &facts) const {
    facts.blocks = blocks;
    facts.blocks_left_out = blocks_left_out;
    facts.records_inside = records_inside;
    facts.counters_without_start = counters_without_start;
}

Result<capture::ReadSummary> read_part(FileInParts &file, const capture::Window *window,
                                       WindowCounts &counts, const capture::RecordVisitor &visit) {
    const capture::ReadAt read = [&](std::uint64_t offset, std::size_t length) {
        return file.read(offset, length);
    };
    if (window == nullptr)
        return capture::read_chosen_blocks(
            file.size_bytes(), read, [](const capture::BlockHeader &) { return true; }, visit);
    capture::WindowFilter filter(*window);
    auto summary = capture::read_chosen_blocks(
        file.size_bytes(), read,
        [&](const capture::BlockHeader &block) { return filter.needs(block); },
        [&](const cw_header &header, std::span<const std::byte> record) {
            filter.add(header, record, visit);
        });
    if (!summary)
        return summary;
    filter.finish(visit);
    filter.clip(*summary);
    counts.add(*summary, filter);
    return summary;
}

Result<ChosenCaptures> choose_captures(const std::vector<std::string> &paths,
                                       const Selection &selection, Part part,
                                       std::uint64_t margin_ns) {
    NamedCaptures named = expand_captures(paths);
    ChosenCaptures chosen;
    chosen.refused = std::move(named.refused);
    chosen.captures = in_order(std::move(named.files));
    if (!selection.job.empty()) {
        const auto without = captures_without_job(selection.job, paths_of(chosen.captures));
        if (!without)
            return without.failure();
        std::erase_if(chosen.captures, [&](const ChosenCapture &capture) {
            return without->contains(capture.path);
        });
    }
    chosen.all = chosen.captures;
    if (!selection.has_window() && part == Part::Selected)
        return chosen;
    const std::vector<std::string> files = paths_of(chosen.captures);
    FindStart find_start;
    if (part == Part::Tail)
        find_start = [&](std::uint64_t to_ns) { return find_tail(files, to_ns, margin_ns); };
    auto selected = select_window(selection, files, find_start);
    if (!selected)
        return selected.failure();
    if (part == Part::Tail && !selection.has_window() &&
        selected->facts.from_ns <= selected->facts.recorded_from_ns)
        return chosen; // the tail is everything
    std::erase_if(chosen.captures, [&](const ChosenCapture &capture) {
        return selected->left_out.contains(capture.path);
    });
    chosen.is_tail = part == Part::Tail;
    chosen.selected = std::make_shared<const Selected>(std::move(*selected));
    return chosen;
}

ChosenCaptures narrowed(const ChosenCaptures &chosen, const capture::Window &part) {
    ChosenCaptures narrow = chosen;
    narrow.selected = std::make_shared<const Selected>(narrowed(*chosen.selected, part));
    std::erase_if(narrow.captures, [&](const ChosenCapture &capture) {
        return narrow.selected->left_out.contains(capture.path);
    });
    return narrow;
}

Result<IngestedCaptures> ingest(std::string_view verb, const ChosenCaptures &chosen,
                                model::Ingest &into) {
    const std::uint64_t records =
        count_records(chosen, chosen.selected ? &chosen.selected->window : nullptr);
    if (const auto warning = memory_warning(records, free_memory_bytes()))
        print_error("collwire {}: {}\n", verb, *warning);
    return ingest(complain_as(verb), chosen, into);
}

Result<IngestedCaptures> ingest(const Complain &complain, const ChosenCaptures &chosen,
                                model::Ingest &ingest) {
    IngestedCaptures into;
    for (const auto &refused : chosen.refused)
        refuse(complain, refused.path, refused.failure, ingest);
    WindowCounts counts;
    const Selected *selected = chosen.selected.get();
    for (const ChosenCapture &capture : chosen.captures)
        into.used += read(complain, capture.path, selected == nullptr ? nullptr : &selected->window,
                          counts, ingest)
                         ? 1
                         : 0;
    into.all_used = chosen.refused.empty() && into.used == chosen.captures.size();
    if (selected == nullptr || into.used == 0)
        return into;
    if (counts.records_inside == 0 && !selected->window.is_one_of_many)
        return nothing_inside(*selected);
    into.window = selected->facts;
    counts.put(*into.window);
    return into;
}

Result<IngestedCaptures> ingest_all(std::string_view verb, const std::vector<std::string> &paths,
                                    const Selection &selection, model::Ingest &into) {
    const auto chosen = choose_captures(paths, selection);
    if (!chosen) {
        for (const auto &refused : expand_captures(paths).refused)
            refuse(complain_as(verb), refused.path, refused.failure, into);
        return chosen.failure();
    }
    return ingest(verb, *chosen, into);
}

} // namespace collwire::cli
