// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/read_signs.h"

#include <algorithm>
#include <string>

#include "collwire/record_kinds.h"
#include "correlate/model/ingest.h"
#include "correlate/model/join.h"
#include "correlate/stall/find_network.h"
#include "correlate/stall/first_errors.h"
#include "tools/cli/select_window.h"

namespace collwire::cli {
namespace {

// Whose an error is needs communicators and connections.
bool is_wanted(std::uint16_t kind, bool has_errors) {
    switch (kind) {
    case CW_KIND_NCCL_PROCESS:
    case CW_KIND_NCCL_SOCKET:
    case CW_KIND_TCP_SOCKET:
        return true;
    case CW_KIND_NCCL_IMAGE:
    case CW_KIND_NCCL_COMM:
    case CW_KIND_NCCL_COMM_END:
    case CW_KIND_NCCL_CONNECTION:
    case CW_KIND_NCCL_NETWORK:
    case CW_KIND_NCCL_RESULT:
    case CW_KIND_NCCL_LAST_ERROR:
    case CW_KIND_NCCL_WARNING:
        return has_errors;
    case CW_KIND_QP_POST:
    case CW_KIND_POST_SLICE:
    case CW_KIND_POST_OPERATIONS:
        return false;
    default:
        return kind < CW_KIND_NCCL_IMAGE;
    }
}

void put_errors(const std::vector<stall::ErrorOfCommunicator> &errors, ReadStandings &read) {
    for (const stall::ErrorOfCommunicator &of : errors) {
        const auto comm =
            std::ranges::find_if(read.standings.communicators, [&](const stall::Communicator &one) {
                return one.hash == of.hash && one.n_ranks == of.n_ranks;
            });
        if (comm == read.standings.communicators.end())
            continue;
        comm->error = of.error;
        if (const auto ahead = read.ahead_ns.find(of.host); ahead != read.ahead_ns.end())
            comm->error->time_ns -= static_cast<std::uint64_t>(ahead->second);
    }
}

} // namespace

void read_signs(const ChosenCaptures &chosen, const std::string &job, ReadStandings &read) {
    model::Ingest ingest;
    const capture::Window *window = chosen.selected ? &chosen.selected->window : nullptr;
    WindowCounts counts;
    for (const ChosenCapture &capture : chosen.captures) {
        auto file = FileInParts::open(capture.path);
        if (!file)
            continue;
        ingest.begin_capture(capture.path);
        const auto summary = read_part(
            *file, window, counts, [&](const cw_header &header, std::span<const std::byte> record) {
                if (is_wanted(header.kind, read.has_errors))
                    ingest.add(header, record);
            });
        if (summary)
            (void)ingest.end_capture(*summary);
        else
            ingest.fail_capture(summary.failure().message);
    }
    model::Model model = ingest.take();
    if (!job.empty())
        model::keep_job(model, job);
    model::join(model, nullptr);
    read.standings.network = stall::find_network(model);
    if (!read.has_errors)
        return;
    if (const auto errors = stall::first_errors(model))
        put_errors(*errors, read);
    else
        read.needs_model = "an error is of no known rank";
}

} // namespace collwire::cli
