// SPDX-License-Identifier: Apache-2.0
// The work of a kernel, in a form that is the same for all versions of NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/cuda_double/device_state.h"
#include "tests/cuda_double/function.h"
#include "tests/cuda_double/truth_log.h"

namespace collwire::cuda_double {

// One channel's part of a collective. Elements, but for addresses.
struct Collective {
    Function function;
    const char *input = nullptr;
    char *output = nullptr;
    std::int64_t count = 0; // of all channels
    std::int64_t part_offset = 0;
    std::int64_t part_count = 0;
    std::int64_t chunk_count = 0;
    // Of AllReduce on a ring, where the host says it (up to 2.21).
    std::optional<std::int64_t> last_chunk_count;
    int root = 0;
    bool is_one_node = false;
    std::uint64_t reduction_argument = 0;
    int work = 0;
};

// One channel's part of a send or of a receive.
struct Transfer {
    Direction direction = Direction::Send;
    Protocol protocol = Protocol::Simple;
    int peer = 0;
    char *address = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t chunk_bytes = 0;
    int work = 0;
};

struct LocalCopy {
    const char *from = nullptr;
    char *to = nullptr;
    std::uint64_t bytes = 0;
};

// One channel's part of a broadcast that shares a ring with the other broadcasts of its group.
struct GroupedBroadcast {
    const char *input = nullptr; // of the root
    char *output = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t done_bytes = 0; // where this channel's part begins
    std::uint64_t chunk_bytes = 0;
    int distance = 0; // from the root, along the ring
    int work = 0;
};

// Works of one kind. Collectives follow one another; transfers run at the same time; broadcasts
// take turns, a chunk each.
struct Batch {
    Function function;
    std::vector<Collective> collectives;
    std::vector<Transfer> transfers;
    std::vector<LocalCopy> copies;
    std::vector<GroupedBroadcast> broadcasts;
    std::vector<bool> profiled; // of each work: NCCL asked for its start and end
    std::optional<int> next;    // place of this channel's next batch
};

// Reads what the host passed to the kernel. The host may reuse its memory after next_batch().
class WorkReader {
public:
    virtual ~WorkReader() = default;
    [[nodiscard]] virtual Communicator communicator() const = 0;
    [[nodiscard]] virtual std::uint64_t channel_mask() const = 0;
    // The first batch of the n-th channel of the mask is at place n.
    virtual Batch read_batch(const Channel &channel, int place, KernelTruth &truth) = 0;
};

std::unique_ptr<WorkReader> make_batch_reader(std::vector<char> arguments); // 2.22 and later
std::unique_ptr<WorkReader>
make_element_reader(const std::vector<char> &arguments); // 2.20 and 2.21
bool has_batches();

// NCCL passes the argument of a reduction by value or by address.
std::uint64_t reduction_argument(const Function &function, std::uint64_t value, bool is_address);

} // namespace collwire::cuda_double
