// SPDX-License-Identifier: Apache-2.0
// What a job does, as text; README.md describes the language. Every rank reads the same plan.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda_double/fakecuda/nccl.h"

namespace collwire::job {

class PlanError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

inline constexpr const char *kWorld = "world";

enum class OperationKind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    SendRecv, // to the next rank, from the one before; around
    Forward,  // to the next rank, from the one before; the first and the last have one of both
    Backward,
    SelfSend,
    AllPairs, // to and from every rank, as a group of sends and receives
    AlltoAll, // this and the next two by NCCL's own functions (2.28)
    Gather,
    Scatter,
    Error,     // a Broadcast from a rank that does not exist
    NullBuffer // an AllReduce of what is at no address, which NCCL_CHECK_POINTERS=1 refuses
};

struct Operation {
    OperationKind kind = OperationKind::AllReduce;
    std::string communicator;
    std::size_t bytes = 0; // of NCCL's count
    ncclDataType_t type = ncclFloat32;
    ncclRedOp_t reduction = ncclSum;
    int root = -1; // -1: another one each time
    bool is_in_place = false;
    int times = 1;            // as many equal calls, on the same buffers
    bool uses_config = false; // the function with Config at the end of its name (2.31)
};

enum class StepKind { Operation, Group, Repeat, Capture, Wait, Sleep, Create, Destroy, Abort };

struct Step {
    StepKind kind = StepKind::Wait;
    Operation operation{};
    std::string communicator{}; // of those that name one
    int number = 0;             // repetitions, replays; milliseconds
    bool is_stuck = false;      // an Abort in the middle of an operation
    std::vector<Step> steps{};  // of a group, repetition or capture
};

enum class Shape { Whole, Block, Stride, Alone, List, Without };

// A part of the world that each rank is in, or (List, Without) not.
struct CommunicatorPlan {
    std::string name;
    Shape shape = Shape::Whole;
    int number = 0;
    std::vector<int> ranks;

    // Of a rank of the world: ranks of one color share a communicator.
    [[nodiscard]] int color_of(int rank) const;
};

struct Plan {
    std::vector<CommunicatorPlan> communicators;
    std::vector<Step> once;
    std::vector<Step> loop;
};

// Throws PlanError with the line.
Plan parse_plan(const std::string &text);
// A built-in plan or a file.
std::string plan_text(const std::string &name_or_path);

const char *name_of(ncclDataType_t type); // as NCCL's own enumerator
const char *name_of(ncclRedOp_t reduction);
std::size_t bytes_of(ncclDataType_t type);

} // namespace collwire::job
