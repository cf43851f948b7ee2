// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/select_window.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/time_text.h"
#include "base/units.h"
#include "correlate/report/units.h"
#include "tools/cli/read_file.h"

namespace collwire::cli {
namespace {

std::vector<SurveyedCapture> survey_all(const std::vector<std::string> &files) {
    std::vector<SurveyedCapture> surveyed;
    for (const std::string &path : files) {
        auto file = FileInParts::open(path);
        if (!file)
            continue; // reading it says why
        const auto found =
            capture::survey(file->size_bytes(), [&](std::uint64_t offset, std::size_t length) {
                return file->read(offset, length);
            });
        if (found && found->has_node)
            surveyed.push_back({path, *found});
    }
    return surveyed;
}

// A segment is left out where a later one of its recording starts before the window, and where it
// starts after the window.
std::set<std::string> left_out(const std::vector<SurveyedCapture> &surveyed,
                               const capture::Window &window) {
    std::map<std::uint64_t, std::uint32_t> first_needed; // by recording: segment
    for (const SurveyedCapture &one : surveyed)
        if (one.survey.begin_ns <= window.from_ns) {
            std::uint32_t &first = first_needed[one.survey.session_id];
            first = std::max(first, one.survey.segment);
        }
    std::set<std::string> paths;
    for (const SurveyedCapture &one : surveyed) {
        const auto first = first_needed.find(one.survey.session_id);
        if ((first != first_needed.end() && one.survey.segment < first->second) ||
            one.survey.begin_ns >= window.to_ns)
            paths.insert(one.path);
    }
    return paths;
}

// What follows from the window.
void set_captures(Selected &selected) {
    model::WindowFacts &facts = selected.facts;
    facts.local =
        fmt::format("{} to {}", local_time_text(facts.from_ns), local_time_text(facts.to_ns));
    selected.left_out = left_out(selected.surveyed, selected.window);
    facts.segments_left_out = selected.left_out.size();
}

} // namespace

Result<Selected> select_window(const Selection &selection, const std::vector<std::string> &files,
                               const FindStart &find_start) {
    Selected selected;
    selected.surveyed = survey_all(files);
    const std::vector<SurveyedCapture> &surveyed = selected.surveyed;
    TimeRange range{UINT64_MAX, 0};
    for (const SurveyedCapture &one : surveyed) {
        range.begin_ns = std::min(range.begin_ns, one.survey.begin_ns);
        range.end_ns = std::max(range.end_ns, one.survey.end_ns);
    }
    if (surveyed.empty())
        return selected; // nothing can be read, and reading says why
    capture::Window &window = selected.window;
    TimeRange before_to = range;
    if (!selection.to.empty()) {
        const auto to = parse_time_ns(selection.to, range, DayOf::End);
        if (!to)
            return Error(to.failure()).in("--to");
        window.to_ns = *to;
        before_to.end_ns = std::clamp(*to, range.begin_ns, range.end_ns);
    }
    if (!selection.from.empty()) {
        const auto from = parse_time_ns(selection.from, before_to, DayOf::Begin);
        if (!from)
            return Error(from.failure()).in("--from");
        window.from_ns = *from;
    }
    if (!selection.last.empty()) {
        const auto last_ns = parse_duration_ns(selection.last);
        if (!last_ns)
            return Error(last_ns.failure()).in("--last");
        const std::uint64_t end_ns = std::min(window.to_ns, range.end_ns);
        window.from_ns = end_ns - std::min(end_ns, *last_ns);
    }
    if (find_start && window.from_ns < window.to_ns)
        window.from_ns = std::max(window.from_ns, std::min(find_start(window.to_ns), range.end_ns));
    if (window.from_ns >= window.to_ns)
        return error(
            ErrorKind::Usage,
            fmt::format("the window is empty: it is from {} to {}. Fix: give --from a time "
                        "before --to",
                        report::utc(window.from_ns), report::utc(window.to_ns)));
    model::WindowFacts &facts = selected.facts;
    facts.recorded_from_ns = range.begin_ns;
    facts.recorded_to_ns = range.end_ns;
    facts.from_ns = std::max(window.from_ns, range.begin_ns);
    facts.to_ns = std::min(window.to_ns, range.end_ns);
    if (window.from_ns > range.end_ns || window.to_ns <= range.begin_ns) {
        facts.from_ns = window.from_ns;
        facts.to_ns = window.to_ns;
        return nothing_inside(selected);
    }
    set_captures(selected);
    return selected;
}

Selected narrowed(const Selected &selected, const capture::Window &part) {
    Selected narrow = selected;
    narrow.window = part;
    narrow.facts.from_ns = std::max(part.from_ns, selected.facts.from_ns);
    narrow.facts.to_ns = std::min(part.to_ns, selected.facts.to_ns);
    set_captures(narrow);
    return narrow;
}

Error nothing_inside(const Selected &selected) {
    const auto bound = [](std::uint64_t ns, const char *open) {
        return ns == 0 || ns == UINT64_MAX ? std::string(open) : report::utc(ns);
    };
    return error(ErrorKind::BadInput,
                 fmt::format("nothing was recorded from {} to {}: the captures are of {} to {} "
                             "({} to {}). Fix: give a window in that time",
                             bound(selected.facts.from_ns, "the start"),
                             bound(selected.facts.to_ns, "the end"),
                             report::utc(selected.facts.recorded_from_ns),
                             report::utc(selected.facts.recorded_to_ns),
                             local_time_text(selected.facts.recorded_from_ns),
                             local_time_text(selected.facts.recorded_to_ns)));
}

} // namespace collwire::cli
