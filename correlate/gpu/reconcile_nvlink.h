// SPDX-License-Identifier: Apache-2.0
// The modelled NVLink bytes of one GPU against what NVML counted, window by window.
//
// A window lies between two readings of the counters. An operation that runs while a counter is
// read has bytes on both sides of it, and nothing counts how many. So a window grows until both of
// its edges are idle: no operation runs there. In traffic that never pauses it is cut after
// `most_window_ns`; operations across that edge are divided by time. The bytes of those operations
// are the bound of the error: all of them could be on one side.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "correlate/gpu/nvlink_history.h"

namespace collwire::gpu {

// Modelled bytes, of one operation or several, that move within a time.
struct ModelledTransfer {
    std::uint64_t begin_ns = 0, end_ns = 0; // the end is the latest possible one
    std::uint64_t tx_bytes = 0, rx_bytes = 0;
};

struct NvlinkWindow {
    std::uint64_t begin_ns = 0, end_ns = 0;
    std::uint64_t modelled_tx_bytes = 0, modelled_rx_bytes = 0;
    std::uint64_t measured_tx_bytes = 0, measured_rx_bytes = 0;
    // At most so many of the modelled bytes belong to a window next to it, or theirs to this one;
    // and the counters' own steps.
    std::uint64_t bound_tx_bytes = 0, bound_rx_bytes = 0;
    bool has_idle_edges = false;
    bool is_lower_bound = false; // of the measured bytes: a counter restarted
    bool is_modelled_lower_bound = false;

    // Measured and not modelled; negative: modelled and not measured.
    [[nodiscard]] std::int64_t unexplained_tx_bytes() const {
        return static_cast<std::int64_t>(measured_tx_bytes - modelled_tx_bytes);
    }
    [[nodiscard]] std::int64_t unexplained_rx_bytes() const {
        return static_cast<std::int64_t>(measured_rx_bytes - modelled_rx_bytes);
    }
};

struct NvlinkReconcileOptions {
    std::uint64_t most_window_ns = 10'000'000'000;
    std::uint64_t step_bytes = 0; // of the counters together: how much each reading may lag
};

// `readings` in time order; the first is where counting starts. `transfers` in any order.
[[nodiscard]] std::vector<NvlinkWindow>
reconcile_nvlink(std::span<const NvlinkReading> readings,
                 std::span<const ModelledTransfer> transfers,
                 const NvlinkReconcileOptions &options = {});

// All windows together.
struct NvlinkTotals {
    std::uint64_t windows = 0;
    std::uint64_t idle_edges = 0;   // windows with
    std::uint64_t within_bound = 0; // windows whose unexplained bytes are
    std::uint64_t lower_bounds = 0; // windows in which a counter restarted
    std::uint64_t modelled_tx_bytes = 0, modelled_rx_bytes = 0;
    std::uint64_t measured_tx_bytes = 0, measured_rx_bytes = 0;
    std::uint64_t bound_tx_bytes = 0, bound_rx_bytes = 0; // of the first and the last edge
};
[[nodiscard]] NvlinkTotals total_of(std::span<const NvlinkWindow> windows);

} // namespace collwire::gpu
