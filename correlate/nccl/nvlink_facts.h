// SPDX-License-Identifier: Apache-2.0
// NVLink in the recordings: each GPU's counters, the driver's errors, and where failures began.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "correlate/gpu/nvlink_failure.h"
#include "correlate/gpu/reconcile_nvlink.h"
#include "correlate/nccl/gathered.h"

namespace collwire::nccl {

struct NvlinkGpu {
    Index gathered = NONE; // in Gathered::nvlink_gpus
    Index host = NONE;
    std::uint64_t measured_tx_bytes = 0, measured_rx_bytes = 0; // if it has readings
    bool is_lower_bound = false;
    std::uint64_t unmeasured_ns = 0; // in gaps
    // Absent: NVLink bytes of operations were not modelled for it.
    std::optional<std::vector<gpu::NvlinkWindow>> windows;
};

struct XidError {
    Index session = NONE;
    Index host = NONE;
    std::uint64_t realtime_ns = 0;
    std::uint64_t uncertainty_ns = 0; // it happened so much earlier at most
    cw_xid record{};
};

// Operations of communicators with a rank on a GPU of the failure. An operation without network has
// no end time, so the last one that was launched counts.
struct OperationAtFailure {
    bool is_pair = false;
    Index operation = NONE;
    bool is_in_flight = false; // its end is known to be later; else: its end is not known
};

struct NvlinkFailureFacts {
    gpu::NvlinkFailure failure; // indices are of NvlinkFacts::errors
    std::vector<OperationAtFailure> operations;
};

struct NvlinkFacts {
    std::vector<NvlinkGpu> gpus;  // by host, bus id
    std::vector<XidError> errors; // by time; each once, however many recordings have it
    std::vector<NvlinkFailureFacts> failures;

    [[nodiscard]] bool is_recorded() const { return !gpus.empty() || !errors.empty(); }
};

} // namespace collwire::nccl
