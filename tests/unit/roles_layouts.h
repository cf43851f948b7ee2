// SPDX-License-Identifier: Apache-2.0
// Jobs of known layouts, as facts from which roles are guessed, with the truth. Ranks are numbered
// as Megatron-LM does by default: tensor parallelism first, then context, data, and pipeline
// parallelism; communicators move what the public descriptions of these frameworks say.
#pragma once

#include <string>
#include <vector>

#include "correlate/roles/facts.h"

namespace collwire::roles::test {

enum class RankOrder { Block, Cyclic, GpusReversed, Scattered };
enum class Gradients { AllReduce, OneBucket, Sharded, LayerByLayer, TwoSteps };
enum class ContextExchange { Ring, AllGather, AllToAll };
enum class ExpertExchange { Even, Uneven, AllGather };

struct JobLayout {
    std::int32_t tensor = 1;
    std::int32_t context = 1;
    std::int32_t data = 1;
    std::int32_t stages = 1;
    std::int32_t experts = 1; // ranks of an exchange; a part of data and context
    std::int32_t gpus = 8;    // of a node
    RankOrder order = RankOrder::Block;
    Gradients gradients = Gradients::AllReduce;
    ContextExchange context_exchange = ContextExchange::Ring;
    ExpertExchange expert_exchange = ExpertExchange::Even;
    bool has_sequence_parallel = true;
    bool has_world = false; // a communicator of all ranks
    std::int32_t microbatches = 4;
    std::int32_t rounds = 1; // of stages that a rank has: interleaved
    std::int32_t layers = 4;
    std::int32_t steps = 3;
    std::int32_t missing_node = -1; // not captured
    std::uint32_t seed = 1;

    [[nodiscard]] std::int32_t ranks() const { return tensor * context * data * stages; }
    [[nodiscard]] bool is_possible() const;
    [[nodiscard]] std::string text() const;
};

struct MadeJob {
    JobFacts facts;
    // By group: "dp", "tp", "pp", "ep"; "dp or none": a part of data parallelism; "": no such role.
    std::vector<std::string> roles;
};
[[nodiscard]] MadeJob make_job(const JobLayout &layout);

} // namespace collwire::roles::test
