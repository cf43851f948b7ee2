// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/op_messages.h"

#include <algorithm>

#include "collwire/nccl_layout.h"
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

constexpr std::uint64_t PAD_TO_BYTES = 4;
constexpr std::uint64_t SMALLEST_MTU_BYTES = 256;
// net_ib.cc: parts of a message are multiples of it.
constexpr std::uint64_t PART_ALIGN_BYTES = 128;
// prims_simple.h genericOp: elements of a slice are a multiple of this, and a slice is at least
// this part of its slots.
constexpr std::uint64_t SLICE_ALIGN_ELEMENTS = 16;
constexpr std::uint64_t SLICE_PART_OF_SLOTS = 32;
// As in op_bytes.cpp.
constexpr std::uint32_t PAT_WITH_GAPS_VERSION = 22600;

class MessageSum {
public:
    MessageSum(const OpFacts &facts, const MessageRules &rules)
        : op_(facts.op), rules_(rules), slices_(op_.chunk_steps / op_.slice_steps),
          type_bytes_(slices_ > 1 ? cw_nccl_type_bytes(op_.datatype) : 1) {}

    // Chunks of that many data bytes each.
    void add_chunks(std::uint64_t data_bytes, std::uint64_t count) {
        if (count == 0)
            return;
        if (protocol_of(op_) != CW_NCCL_SIMPLE || slices_ == 1)
            return add(wire_bytes(protocol_of(op_), data_bytes), count);
        if (type_bytes_ == 0) {
            is_known_ = false;
            return;
        }
        std::uint64_t left = data_bytes / type_bytes_;
        const std::uint64_t slice =
            std::max(divide_up(left, SLICE_ALIGN_ELEMENTS * slices_) * SLICE_ALIGN_ELEMENTS,
                     slot_elements() / SLICE_PART_OF_SLOTS);
        for (std::uint64_t i = 0; i < slices_; ++i) {
            const std::uint64_t elements = std::min(slice, left);
            add(elements * type_bytes_, count);
            left -= elements;
        }
    }

    // Data that is cut into chunks, `count` times.
    void add_cut(std::uint64_t data_bytes, std::uint64_t chunk_bytes, std::uint64_t count) {
        add_chunks(chunk_bytes, data_bytes / chunk_bytes * count);
        if (data_bytes % chunk_bytes != 0)
            add_chunks(data_bytes % chunk_bytes, count);
    }

    // Absent if it contradicts what the operation has in all.
    [[nodiscard]] std::optional<MessagePackets> checked(const OpBytes &all) const {
        if (!is_known_ || sum_.messages != all.messages || payload_bytes_ != all.payload_bytes)
            return std::nullopt;
        return sum_;
    }

private:
    // The slots that a slice may fill: nbytes is stepSize * sliceSteps, in bytes.
    [[nodiscard]] std::uint64_t slot_elements() const {
        return op_.nbytes / op_.slice_steps / type_bytes_ * op_.slice_steps;
    }

    void add(std::uint64_t bytes, std::uint64_t count) {
        sum_.add(bytes, count, rules_);
        payload_bytes_ += bytes * count;
    }

    const cw_nccl_op &op_;
    MessageRules rules_;
    std::uint64_t slices_; // messages of a chunk
    std::uint64_t type_bytes_;
    std::uint64_t payload_bytes_ = 0;
    MessagePackets sum_;
    bool is_known_ = true;
};

// As twice_around() of op_bytes.cpp: every chunk of a loop twice, those of the sender and of the
// next rank once.
void add_twice_around(MessageSum &sum, const OpFacts &facts) {
    const cw_nccl_op &op = facts.op;
    const auto n_ranks = static_cast<std::uint64_t>(facts.n_ranks);
    const auto index = static_cast<std::uint64_t>(op.ring_index);
    const std::uint64_t sender = facts.is_send ? index : (index + n_ranks - 1) % n_ranks;
    const std::uint64_t loop_bytes = n_ranks * op.chunk_bytes;
    const std::uint64_t rest_bytes = op.channel_bytes % loop_bytes;
    sum.add_chunks(op.chunk_bytes, op.channel_bytes / loop_bytes * 2 * (n_ranks - 1));
    if (rest_bytes == 0)
        return;
    const std::uint64_t chunk_bytes =
        align_up(divide_up(rest_bytes, n_ranks), facts.ring_align_bytes);
    const std::uint64_t full = rest_bytes / chunk_bytes; // places with a whole chunk
    const auto times = [&](std::uint64_t first, std::uint64_t n) {
        std::uint64_t once = 0;
        for (const std::uint64_t place : {sender, (sender + 1) % n_ranks})
            once += place >= first && place < first + n ? 1 : 0;
        return 2 * n - once;
    };
    const std::uint64_t part = full < n_ranks ? 1 : 0; // the place with the remainder, or nothing
    sum.add_chunks(chunk_bytes, times(0, full));
    sum.add_chunks(rest_bytes % chunk_bytes, times(full, part));
    sum.add_chunks(0, times(full + part, n_ranks - full - part));
}

void add_p2p(MessageSum &sum, const OpFacts &facts, const OpBytes &all) {
    const std::uint64_t chunk_bytes =
        protocol_of(facts.op) == CW_NCCL_LL ? facts.op.chunk_bytes / 2 : facts.op.chunk_bytes;
    if (all.data_bytes == 0)
        sum.add_chunks(0, all.messages);
    else
        sum.add_cut(all.data_bytes, facts.op.registered != 0 ? all.data_bytes : chunk_bytes, 1);
}

// As parallel_trees() of op_bytes.cpp. Either each message has data of one rank, or there is one,
// or all have room for equally many ranks; else the check fails.
void add_parallel_trees(MessageSum &sum, const OpFacts &facts, const OpBytes &all) {
    const cw_nccl_op &op = facts.op;
    const bool has_gaps =
        op.pattern == CW_NCCL_PATTERN_PAT_UP && facts.version >= PAT_WITH_GAPS_VERSION;
    if (op.channel_bytes <= op.chunk_bytes && (all.messages == 1 || has_gaps))
        sum.add_chunks(all.payload_bytes / all.messages, all.messages);
    else
        sum.add_cut(op.channel_bytes, op.chunk_bytes, all.payload_bytes / op.channel_bytes);
}

} // namespace

void MessagePackets::add(std::uint64_t bytes, std::uint64_t count, const MessageRules &rules) {
    const bool is_apart = bytes > rules.apart_above_bytes;
    const std::uint64_t part_bytes = align_up(divide_up(bytes, rules.parts), PART_ALIGN_BYTES);
    messages += count;
    for (std::uint64_t part = 0; part < rules.parts; ++part) {
        const std::uint64_t begin = std::min(bytes, part * part_bytes);
        const std::uint64_t here = std::min(part_bytes, bytes - begin);
        with_immediate += count;
        plain += is_apart ? count : 0;
        pad_bytes += (align_up(here, PAD_TO_BYTES) - here) * count;
        for (std::size_t i = 0; i < packets.size(); ++i) {
            const std::uint64_t with_data = divide_up(here, SMALLEST_MTU_BYTES << i);
            packets[i] += (std::max<std::uint64_t>(with_data, 1) + (is_apart ? 1 : 0)) * count;
        }
    }
}

std::optional<MessagePackets> derive_message_packets(const OpFacts &facts,
                                                     const MessageRules &rules) {
    const std::optional<OpBytes> all = derive_op_bytes(facts);
    const cw_nccl_op &op = facts.op;
    const bool is_p2p = op.pattern == CW_NCCL_PATTERN_SEND || op.pattern == CW_NCCL_PATTERN_RECV;
    if (!all || all->is_bound || (op.registered != 0 && !is_p2p))
        return std::nullopt;
    MessageSum sum(facts, rules);
    switch (op.pattern) {
    case CW_NCCL_PATTERN_SEND:
    case CW_NCCL_PATTERN_RECV:
        add_p2p(sum, facts, *all);
        break;
    case CW_NCCL_PATTERN_RING:
        sum.add_cut(op.channel_bytes, op.chunk_bytes,
                    static_cast<std::uint64_t>(facts.n_ranks - 1));
        break;
    case CW_NCCL_PATTERN_RING_TWICE:
        add_twice_around(sum, facts);
        break;
    case CW_NCCL_PATTERN_PIPELINE_FROM:
    case CW_NCCL_PATTERN_PIPELINE_TO:
    case CW_NCCL_PATTERN_TREE_UP_DOWN:
        sum.add_cut(op.channel_bytes, op.chunk_bytes, 1);
        break;
    case CW_NCCL_PATTERN_NVLS_TREE: {
        // In the last loop a head may have no data, and sends an empty message.
        const std::uint64_t loops = op.channel_bytes / op.loop_bytes;
        sum.add_chunks(op.chunk_bytes, loops);
        if (op.channel_bytes % op.loop_bytes != 0)
            sum.add_chunks(all->payload_bytes - loops * op.chunk_bytes, 1);
        break;
    }
    case CW_NCCL_PATTERN_PAT_UP:
    case CW_NCCL_PATTERN_PAT_DOWN:
        add_parallel_trees(sum, facts, *all);
        break;
    default:
        return std::nullopt;
    }
    return sum.checked(*all);
}

} // namespace collwire::nccl
