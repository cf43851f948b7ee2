// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/mismatches.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace collwire::diagnose {
namespace {

using inspect::Operation;
using inspect::Transfer;

constexpr std::size_t MOST_EVIDENCE = 4;

// The properties of an operation that must be equal at both ends.
std::string what_of(const End &end) {
    const Operation &operation = *end.operation;
    std::string text = operation.function.empty() ? "an operation" : operation.function;
    if (!operation.is_p2p) {
        for (const std::string &part :
             {operation.datatype, operation.reduction, operation.algorithm, operation.protocol})
            if (!part.empty())
                text += " " + part;
    }
    return text;
}

std::string text_of(const End &end) {
    const Transfer &transfer = *end.transfer;
    return fmt::format("{} of {} steps, from step {} on", what_of(end), transfer.nsteps,
                       transfer.base);
}

// For an end that has completed its steps.
std::string text_of(std::uint64_t steps) {
    return fmt::format("nothing more after step {}", steps);
}

// The other end completed in the middle of this operation: it had another size.
bool ends_inside(const End &end, std::uint64_t steps_of_other) {
    return steps_of_other > end.transfer->base &&
           steps_of_other < end.transfer->base + end.transfer->nsteps;
}

// Send and Recv are the two ends of one operation; a receiver has its sender's number of steps. If
// one end starts in the middle of the other's operation, earlier operations had different sizes.
bool is_same(const End &send, const End &receive) {
    if (send.transfer->base != receive.transfer->base ||
        send.transfer->nsteps != receive.transfer->nsteps)
        return false;
    if (send.operation->is_p2p || receive.operation->is_p2p)
        return send.operation->is_p2p == receive.operation->is_p2p;
    return what_of(send) == what_of(receive);
}

} // namespace

std::vector<Cause> find_mismatches(const Communicator &comm, const Ends &ends) {
    std::map<std::int32_t, std::size_t> disagrees; // by rank: number of mismatching ends
    std::map<std::int32_t, std::vector<std::string>> evidence;
    std::map<std::int32_t, std::string> own;
    const auto disagree = [&](const Way &way, const std::string &of_sender,
                              const std::string &of_receiver) {
        const std::string text = fmt::format("channel {}: rank {} sends {}; rank {} expects {}",
                                             way.channel, way.from, of_sender, way.to, of_receiver);
        own.emplace(way.from, of_sender);
        own.emplace(way.to, of_receiver);
        for (const std::int32_t rank : {way.from, way.to}) {
            ++disagrees[rank];
            evidence[rank].push_back(text);
        }
    };
    for (const auto &[way, of_sender] : ends.sends) {
        for (const End &send : of_sender) {
            if (const auto found = ends.receives.find(way); found != ends.receives.end())
                for (const End &receive : found->second)
                    if (are_in_one_place(send, receive) && !is_same(send, receive))
                        disagree(way, text_of(send), text_of(receive));
            if (const auto found = ends.received.find(way);
                found != ends.received.end() && ends_inside(send, found->second))
                disagree(way, text_of(send), text_of(found->second));
        }
    }
    for (const auto &[way, of_receiver] : ends.receives)
        if (const auto found = ends.sent.find(way); found != ends.sent.end())
            for (const End &receive : of_receiver)
                if (ends_inside(receive, found->second))
                    disagree(way, text_of(found->second), text_of(receive));
    // If one rank is wrong, both of its neighbours mismatch with it, and each of them only with it.
    std::size_t most = 0;
    for (const auto &[rank, n] : disagrees)
        most = std::max(most, n);
    std::vector<Cause> causes;
    for (const auto &[rank, n] : disagrees) {
        if (n != most)
            continue;
        Cause cause;
        cause.kind = Kind::Mismatch;
        cause.rank = rank;
        cause.sentence = fmt::format("{} runs a different operation than its neighbours: {}",
                                     name_of(comm, rank), own[rank]);
        cause.evidence = evidence[rank];
        if (cause.evidence.size() > MOST_EVIDENCE)
            cause.evidence.resize(MOST_EVIDENCE);
        causes.push_back(std::move(cause));
    }
    return causes;
}

} // namespace collwire::diagnose
