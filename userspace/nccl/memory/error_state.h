// SPDX-License-Identifier: Apache-2.0
// Reads NCCL's errors in the memory of a process: the text of its last warning, and the results of
// communicators and their proxies.
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

// Addresses and offsets of these in a process; CW_NCCL_NO_FIELD, or 0 of `text`: unknown.
struct ErrorPlaces {
    std::uint64_t text = 0; // ncclLastError
    std::uint32_t comm_result = 0;
    std::uint32_t comm_proxy_state = 0;
    std::uint32_t proxy_result = 0;
};

// `bias`: see load_bias. Empty: this NCCL has none of them.
std::optional<ErrorPlaces> find_error_places(const LibraryLayout &layout, std::uint64_t bias);

// At most CW_NCCL_TEXT_BYTES - 1 bytes; an empty text: NCCL never warned. No value: it cannot be
// read, or is being written.
std::optional<std::string> read_last_error(const process::ProcessView &process,
                                           const ErrorPlaces &places);

// ncclResult_t of a communicator and of its proxy; no value where memory cannot be read.
struct Results {
    std::optional<std::uint32_t> comm, proxy;
};
// In the order of `comms`, addresses of communicators.
std::vector<Results> read_results(const process::ProcessView &process, const ErrorPlaces &places,
                                  std::span<const std::uint64_t> comms);

} // namespace collwire::nccl
