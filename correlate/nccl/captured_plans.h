// SPDX-License-Identifier: Apache-2.0
// NCCL makes a plan of calls that are captured into a CUDA graph, and each start of the graph
// launches that plan again. When the graph is gone, the memory of its plan is that of one that is
// captured later.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

class CapturedPlans {
public:
    // Calls of one value are captured into plans that look alike.
    using LikenessOfCall = std::uint64_t (*)(const Call &);

    // `best`: nothing is better known than this.
    CapturedPlans(NcclFacts &nccl, const Instance &instance, Rung best)
        : instance_(instance), stream_(nccl.gathered.streams[instance.stream]),
          joins_(nccl.call_joins[instance.stream]), task_calls_(nccl.task_calls[instance.stream]),
          best_(best) {}

    // Takes a launch. The one that its plan was launched first by; NONE: it is the first.
    std::uint32_t add(std::uint32_t launch);
    // Where tasks do not name all calls: those of the plan that was launched first by the last one.
    void set_calls(const std::vector<std::uint32_t> &calls);

    // When all launches have their calls: numbers the replays, and tells calls of theirs. Calls
    // that nothing launched, made between two launches of a plan that is of such calls, were
    // captured into the same memory: what comes after is of them.
    void finish(LikenessOfCall likeness);

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
    void find_unlaunched(LikenessOfCall likeness);
    void split(const Plan &plan, LikenessOfCall likeness);
    [[nodiscard]] std::optional<Calls> recaptured(const Calls &calls, std::uint64_t after_ns,
                                                  std::uint64_t until_ns, LikenessOfCall likeness);
    void give_calls(Replays begin, Replays end, const Calls &from, const Calls &to);
    void number(Replays begin, Replays end, const Calls &without_task);
    [[nodiscard]] std::uint32_t first_call_after(std::uint64_t time_ns) const;

    const Instance &instance_;
    CommStream &stream_;
    std::vector<CallJoin> &joins_;
    std::vector<std::uint32_t> &task_calls_;
    Rung best_;
    std::vector<Plan> plans_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> newest_; // by plan and shape
    std::map<std::uint64_t, std::set<std::uint32_t>> unlaunched_;           // by likeness
};

} // namespace collwire::nccl
