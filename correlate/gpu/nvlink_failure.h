// SPDX-License-Identifier: Apache-2.0
// Which GPU and link an NVLink failure began at, from the driver's errors of all GPUs. In published
// failures of NVLink 5 the GPU at the link reports Xid 149, and its peers report Xid 145; 63 of
// them in one case. Xid 45 with the driver's "caused by previous Xid" follows on each GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace collwire::gpu {

// An error on a clock that all share, as far as `earliest_ns` and `latest_ns` say.
struct NvlinkError {
    std::uint64_t earliest_ns = 0, latest_ns = 0;
    std::uint64_t sequence = 0; // of the host's kernel log
    std::uint32_t host = 0;
    std::uint64_t bus_id = 0;
    std::uint32_t xid = 0;
    std::uint32_t caused_by = 0;
    std::int32_t link = -1;
    bool is_fatal = false, is_nonfatal = false;
};

enum class NvlinkCause : std::uint8_t {
    Known,       // one GPU, by the number of its error or by its time
    Several,     // several GPUs report it, and their times do not separate them
    NotCaptured, // consequences only: the GPU at the link is in no capture
};

struct NvlinkFailure {
    NvlinkCause cause = NvlinkCause::Known;
    std::vector<std::size_t> errors; // all of it, by time; indices into what was given
    std::size_t first = 0;           // the error that it began with, or of several the earliest
    std::vector<std::size_t> others; // of Several: the earliest error of each other GPU
    std::size_t gpus = 0;            // all GPUs with an error
};

// Whether an error is of NVLink: Xid 74, 144 to 150, or one that the driver blames on those.
[[nodiscard]] bool is_nvlink_xid(std::uint32_t xid, std::uint32_t caused_by);

// Errors less than `apart_ns` apart are one failure. Nonfatal errors alone are no failure.
[[nodiscard]] std::vector<NvlinkFailure> find_nvlink_failures(std::span<const NvlinkError> errors,
                                                              std::uint64_t apart_ns);

} // namespace collwire::gpu
