// SPDX-License-Identifier: Apache-2.0
// Bytes of sends and receives. One is spread over channels in equal parts, the last one shorter. An
// operation contains only its number of messages and the length of the first, not which part it is.
#include "correlate/nccl/op_bytes_p2p.h"

#include <algorithm>
#include <array>
#include <vector>

#include "collwire/nccl_launch_records.h"
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

constexpr std::uint64_t PART_ALIGN_BYTES = 4096;          // device.h ncclP2pPartBounds
constexpr std::uint64_t LARGEST_MESSAGE_BYTES = 1u << 30; // collectives.h NCCL_MAX_NET_SIZE
constexpr std::uint32_t MOST_CHANNELS = 64;               // MAXCHANNELS
// The first version with parts on consecutive channels; bit-reversed before (device.h).
constexpr std::uint32_t IN_A_ROW_VERSION = 22800;

bool is_p2p(const cw_nccl_op &op) {
    return op.pattern == CW_NCCL_PATTERN_SEND || op.pattern == CW_NCCL_PATTERN_RECV;
}

// Most data bytes of a message.
std::uint64_t chunk_data_bytes(const cw_nccl_op &op) {
    return op.protocol == CW_NCCL_LL ? op.chunk_bytes / 2 : op.chunk_bytes;
}

// enqueue.cc addP2pToPlan: an empty part has no operation, an empty transfer has one empty message.
bool fits(const cw_nccl_op &op, std::uint64_t part_bytes) {
    const std::uint64_t chunk_bytes = chunk_data_bytes(op);
    return op.nsteps == std::max<std::uint64_t>(divide_up(part_bytes, chunk_bytes), 1) &&
           op.nbytes == wire_bytes(protocol_of(op), std::min(part_bytes, chunk_bytes));
}

OpBytes bytes_of_part(const cw_nccl_op &op, std::uint64_t part_bytes) {
    const CutBytes bytes = cut(protocol_of(op), part_bytes, chunk_data_bytes(op));
    return {.payload_bytes = bytes.payload_bytes,
            .messages = op.nsteps,
            .data_bytes = bytes.data_bytes};
}

struct P2pParts {
    std::uint64_t full_bytes = 0;
    std::uint64_t last_bytes = 0;
    std::uint64_t count = 0; // that are not empty
};

P2pParts parts_of(std::uint64_t bytes, std::uint64_t channels) {
    const std::uint64_t full_bytes = align_up(divide_up(bytes, channels), PART_ALIGN_BYTES);
    const std::uint64_t count = divide_up(bytes, full_bytes);
    return {
        .full_bytes = full_bytes, .last_bytes = bytes - (count - 1) * full_bytes, .count = count};
}

// The only part that matches an operation; absent if both do.
std::optional<std::uint64_t> only_part(const cw_nccl_op &op, const P2pParts &parts) {
    const bool is_full = parts.count > 1 && fits(op, parts.full_bytes);
    const bool is_last = fits(op, parts.last_bytes);
    if (is_full && is_last && parts.full_bytes != parts.last_bytes)
        return std::nullopt;
    if (is_full || is_last)
        return is_full ? parts.full_bytes : parts.last_bytes;
    return std::nullopt;
}

std::uint32_t reversed(std::uint32_t value, std::uint32_t channels) {
    std::uint32_t result = 0;
    for (std::uint32_t bit = 1; bit < channels; bit *= 2)
        result = result * 2 + ((value & bit) != 0 ? 1 : 0);
    return result;
}

// device.h ncclP2pChannelForPart
std::uint32_t channel_of_part(std::uint32_t version, std::uint32_t channels, std::uint32_t base,
                              std::uint32_t part) {
    return (base + (version < IN_A_ROW_VERSION ? reversed(part, channels) : part)) % channels;
}

// The channel of the last part: the common result of all layouts that match the operations'
// channels and sizes. Absent if they differ. A layout is a number of channels and the channel of
// the first part.
class LastPart {
public:
    LastPart(std::span<const OpFacts> ops, const P2pParts &parts)
        : parts_(parts), version_(ops.front().version) {
        for (const OpFacts &facts : ops) {
            const cw_nccl_op *&at = by_channel_[facts.op.channel % MOST_CHANNELS];
            is_usable_ = is_usable_ && facts.op.channel < MOST_CHANNELS && at == nullptr;
            at = &facts.op;
        }
    }

    void consider(std::uint32_t channels, std::uint32_t first) {
        std::uint32_t channel = 0;
        for (std::uint32_t part = 0; part < parts_.count; part++) {
            channel = channel_of_part(version_, channels, first, part);
            const bool is_last = part + 1 == parts_.count;
            const cw_nccl_op *op = by_channel_[channel];
            if (op == nullptr || !fits(*op, is_last ? parts_.last_bytes : parts_.full_bytes))
                return;
        }
        is_unique_ = is_unique_ && (!channel_ || *channel_ == channel);
        channel_ = channel;
    }

    [[nodiscard]] std::optional<std::uint32_t> channel() const {
        return is_usable_ && is_unique_ ? channel_ : std::nullopt;
    }

private:
    P2pParts parts_;
    std::uint32_t version_;
    std::array<const cw_nccl_op *, MOST_CHANNELS> by_channel_{};
    std::optional<std::uint32_t> channel_;
    bool is_usable_ = true;
    bool is_unique_ = true;
};

std::optional<std::uint32_t> channel_of_last_part(std::span<const OpFacts> ops,
                                                  const P2pParts &parts, std::uint32_t p2p_channels,
                                                  std::optional<std::uint32_t> first_channel) {
    LastPart last(ops, parts);
    for (std::uint32_t channels = 1; channels <= MOST_CHANNELS; channels *= 2) {
        if (channels < parts.count || (p2p_channels != 0 && channels != p2p_channels))
            continue;
        for (std::uint32_t first = 0; first < channels; first++) {
            if (!first_channel || *first_channel == first)
                last.consider(channels, first);
        }
    }
    return last.channel();
}

bool are_alike(const OpFacts &a, const OpFacts &b) {
    return is_p2p(b.op) && a.op.pattern == b.op.pattern && a.op.peer == b.op.peer &&
           a.op.protocol == b.op.protocol && a.op.chunk_bytes == b.op.chunk_bytes &&
           b.op.registered == 0 && a.task.bytes == b.task.bytes && a.version == b.version;
}

} // namespace

std::optional<OpBytes> derive_p2p_bytes(const OpFacts &facts) {
    const cw_nccl_op &op = facts.op;
    const bool is_send = op.pattern == CW_NCCL_PATTERN_SEND;
    if (is_send != facts.is_send || op.protocol == CW_NCCL_LL128 || chunk_data_bytes(op) == 0 ||
        op.chunk_steps != 1 || op.slice_steps != 1 || facts.task.bytes > MOST_BYTES ||
        op.nbytes > MOST_BYTES || op.nsteps > MOST_BYTES / chunk_data_bytes(op))
        return std::nullopt;
    if (op.registered != 0) {
        // The user's buffer is sent directly, in as few messages as the transport allows.
        if (op.protocol != CW_NCCL_SIMPLE || op.nbytes == 0 ||
            op.nsteps != divide_up(op.nbytes, LARGEST_MESSAGE_BYTES))
            return std::nullopt;
        return OpBytes{.payload_bytes = op.nbytes, .messages = op.nsteps, .data_bytes = op.nbytes};
    }
    if (facts.part_bytes)
        return fits(op, *facts.part_bytes) ? std::optional(bytes_of_part(op, *facts.part_bytes))
                                           : std::nullopt;
    if (op.nsteps == 1 && op.protocol == CW_NCCL_SIMPLE)
        return fits(op, op.nbytes) ? std::optional(bytes_of_part(op, op.nbytes)) : std::nullopt;

    const std::uint64_t task_bytes = facts.task.bytes;
    std::uint64_t most_bytes = op.nsteps * chunk_data_bytes(op);
    if (op.nsteps > 1 && !fits(op, most_bytes)) // the first of several messages is full
        return std::nullopt;
    if (facts.task.n_channels > 0 && task_bytes > 0) {
        const P2pParts parts = parts_of(task_bytes, facts.task.n_channels);
        if (const auto part_bytes = only_part(op, parts))
            return bytes_of_part(op, *part_bytes);
        if (!fits(op, parts.full_bytes))
            return std::nullopt;
        most_bytes = parts.full_bytes;
    } else if (op.nsteps == 1) {
        most_bytes = op.nbytes / 2; // of LL: exact in lines
    } else if (task_bytes > 0) {
        most_bytes = std::min(most_bytes, task_bytes);
    }
    OpBytes most = bytes_of_part(op, most_bytes);
    most.is_bound = true;
    return most;
}

void find_part_bytes(std::span<OpFacts> ops, std::uint32_t p2p_channels,
                     std::optional<std::uint32_t> first_channel) {
    const auto belongs = [&](const OpFacts &facts) { return are_alike(ops.front(), facts); };
    if (ops.empty() || !std::all_of(ops.begin(), ops.end(), belongs))
        return;
    const OpFacts &first = ops.front();
    // A task contains its channels from 2.27 on; before, there are as many as operations.
    const std::uint64_t channels = first.task.n_channels > 0 ? first.task.n_channels : ops.size();
    if (first.task.bytes == 0 || first.task.bytes > MOST_BYTES || channels > MOST_CHANNELS ||
        chunk_data_bytes(first.op) == 0)
        return;
    const P2pParts parts = parts_of(first.task.bytes, channels);
    if (parts.count != ops.size())
        return;

    // Full parts and the last one look the same, or each is recognisable.
    std::vector<std::optional<std::uint64_t>> found;
    for (const OpFacts &facts : ops)
        found.push_back(only_part(facts.op, parts));
    if (std::find(found.begin(), found.end(), std::nullopt) != found.end()) {
        const auto last_channel = channel_of_last_part(ops, parts, p2p_channels, first_channel);
        if (!last_channel)
            return;
        for (std::size_t i = 0; i < ops.size(); i++)
            found[i] = ops[i].op.channel == *last_channel ? parts.last_bytes : parts.full_bytes;
    }
    std::uint64_t sum_bytes = 0;
    for (const auto &part_bytes : found)
        sum_bytes += *part_bytes;
    if (sum_bytes != first.task.bytes)
        return;
    for (std::size_t i = 0; i < ops.size(); i++)
        ops[i].part_bytes = found[i];
}

} // namespace collwire::nccl
