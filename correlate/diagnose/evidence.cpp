// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/evidence.h"

#include <algorithm>

#include <fmt/format.h>

#include "correlate/inspect/job_text.h"
#include "correlate/model/meaning.h"

namespace collwire::diagnose {
namespace {

using inspect::Thread;

constexpr std::size_t MAX_FRAMES = 4;
constexpr std::uint64_t LEAST_THROTTLED_NS = 10'000'000;

std::string_view state_text(char state) {
    switch (state) {
    case 'R':
        return "runs";
    case 'S':
        return "sleeps";
    case 'D':
        return "is in D state (uninterruptible wait in the kernel)";
    case 'T':
        return "is stopped (SIGSTOP)";
    case 't':
        return "is stopped by a debugger";
    case 'Z':
    case 'X':
        return "has exited";
    default:
        return "is in an unknown state";
    }
}

std::string thread_text(const Thread &thread, std::string_view what) {
    std::string text = fmt::format("its {} {}", what, state_text(thread.state));
    if (!thread.stack.empty()) {
        const auto last = thread.stack.begin() +
                          static_cast<std::ptrdiff_t>(std::min(thread.stack.size(), MAX_FRAMES));
        text += fmt::format(" in {}", fmt::join(thread.stack.begin(), last, " < "));
    } else if (!thread.wait_channel.empty()) {
        text += " in " + thread.wait_channel;
    }
    if (thread.run_ns)
        text += fmt::format("; ran {:.1f} ms between the two samples",
                            static_cast<double>(*thread.run_ns) / 1e6);
    return text;
}

std::string throttling_text(const Rank &rank) {
    return fmt::format("cgroup {} was throttled for {:.1f} ms between the two samples",
                       rank.process->throttling->cgroup,
                       static_cast<double>(rank.process->throttling->throttled_ns) / 1e6);
}

std::string inside_text(const inspect::Process &process) {
    return process.namespace_pid == 0 || process.namespace_pid == process.pid
               ? std::string{}
               : fmt::format(", where its pid is {}", process.namespace_pid);
}

} // namespace

const Thread *thread_of(const Rank &rank, std::uint32_t tid) {
    const auto found = std::ranges::find(rank.process->threads, tid, &Thread::tid);
    return found == rank.process->threads.end() ? nullptr : &*found;
}

bool is_throttled(const Rank &rank) {
    return rank.process->throttling && rank.process->throttling->throttled_ns >= LEAST_THROTTLED_NS;
}

std::string ports_text(const Rank &rank) {
    std::string errors;
    for (const inspect::Port &port : *rank.ports)
        for (const inspect::Port::Change &change : port.changes)
            if (model::meaning_of(change.counter) != model::CounterMeaning::None)
                errors += fmt::format("{}{}/{} {} +{}", errors.empty() ? "" : ", ", port.device,
                                      port.port, change.counter, change.by);
    if (rank.ports->empty())
        return "its host has no RDMA port";
    return errors.empty() ? "the error counters of its NICs did not change" : "its NICs: " + errors;
}

std::vector<std::string> evidence_of(const Rank &rank) {
    std::vector<std::string> evidence;
    if (const Thread *main = thread_of(rank, rank.process->pid))
        evidence.push_back(thread_text(*main, "main thread"));
    if (rank.proxy != nullptr && rank.proxy->progress_tid != 0)
        if (const Thread *progress = thread_of(rank, rank.proxy->progress_tid))
            evidence.push_back(thread_text(*progress, "proxy thread"));
    if (is_throttled(rank))
        evidence.push_back(throttling_text(rank));
    evidence.push_back(ports_text(rank));
    if (!rank.process->last_error.empty())
        evidence.push_back("NCCL's last warning in its process: " + rank.process->last_error);
    if (const std::string job = inspect::job_text(*rank.process); !job.empty())
        evidence.push_back(fmt::format("it is in {}{}", job, inside_text(*rank.process)));
    return evidence;
}

const inspect::NcclCall *call_of(const Rank &rank) {
    const inspect::NcclCall *own = nullptr;
    for (const inspect::NcclCall &call : rank.process->calls) {
        // A thread whose communicator is not known may wait in any of its process.
        const bool may_be = call.comm == 0 && rank.process->unready.empty() &&
                            rank.process->communicators.size() == 1;
        const bool makes_other =
            std::ranges::find(rank.process->unready, call.tid, &inspect::UnreadyComm::tid) !=
            rank.process->unready.end();
        if (!makes_other && (call.comm == rank.comm->address || may_be))
            own = &call;
    }
    return own;
}

std::string function_text(const inspect::NcclCall &call) {
    return call.function.empty() ? "a thread of NCCL" : call.function;
}

std::string call_text(const inspect::NcclCall &call) {
    std::string text =
        fmt::format("thread {} is in {}", call.tid, call.function.empty() ? "NCCL" : call.function);
    if (!call.inside.empty())
        text += fmt::format(": {}", fmt::join(call.inside, " < "));
    return text;
}

} // namespace collwire::diagnose
