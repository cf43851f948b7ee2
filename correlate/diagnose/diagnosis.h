// SPDX-License-Identifier: Apache-2.0
// Which rank is late, and why: joins the inspections of many nodes into communicators and their
// ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "correlate/inspect/inspection.h"
#include "correlate/inspect/waits.h"
#include "correlate/model/jobs.h"
#include "correlate/model/model.h"
#include "correlate/verdict/verdict.h"

namespace collwire::diagnose {

// One rank of one communicator in one inspection. Pointers refer to the inspection.
struct Rank {
    std::int32_t rank = -1;
    std::string host;
    std::uint32_t pid = 0;
    std::uint64_t realtime_ns = 0; // when it was inspected
    std::uint64_t between_ns = 0;  // the two samples
    const inspect::Process *process = nullptr;
    const inspect::Communicator *comm = nullptr;
    const inspect::Proxy *proxy = nullptr;             // null: no proxy
    const std::vector<inspect::Port> *ports = nullptr; // of its host: of its inspection
    inspect::ProxyStanding standing;
};

enum class Kind {
    Host,        // the process, or a thread that NCCL needs, does not run
    Application, // the rank has not called, or not launched, the operation that the others wait for
    Gpu,         // its kernel does not finish
    Network,     // sent data does not arrive
    Mismatch,    // it runs another operation than its peers
    Missing,     // no inspection covers it
    Error,       // NCCL itself reports an error there
    Deadlock,    // it is part of a circle of ranks that wait for each other
    Nccl,        // it waits inside NCCL's host code
    Unknown,
};
[[nodiscard]] std::string_view kind_name(Kind kind); // "HOST", ...

// One cause.
struct Cause {
    Kind kind = Kind::Unknown;
    std::int32_t rank = -1;
    std::optional<std::int32_t> peer; // for Network
    std::string sentence;             // without a full stop
    std::vector<std::string> evidence;
    std::optional<std::size_t> circle; // for Deadlock: index in Diagnosis::circles
};

struct Behind {
    std::int32_t rank = -1;
    std::uint64_t by = 0; // operations
};

// A communicator with all of its ranks.
struct Communicator {
    std::uint64_t hash = 0;
    std::string name;
    std::string guessed_role; // from captures (docs/roles.md); empty: none, or it has a name
    std::int32_t n_ranks = 0;
    std::vector<Rank> ranks;           // the inspected ones, by rank
    std::vector<std::int32_t> missing; // the ranks without an inspection
    bool is_ambiguous = false; // two processes claim one rank: several communicators share the hash
    std::optional<std::uint64_t> most_launched;
    std::vector<Behind> behind; // inspected ranks only
    // Operations are in flight without progress; or ranks lag, and no rank launches.
    bool is_stuck = false;
    bool is_judged_by_launches = false; // stuck, as far as launches alone show
    // By number of ranks held up. Of one that is not stuck: why it is slow.
    std::vector<Cause> causes;
};

// A rank that has come to the making of a communicator. Pointers refer to the inspection.
struct UnreadyRank {
    std::int32_t rank = -1; // -1: not known
    std::string host;
    std::uint32_t pid = 0;
    const inspect::Process *process = nullptr;
    const inspect::UnreadyComm *comm = nullptr;
};

// A communicator that is not ready on at least one rank.
struct UnreadyCommunicator {
    std::uint64_t hash = 0;  // 0: not known
    std::uint64_t magic = 0; // 0: not known
    std::int32_t n_ranks = 0;
    std::optional<std::uint64_t> parent_hash;
    std::vector<UnreadyRank> ranks;   // by rank
    std::vector<std::int32_t> ready;  // ranks for which it is ready
    std::vector<std::int32_t> absent; // ranks that no inspection has in it
    // Those of `absent` that have certainly not come: ranks that came wait for them.
    std::vector<std::int32_t> awaited;
    std::vector<Cause> causes;
};
[[nodiscard]] std::string title_of(const UnreadyCommunicator &comm);

// Ranks that wait for each other, each in another communicator than the one before it.
struct Circle {
    struct Step {
        std::uint64_t hash = 0; // of the communicator
        std::int32_t rank = -1, awaits = -1;
        std::string host;
        std::uint32_t pid = 0;
        std::string sentence;
    };
    std::string sentence;
    std::vector<Step> steps;         // each waits for the next one, the last for the first
    std::vector<std::string> orders; // what each rank has launched first
};

struct Diagnosis {
    std::vector<Communicator> communicators; // stuck ones first
    std::vector<UnreadyCommunicator> unready;
    std::vector<Circle> circles;
    std::vector<std::string> warnings; // about inspections that do not fit together
    std::size_t n_witnesses = 0;       // files of inspections
    // From captures (correlate/stall/).
    std::size_t n_captures = 0;
    std::optional<model::WindowFacts> window;
    // Why captures were read by the model of the whole and not as a stream; empty: as a stream, or
    // the model was asked for.
    std::string needed_model;
    bool is_tail = false; // the window is what shows where each rank stood
    std::vector<model::ClusterJob> jobs;
    std::vector<verdict::Verdict> verdicts;
};

// What captures of the same job show a communicator to be for, which inspections do not.
struct CapturedRole {
    std::uint64_t hash = 0;
    std::int32_t n_ranks = 0;
    std::string guessed_role;
};

// `inspections` must outlive the result.
[[nodiscard]] Diagnosis diagnose(const std::vector<inspect::Inspection> &inspections,
                                 const std::vector<CapturedRole> &roles = {});

// As roles::title_of(): "dp (4 ranks)"
[[nodiscard]] std::string title_of(const Communicator &comm);
// "rank 37 (gpu-0417, pid 9120)", also with pod and container; without an inspection "rank 37"
[[nodiscard]] std::string name_of(const Communicator &comm, std::int32_t rank);
[[nodiscard]] const Rank *find_rank(const Communicator &comm, std::int32_t rank);

} // namespace collwire::diagnose
