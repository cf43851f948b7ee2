// SPDX-License-Identifier: Apache-2.0
#include "correlate/verdict/render.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/foreign_text.h"
#include "correlate/roles/label.h"

namespace collwire::verdict {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string &text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

Json number_or_null(std::uint64_t number) {
    return number == 0 ? Json(nullptr) : Json(number);
}

} // namespace

std::string render_text(const std::vector<Verdict> &verdicts) {
    std::string text;
    for (const Verdict &verdict : verdicts) {
        const Subject &subject = verdict.subject;
        std::string place = subject.communicator_name;
        if (place.empty() && subject.communicator != 0)
            place = roles::label_of({}, subject.communicator, subject.guessed_role);
        text += fmt::format("\n-> {}{}{}{}: {}\n", code_name(verdict.code),
                            verdict.confidence == Confidence::Probable ? " (probable)" : "",
                            place.empty() ? "" : " in ", escaped(place), escaped(verdict.sentence));
        for (const std::string &one : verdict.evidence)
            text += fmt::format("     {}\n", escaped(one));
    }
    return text;
}

Json to_json(const std::vector<Verdict> &verdicts) {
    Json all = Json::array();
    for (const Verdict &verdict : verdicts) {
        const Subject &subject = verdict.subject;
        all.push_back({{"code", code_name(verdict.code)},
                       {"severity", severity_name(verdict.severity)},
                       {"confidence", confidence_name(verdict.confidence)},
                       {"communicator", subject.communicator == 0
                                            ? Json(nullptr)
                                            : Json(fmt::format("{:#018x}", subject.communicator))},
                       {"communicator_name", text_or_null(subject.communicator_name)},
                       {"communicator_guessed_role", text_or_null(subject.guessed_role)},
                       {"rank", subject.rank < 0 ? Json(nullptr) : Json(subject.rank)},
                       {"host", text_or_null(subject.host)},
                       {"pid", number_or_null(subject.pid)},
                       {"from_realtime_ns", number_or_null(verdict.from_realtime_ns)},
                       {"until_realtime_ns", number_or_null(verdict.until_realtime_ns)},
                       {"text", verdict.sentence},
                       {"evidence", verdict.evidence}});
    }
    return all;
}

} // namespace collwire::verdict
