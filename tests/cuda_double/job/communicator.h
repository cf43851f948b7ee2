// SPDX-License-Identifier: Apache-2.0
// The world and its parts, each with a stream of its own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_double/fakecuda/nccl.h"
#include "tests/cuda_double/job/log.h"
#include "tests/cuda_double/job/plan.h"

namespace collwire::job {

struct Communicator {
    std::string name{};
    int instance = 0;           // how often one of this name was created before
    std::vector<int> members{}; // ranks of the world
    int rank = 0;
    ncclComm_t handle = nullptr;
    cudaStream_t stream = nullptr;
    int calls = 0;

    [[nodiscard]] int ranks() const { return static_cast<int>(members.size()); }
    [[nodiscard]] int next() const { return (rank + 1) % ranks(); }
    [[nodiscard]] int previous() const { return (rank + ranks() - 1) % ranks(); }
    // What every line of the log says about it.
    [[nodiscard]] Fields fields() const;
};

class Communicators {
public:
    Communicators(const Plan &plan, JobLog &log, int rank, int ranks, const std::string &id_place);
    ~Communicators();
    Communicators(const Communicators &) = delete;
    Communicators &operator=(const Communicators &) = delete;

    // Null: this rank is in none of that name, or it was destroyed.
    Communicator *find(const std::string &name);
    // Everybody's call: out of the world.
    void create(const std::string &name);
    void destroy(const std::string &name);
    void abort(const std::string &name);
    void wait_for_all() const;

private:
    void add_world(const std::string &id_place);
    void shrink(const CommunicatorPlan &plan, Communicator &part, ncclConfig_t &config);
    void created(Communicator communicator, const Moment &at);
    void release(const std::string &name, const char *event, ncclResult_t (*function)(ncclComm_t),
                 const char *function_name);

    JobLog &log_;
    int rank_;
    int ranks_;
    bool has_names_;
    std::map<std::string, CommunicatorPlan> plans_;
    std::map<std::string, int> instances_;
    std::map<std::string, Communicator> alive_;
};

} // namespace collwire::job
