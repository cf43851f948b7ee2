// SPDX-License-Identifier: Apache-2.0
// What NCCL itself says went wrong in a process: the text of its last warning, and the results that
// communicators and their proxies keep. Read from the outside, without a probe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

// Where that lies in a process; CW_NCCL_NO_FIELD, and 0 of `text`: not known.
struct ErrorPlaces {
    std::uint64_t text = 0; // ncclLastError
    std::uint32_t comm_result = 0;
    std::uint32_t comm_proxy_state = 0;
    std::uint32_t proxy_result = 0;
};

// `bias`: see load_bias. Nothing: this NCCL has none of it.
std::optional<ErrorPlaces> find_error_places(const LibraryLayout &layout, std::uint64_t bias);

// At most CW_NCCL_TEXT_BYTES - 1 of it; empty: NCCL never warned. Nothing: it cannot be read, or is
// being written.
std::optional<std::string> read_last_error(const ProcessView &process, const ErrorPlaces &places);

// ncclResult_t of a communicator and of its proxy; nothing of what cannot be read.
struct Results {
    std::optional<std::uint32_t> comm, proxy;
};
// In the order of `comms`, addresses of communicators.
std::vector<Results> read_results(const ProcessView &process, const ErrorPlaces &places,
                                  std::span<const std::uint64_t> comms);

} // namespace collwire::nccl
