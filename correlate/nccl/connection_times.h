// SPDX-License-Identifier: Apache-2.0
// Start and end of the operations of one connection. A connection carries operations one after the
// other, in launch order, and NCCL counts their steps from 0 at the connection's creation: each
// operation has a range of that count, and each sample a position in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace collwire::nccl {

struct TimedOp {
    std::uint64_t launch_ns = 0;
    std::uint32_t nsteps = 0;
    std::uint32_t chunk_steps = 0; // it starts at a multiple of them
};

// cw_nccl_steps
struct StepSample {
    std::uint64_t begin_ns = 0, end_ns = 0; // read between them
    std::uint64_t unchanged_ns = 0;
    std::uint64_t steps = 0;
    bool is_idle = false;
    bool is_busy = false;
    friend auto operator<=>(const StepSample &, const StepSample &) = default;
};

// cw_nccl_progress
struct ProgressEvent {
    std::uint64_t time_ns = 0;
    std::uint64_t group = 0;
    std::uint64_t base_steps = 0;
    std::uint32_t nsteps = 0;
    bool is_end = false;
    friend auto operator<=>(const ProgressEvent &, const ProgressEvent &) = default;
};

// Creation of a connection, at some time before its first operation; or its discovery.
struct Birth {
    std::uint64_t time_ns = 0;
    bool is_first = false; // created: it had carried nothing
};

// How the end of an operation is known, weakest first.
enum class EndKnown : std::uint8_t {
    No,
    Bounded,  // a later end on the same connection was measured
    Sampled,  // between two samples of the connection
    Measured, // by NCCL itself
};

struct OpTime {
    std::uint64_t begin_ns = 0;  // 0: not measured
    std::uint64_t end_ns = 0;    // 0: not measured
    std::uint64_t after_ns = 0;  // it ended after this; 0: not known
    std::uint64_t before_ns = 0; // and before this; 0: not known
    EndKnown known = EndKnown::No;
    // Its place in NCCL's count, if that is certain: both are 0 otherwise.
    std::uint64_t base_steps = 0, end_steps = 0;
};

// Gets the operations of a connection twice, in order: first all to learn(), then, after learned(),
// the same to next().
class ConnectionTimes {
public:
    ConnectionTimes(std::vector<Birth> births, std::vector<StepSample> samples,
                    const std::vector<ProgressEvent> &events);

    void learn(const TimedOp &op);
    void learned();
    // Empty for an operation whose position is uncertain.
    OpTime next(const TimedOp &op);

private:
    // From one moment with a known count to the next one.
    struct Stretch {
        std::uint64_t begin_ns = 0; // launches after it
        std::optional<std::uint64_t> steps;
        bool is_certain = false; // the count certainly belongs to this moment
        bool is_joined = false;  // its operations and samples agree
        bool has_ops = false;
        bool fits = true;
        bool lags = false; // at a pause, fewer steps than launched
    };
    struct Measured {
        std::uint64_t begin_ns = 0, end_ns = 0;
        std::uint64_t base_steps = 0;
        std::uint32_t nsteps = 0;
    };

    void pair_events(const std::vector<ProgressEvent> &events);
    void look_until(std::uint64_t launch_ns);
    void take_birth(const Birth &birth);
    void take_sample(const StepSample &sample);
    void close(bool fits);
    void close_open();
    void measure(OpTime &time, std::uint64_t launch_ns, std::uint64_t base, std::uint64_t end,
                 std::uint32_t nsteps);
    void sample(OpTime &time, std::uint64_t launch_ns, std::uint64_t end);

    std::vector<Birth> births_;
    std::vector<StepSample> samples_;
    std::vector<Measured> measured_; // by end
    std::vector<Stretch> stretches_;

    std::size_t next_birth_ = 0, next_sample_ = 0;
    std::uint64_t last_launch_ns_ = 0;
    std::uint64_t steps_ = 0;            // after the last operation
    std::vector<std::uint64_t> reached_; // after each operation that no sample has passed

    std::size_t stretch_ = 0, at_sample_ = 0, at_measured_ = 0;
};

} // namespace collwire::nccl
