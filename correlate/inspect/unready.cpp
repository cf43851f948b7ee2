// SPDX-License-Identifier: Apache-2.0
// How far communicators under construction have come, in words.
#include <array>
#include <utility>

#include <fmt/format.h>

#include "correlate/inspect/waits.h"

namespace collwire::inspect {
namespace {

constexpr std::array<std::pair<Phase, std::string_view>, 6> PHASES{{
    {Phase::Start, "start"},
    {Phase::Root, "root"},
    {Phase::Parent, "parent"},
    {Phase::Ring, "ring"},
    {Phase::Exchange, "exchange"},
    {Phase::Transports, "transports"},
}};

std::string_view phase_text(Phase phase) {
    switch (phase) {
    case Phase::Start:
        return "has not reached the bootstrap";
    case Phase::Root:
        return "has reported to the bootstrap root";
    case Phase::Parent:
        return "exchanges with the ranks of its parent communicator";
    case Phase::Ring:
        return "connects the bootstrap's ring";
    case Phase::Exchange:
        return "exchanges addresses in the bootstrap's ring";
    case Phase::Transports:
        return "sets up topology and transports";
    case Phase::Unknown:
        break;
    }
    return "is being made; how far it has come is not known";
}

} // namespace

std::string_view phase_name(Phase phase) {
    for (const auto &[value, name] : PHASES)
        if (value == phase)
            return name;
    return "unknown";
}

Phase phase_of_name(std::string_view name) {
    for (const auto &[value, text] : PHASES)
        if (text == name)
            return value;
    return Phase::Unknown;
}

std::string sentence_of(const UnreadyComm &comm) {
    std::string text{phase_text(comm.phase)};
    for (const Awaited &one : comm.awaits) {
        text += one.rank < 0 ? "; waits for the bootstrap root"
                             : fmt::format("; waits for rank {}", one.rank);
        if (!one.address.empty())
            text += fmt::format(" at {}", one.address);
        text += ": " + one.reason;
    }
    return text;
}

} // namespace collwire::inspect
