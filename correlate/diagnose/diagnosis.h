// SPDX-License-Identifier: Apache-2.0
// Who is late, and why: one model of what many witnesses say of the ranks of communicators.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "correlate/inspect/inspection.h"
#include "correlate/inspect/waits.h"

namespace collwire::diagnose {

// What one witness says of one rank of one communicator. Pointers are into what it was made of.
struct Rank {
    std::int32_t rank = -1;
    std::string host;
    std::uint32_t pid = 0;
    std::uint64_t realtime_ns = 0; // when it was looked at
    const inspect::Process *process = nullptr;
    const inspect::Communicator *comm = nullptr;
    const inspect::Proxy *proxy = nullptr;             // null: it has none
    const std::vector<inspect::Port> *ports = nullptr; // of its host
    inspect::ProxyStanding standing;
};

enum class Kind {
    Host,        // the process, or a thread that NCCL needs, does not run
    Application, // the rank has not called, or not launched, what the others wait for
    Gpu,         // its kernel does not finish
    Network,     // what was sent does not arrive
    Mismatch,    // it does something else than the others
    Missing,     // nobody looked at it
    Error,       // NCCL itself has given up there
    Unknown,
};
[[nodiscard]] std::string_view kind_name(Kind kind); // "HOST", ...

// One cause.
struct Cause {
    Kind kind = Kind::Unknown;
    std::int32_t rank = -1;
    std::optional<std::int32_t> peer; // of Network
    std::string sentence;             // without an end
    std::vector<std::string> evidence;
};

struct Behind {
    std::int32_t rank = -1;
    std::uint64_t by = 0; // operations
};

// A communicator over all of its ranks.
struct Communicator {
    std::uint64_t hash = 0;
    std::string name;
    std::int32_t n_ranks = 0;
    std::vector<Rank> ranks;           // those that were looked at, by rank
    std::vector<std::int32_t> missing; // the others
    bool is_ambiguous = false; // two witnesses speak of one rank: it is several that look alike
    std::optional<std::uint64_t> most_launched;
    std::vector<Behind> behind; // of those that were looked at
    bool is_stuck = false;      // something is under way that does not get on
    std::vector<Cause> causes;  // the one that holds up most first; none: it is not stuck
};

struct Diagnosis {
    std::vector<Communicator> communicators; // those that are stuck first
    std::vector<std::string> warnings;       // of witnesses that do not fit together
    std::size_t n_witnesses = 0;             // files
};

// `inspections` must outlive what is returned.
[[nodiscard]] Diagnosis diagnose(const std::vector<inspect::Inspection> &inspections);

// "dp (4 ranks)"
[[nodiscard]] std::string title_of(const Communicator &comm);
// "rank 37 (gpu-0417, pid 9120)"; of one that nobody looked at "rank 37"
[[nodiscard]] std::string name_of(const Communicator &comm, std::int32_t rank);
[[nodiscard]] const Rank *find_rank(const Communicator &comm, std::int32_t rank);

} // namespace collwire::diagnose
