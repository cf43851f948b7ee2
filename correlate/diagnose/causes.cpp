// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/causes.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/diagnose/evidence.h"
#include "correlate/inspect/job_text.h"

namespace collwire::diagnose {
namespace {

using inspect::Standing;
using inspect::Thread;

constexpr std::size_t MOST_NAMED = 16;

std::string waiting_text(const std::set<std::int32_t> &waiting) {
    if (waiting.empty())
        return {};
    if (waiting.size() == 1)
        return fmt::format("; rank {} waits for it", *waiting.begin());
    if (waiting.size() <= 4)
        return fmt::format("; ranks {} wait for it", fmt::join(waiting, ", "));
    return fmt::format("; {} ranks wait for it", waiting.size());
}

bool is_failure(std::string_view result) {
    return !result.empty() && result != "ncclSuccess" && result != "ncclInProgress";
}

} // namespace

std::string numbers_text(const std::vector<std::int32_t> &ranks) {
    const std::size_t n = std::min(ranks.size(), MOST_NAMED);
    std::string text =
        fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks",
                    fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(n), ", "));
    if (ranks.size() > n)
        text += fmt::format(" and {} more", ranks.size() - n);
    return text;
}

std::uint64_t behind_by(const Communicator &comm, std::int32_t rank) {
    const auto found = std::ranges::find(comm.behind, rank, &Behind::rank);
    return found == comm.behind.end() ? 0 : found->by;
}

Cause cause_of(const Communicator &comm, const Rank &rank, const std::set<std::int32_t> &waiting) {
    Cause cause;
    cause.rank = rank.rank;
    cause.evidence = evidence_of(rank);
    const std::string name = name_of(comm, rank.rank);
    const Thread *main = thread_of(rank, rank.process->pid);
    const bool in_kernel = main != nullptr && main->state == 'D';
    const std::uint64_t by = behind_by(comm, rank.rank);
    std::string what;
    switch (rank.standing.standing) {
    case Standing::Stopped:
        cause.kind = Kind::Host;
        what = "is stopped";
        break;
    case Standing::Proxy:
        cause.kind = Kind::Host;
        what = "has work to do, but its proxy thread does not run";
        break;
    case Standing::Kernel:
        cause.kind = Kind::Gpu;
        what = "has all the data that its kernel needs from the network, but the kernel does not "
               "continue";
        break;
    case Standing::Idle:
        if (const inspect::NcclCall *call = call_of(rank)) {
            cause.kind = Kind::Nccl;
            cause.evidence.push_back(call_text(*call));
            what = fmt::format("waits inside NCCL, in {}, and has not launched the operation",
                               function_text(*call));
        }
        if (rank.proxy != nullptr && rank.proxy->is_pool_empty == true) {
            cause.kind = Kind::Nccl;
            what = "waits inside NCCL: its pool of proxy operations is empty, and its proxy "
                   "returns none";
        }
        if (cause.kind == Kind::Nccl)
            break;
        cause.kind = in_kernel || is_throttled(rank) ? Kind::Host : Kind::Application;
        what = by != 0 ? fmt::format("has not launched the operation: it is {} operation{} behind",
                                     by, by == 1 ? "" : "s")
                       : "has not launched an operation that others wait for";
        break;
    default:
        what = "makes progress or could not be read, while others wait for it";
        break;
    }
    cause.sentence = fmt::format("{} {}{}", name, what, waiting_text(waiting));
    return cause;
}

Cause cause_of_missing(const Communicator &comm, std::int32_t rank,
                       const std::set<std::int32_t> &waiting) {
    Cause cause;
    cause.kind = Kind::Missing;
    cause.rank = rank;
    cause.sentence =
        fmt::format("{} was not inspected: its process has exited, or no file covers its node{}",
                    name_of(comm, rank), waiting_text(waiting));
    return cause;
}

bool has_failed(const Rank &rank) {
    return rank.comm->is_aborted == true || rank.comm->is_revoked == true ||
           is_failure(rank.comm->async_result) ||
           (rank.proxy != nullptr && is_failure(rank.proxy->async_result));
}

Cause cause_of_error(const Communicator &comm, const Rank &rank) {
    Cause cause;
    cause.kind = Kind::Error;
    cause.rank = rank.rank;
    const bool own = is_failure(rank.comm->async_result) || rank.proxy == nullptr;
    const std::string &result = own ? rank.comm->async_result : rank.proxy->async_result;
    const bool is_aborted = rank.comm->is_aborted == true;
    if (is_failure(result))
        cause.sentence = fmt::format("{}: NCCL reports {}{}{}", name_of(comm, rank.rank), result,
                                     own ? "" : " (its proxy)", is_aborted ? ", aborted" : "");
    else
        cause.sentence = fmt::format("{}: the program has {} the communicator",
                                     name_of(comm, rank.rank), is_aborted ? "aborted" : "revoked");
    for (const inspect::NcclCall &call : rank.process->calls) {
        if (call.comm != rank.comm->address || call.function != "ncclCommAbort")
            continue;
        cause.sentence += ", and has not come back from ncclCommAbort: NCCL waits there for the "
                          "communicator's kernels and threads";
        cause.evidence.push_back(call_text(call));
        break;
    }
    std::ranges::move(evidence_of(rank), std::back_inserter(cause.evidence));
    return cause;
}

} // namespace collwire::diagnose
