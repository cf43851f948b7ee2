// SPDX-License-Identifier: Apache-2.0
// A GPU's global timer as the node's CLOCK_MONOTONIC, from what NCCL's profiler says. Nobody gives
// pairs of both clocks, but two facts bound their distance: NCCL saw a time of the GPU after it was
// taken, and launched a kernel before it started.
#pragma once

#include <cstdint>

namespace collwire::cupti {

class GpuClock {
public:
    // How much the distance may change meanwhile. Assumed: two clocks of crystals.
    static constexpr uint64_t NS_PER_MS_OF_DRIFT = 100;

    // The GPU's time `gpu_ns` had passed when it was read at `seen_ns`.
    void add_seen(uint64_t gpu_ns, uint64_t seen_ns) {
        const auto distance = static_cast<int64_t>(seen_ns - gpu_ns);
        if (!most_.is_set || distance <= most_at(seen_ns))
            most_ = {distance, seen_ns, true};
        check(seen_ns);
    }

    // Whether `gpu_ns` surely was before `monotonic_ns`.
    bool is_before(uint64_t gpu_ns, uint64_t monotonic_ns) const {
        return most_.is_set &&
               static_cast<int64_t>(gpu_ns + static_cast<uint64_t>(most_at(monotonic_ns)) -
                                    monotonic_ns) < 0;
    }

    // A kernel started at `gpu_ns` that had not been launched at `launch_ns`.
    void add_launch(uint64_t launch_ns, uint64_t gpu_ns) {
        const auto distance = static_cast<int64_t>(launch_ns - gpu_ns);
        if (!least_.is_set || distance >= least_at(launch_ns))
            least_ = {distance, launch_ns, true};
        check(launch_ns);
    }

    // With both bounds their middle, else the one: then `error_ns` is 0, not known.
    uint64_t to_monotonic(uint64_t gpu_ns, uint64_t around_ns, uint64_t &error_ns) const {
        error_ns = 0;
        if (!most_.is_set)
            return 0;
        if (!least_.is_set)
            return gpu_ns + static_cast<uint64_t>(most_.distance);
        const int64_t most = most_at(around_ns), least = least_at(around_ns);
        error_ns = static_cast<uint64_t>(most - least) / 2 + 1;
        return gpu_ns + static_cast<uint64_t>(least + (most - least) / 2);
    }

    // Times that the bounds contradicted each other: one of the clocks was set.
    uint64_t breaks() const { return breaks_; }

private:
    struct Bound {
        int64_t distance = 0; // CLOCK_MONOTONIC less the GPU's time
        uint64_t at_ns = 0;
        bool is_set = false;
    };

    static int64_t drift(uint64_t from_ns, uint64_t to_ns) {
        const uint64_t between_ns = from_ns < to_ns ? to_ns - from_ns : from_ns - to_ns;
        return static_cast<int64_t>(between_ns / 1'000'000 * NS_PER_MS_OF_DRIFT);
    }
    int64_t most_at(uint64_t at_ns) const { return most_.distance + drift(most_.at_ns, at_ns); }
    int64_t least_at(uint64_t at_ns) const { return least_.distance - drift(least_.at_ns, at_ns); }

    void check(uint64_t at_ns) {
        if (!most_.is_set || !least_.is_set || least_at(at_ns) <= most_at(at_ns))
            return;
        ++breaks_;
        // The one that was seen last is true of now.
        (most_.at_ns < least_.at_ns ? most_ : least_).is_set = false;
    }

    Bound most_, least_;
    uint64_t breaks_ = 0;
};

} // namespace collwire::cupti
