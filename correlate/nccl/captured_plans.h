// SPDX-License-Identifier: Apache-2.0
// NCCL makes a kernel plan of calls that are captured into a CUDA graph; each launch of the graph
// launches that plan again. After the graph is destroyed, a later capture may reuse the plan's
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "correlate/nccl/nccl_facts.h"
#include "correlate/nccl/uncaptured_calls.h"

namespace collwire::nccl {

class CapturedPlans {
public:
    // Calls with equal values are captured into equal-looking plans.
    using LikenessOfCall = std::uint64_t (*)(const Call &);

    // `best`: upper limit of the certainty.
    CapturedPlans(NcclFacts &nccl, const Instance &instance, Rung best)
        : instance_(instance), stream_(nccl.gathered.streams[instance.stream]),
          joins_(nccl.call_joins[instance.stream]), task_calls_(nccl.task_calls[instance.stream]),
          best_(best) {}

    // Takes a launch. Returns the first launch of its plan; NONE: this one is the first.
    std::uint32_t add(std::uint32_t launch);
    // If tasks do not name all calls: the calls of the plan that the last launch launched first.
    void set_calls(const std::vector<std::uint32_t> &calls);

    // Whether the plans with these first launches play one after the other, round by round; the
    // last round may lack some. In order, each once.
    [[nodiscard]] bool play_in_turn(const std::vector<std::uint32_t> &first_launches) const;

    // After all launches have their calls: numbers the replays and informs their calls. Unlaunched
    // calls between two launches of a plan with such calls were captured into the same memory:
    // later launches are theirs.
    void finish(LikenessOfCall likeness, const UncapturedCalls &uncaptured);

private:
    using Calls = std::vector<std::uint32_t>;
    struct Plan {
        std::vector<std::uint32_t> launches;
        std::uint32_t first_ref = 0; // of the first launch, in CommStream::tasks
        std::uint32_t n_refs = 0;
        Calls calls; // set_calls
    };
    using Replays = std::vector<std::uint32_t>::const_iterator; // launches

    [[nodiscard]] bool is_same_plan(const Plan &plan, const Launch &launch) const;
    [[nodiscard]] Calls calls_of(const Plan &plan) const;
    void find_unlaunched(LikenessOfCall likeness, const UncapturedCalls &uncaptured);
    void split(const Plan &plan, LikenessOfCall likeness);
    [[nodiscard]] std::optional<Calls> recaptured(const Calls &calls, std::uint64_t after_ns,
                                                  std::uint64_t until_ns, LikenessOfCall likeness);
    void give_calls(Replays begin, Replays end, const Calls &from, const Calls &to);
    void number(Replays begin, Replays end, const Calls &without_task);
    [[nodiscard]] std::uint32_t first_call_after(std::uint64_t time_ns) const;

    const Instance &instance_;
    CommStream &stream_;
    CallJoins &joins_;
    std::vector<std::uint32_t> &task_calls_;
    Rung best_;
    std::vector<Plan> plans_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> newest_; // by plan and shape
    std::map<std::uint64_t, std::set<std::uint32_t>> unlaunched_;           // by likeness
};

} // namespace collwire::nccl
