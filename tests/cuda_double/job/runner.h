// SPDX-License-Identifier: Apache-2.0
// Runs a plan: calls NCCL, logs each call, checks what comes out.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda_double/job/communicator.h"
#include "tests/cuda_double/job/log.h"
#include "tests/cuda_double/job/operation.h"
#include "tests/cuda_double/job/plan.h"

namespace collwire::job {

// One rank sleeps before one of its calls.
struct Stall {
    int rank = -1;
    int at = 0;               // counted from 0: of all calls, or of those on the communicator
    std::string communicator; // empty: all
    int ms = 0;
};

// And one does one of its operations with a fourth of the bytes.
struct OtherSize {
    int rank = -1;
    int at = 0; // which, from 0; each agreement to go on is one, too
};

struct RunOptions {
    int count = 0;      // 0: no end
    double seconds = 0; // 0: no end
    int gap_ms = 0;     // of silence after each step
    Stall stall;
    OtherSize other_size;
};

class Runner {
public:
    Runner(Communicators &communicators, JobLog &log, int rank, RunOptions options)
        : communicators_(communicators), log_(log), rank_(rank), options_(std::move(options)) {}

    // The number of wrong elements. Ends after an iteration on which all ranks agree.
    std::size_t run(const Plan &plan, const std::atomic<bool> &stop_asked);

private:
    struct Captured {
        int graph = 0;
        int replay = 0;
    };
    struct Pending {
        std::string what;
        PreparedOperation operation;
    };

    void run_steps(const std::vector<Step> &steps);
    void run_step(const Step &step);
    void run_operation(Operation operation);
    void run_group(const std::vector<Step> &steps);
    void run_capture(const Step &step);
    void run_abort(const Step &step);

    void call(Communicator &communicator, const Call &call);
    void stall(const Communicator &communicator);
    void log_call(const Communicator &communicator, const Call &call, const Moment &at, int index,
                  int result);
    void begin_group();
    void end_group();
    void check_pending();
    // An AllReduce of the ranks' wish to stop.
    bool agree_to_stop(bool wish);

    Communicators &communicators_;
    JobLog &log_;
    int rank_;
    RunOptions options_;
    int iteration_ = -1; // before the loop
    int calls_ = 0;
    int sequence_ = -1;
    int groups_ = 0;
    int graphs_ = 0;
    std::optional<int> group_;
    std::optional<Captured> captured_;
    std::vector<Fields> captured_calls_;
    const char *purpose_ = nullptr;
    std::vector<Pending> pending_;
    std::size_t wrong_elements_ = 0;
};

} // namespace collwire::job
