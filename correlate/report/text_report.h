// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/port_incidents.h"
#include "correlate/nccl/waiting.h"

namespace collwire::report {

struct TextOptions {
    std::size_t width = 100; // of the terminal
    bool color = false;
    std::size_t rows = 20; // of each table that can be long
    // What the captures say about the job's end, a sentence each; empty: nothing is said about it.
    std::vector<std::string> verdicts;
    // Of the model, if they are known already.
    const std::vector<nccl::WaitingTimes> *waiting = nullptr;
    const std::vector<nccl::PortIncident> *incidents = nullptr;
};

// The report for people; the JSON report has every detail.
[[nodiscard]] std::string text_report(const model::Model &model, const TextOptions &options);

} // namespace collwire::report
