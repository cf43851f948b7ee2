// SPDX-License-Identifier: Apache-2.0
// Sends and receives of NCCL 2.20 to 2.23. Up to 2.21 one is cut into pieces that channels take in
// turn, each an operation (enqueue.cc scheduleP2pTasksToPlan); from 2.22 on it is spread over
// channels as in later versions.
#include <algorithm>
#include <map>

#include "collwire/nccl_launch_records.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/older_plan.h"
#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {
namespace {

constexpr std::uint32_t FIRST_WITH_PARTS = 22200;
constexpr std::uint32_t MOST_CHANNELS = 64;
constexpr std::size_t MOST_PIECES = 65'536;

std::uint64_t bytes_of(const OlderCall &call) {
    return call.count * capture::nccl_datatype_bytes(call.datatype);
}

struct Piece {
    std::uint32_t call = 0;
    std::uint32_t number = 0; // of its call
    std::uint64_t bytes = 0;
};

// proxy.cc ncclProxyComputeP2p: the message length depends on the piece. `step_bytes`: 0, not
// known.
bool fits(const OpFacts &facts, std::uint64_t bytes, std::uint64_t step_bytes) {
    OpFacts of_piece = facts;
    of_piece.part_bytes = bytes;
    if (!derive_op_bytes(of_piece))
        return false;
    if (facts.op.protocol != CW_NCCL_SIMPLE || step_bytes == 0)
        return true;
    const std::uint64_t chunk_bytes = bytes < step_bytes       ? step_bytes / 4
                                      : bytes < 8 * step_bytes ? step_bytes / 2
                                                               : step_bytes;
    return facts.op.chunk_bytes == chunk_bytes;
}

std::optional<OpBytes> bytes_of_piece(const OpFacts &facts, std::uint64_t bytes) {
    OpFacts of_piece = facts;
    if (facts.op.registered == 0)
        of_piece.part_bytes = bytes;
    return derive_op_bytes(of_piece);
}

std::vector<Piece> cut_calls(std::span<const OlderCall> calls, std::size_t most,
                             std::uint64_t step_bytes, std::uint32_t least_channels,
                             std::uint32_t most_channels, bool is_one_node) {
    std::vector<Piece> pieces;
    for (std::uint32_t call = 0; call < calls.size(); ++call) {
        const std::uint64_t bytes = bytes_of(calls[call]);
        const std::uint64_t each =
            piece_bytes(bytes, step_bytes, least_channels, most_channels, is_one_node);
        std::uint32_t number = 0;
        std::uint64_t left = bytes;
        do {
            if (pieces.size() == most)
                return {};
            const std::uint64_t piece = std::min(left, each);
            pieces.push_back({call, number++, piece});
            left -= piece;
        } while (left != 0);
    }
    return pieces;
}

// Operations on one channel are in the order of its pieces.
class Layouts {
public:
    Layouts(std::span<const OpFacts> ops) : ops_(ops) {
        for (std::size_t i = 0; i < ops.size(); ++i) {
            on_channel_[ops[i].op.channel % MOST_CHANNELS].push_back(i);
            is_usable_ = is_usable_ && ops[i].op.channel < MOST_CHANNELS;
        }
    }

    // channel.h ncclChannelComputeFromBase: pieces use `in_turn` consecutive channels of `all`.
    void consider(std::span<const Piece> pieces, std::uint64_t step_bytes, std::uint32_t in_turn,
                  std::uint32_t all, std::uint32_t base) {
        std::map<std::uint32_t, std::size_t> taken;
        std::vector<OlderOp> result(ops_.size());
        for (const Piece &piece : pieces) {
            const std::uint32_t channel = (base + piece.number % in_turn) % all;
            const auto found = on_channel_.find(channel);
            std::size_t &at = taken[channel];
            if (found == on_channel_.end() || at == found->second.size())
                return;
            const std::size_t i = found->second[at++];
            if (!fits(ops_[i], piece.bytes, step_bytes))
                return;
            result[i] = {piece.call, bytes_of_piece(ops_[i], piece.bytes)};
        }
        is_unique_ = is_unique_ && (!result_ || *result_ == result);
        result_ = std::move(result);
    }

    std::optional<std::vector<OlderOp>> take() {
        return is_usable_ && is_unique_ ? std::move(result_) : std::nullopt;
    }
    [[nodiscard]] bool is_over() const { return !is_usable_ || !is_unique_; }

private:
    std::span<const OpFacts> ops_;
    std::map<std::uint32_t, std::vector<std::size_t>> on_channel_;
    std::optional<std::vector<OlderOp>> result_;
    bool is_usable_ = true;
    bool is_unique_ = true;
};

std::vector<std::uint64_t> step_candidates(std::span<const OpFacts> ops) {
    std::vector<std::uint64_t> steps;
    for (const OpFacts &facts : ops)
        if (facts.op.protocol == CW_NCCL_SIMPLE)
            for (const std::uint64_t times : {1U, 2U, 4U})
                steps.push_back(facts.op.chunk_bytes * times);
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    constexpr std::size_t MOST = 8;
    steps.resize(std::min(steps.size(), MOST));
    return steps;
}

std::optional<std::vector<OlderOp>> place_pieces(bool is_one_node, std::span<const OlderCall> calls,
                                                 std::span<const OpFacts> ops) {
    if (calls.size() == 1 && ops.size() == 1) {
        if (!fits(ops[0], bytes_of(calls[0]), 0))
            return std::nullopt;
        return std::vector<OlderOp>{{0, bytes_of_piece(ops[0], bytes_of(calls[0]))}};
    }
    Layouts layouts(ops);
    std::vector<std::uint64_t> steps = step_candidates(ops);
    if (calls.size() == ops.size())
        steps.push_back(MOST_BYTES); // whole calls
    for (const std::uint64_t step_bytes : steps)
        for (std::uint32_t most = 1; most <= MOST_CHANNELS; most *= 2)
            for (std::uint32_t least = 1; least <= most; least *= 2) {
                const std::vector<Piece> pieces =
                    cut_calls(calls, ops.size(), step_bytes, least, most, is_one_node);
                if (pieces.size() != ops.size())
                    continue;
                const std::uint64_t known = step_bytes == MOST_BYTES ? 0 : step_bytes;
                for (std::uint32_t all = most; all <= MOST_CHANNELS; all *= 2)
                    for (std::uint32_t base = 0; base < all && !layouts.is_over(); ++base)
                        layouts.consider(pieces, known, most, all, base);
            }
    return layouts.take();
}

// Each call has the same channels, and on each the calls are in order.
std::optional<std::vector<OlderOp>> place_parts(std::span<const OlderCall> calls,
                                                std::span<const OpFacts> ops) {
    std::map<std::uint8_t, std::vector<std::size_t>> on_channel;
    for (std::size_t i = 0; i < ops.size(); ++i)
        on_channel[ops[i].op.channel].push_back(i);
    for (const auto &[channel, all] : on_channel)
        if (all.size() != calls.size())
            return std::nullopt;
    std::vector<OlderOp> result(ops.size());
    for (std::uint32_t call = 0; call < calls.size(); ++call) {
        std::vector<OpFacts> of_call;
        for (const auto &[channel, all] : on_channel) {
            of_call.push_back(ops[all[call]]);
            of_call.back().task.bytes = bytes_of(calls[call]);
        }
        find_part_bytes(of_call, 0);
        std::uint64_t sum_bytes = 0;
        std::size_t at = 0;
        for (const auto &[channel, all] : on_channel) {
            auto bytes = derive_op_bytes(of_call[at++]);
            if (!bytes)
                return std::nullopt;
            sum_bytes += bytes->data_bytes;
            if (bytes->is_bound)
                bytes.reset();
            result[all[call]] = {call, bytes};
        }
        if (sum_bytes < bytes_of(calls[call]))
            return std::nullopt;
    }
    return result;
}

} // namespace

// calcP2pChunkSize. Between nodes no piece is shorter than half a step.
std::uint64_t piece_bytes(std::uint64_t bytes, std::uint64_t step_bytes,
                          std::uint32_t least_channels, std::uint32_t most_channels,
                          bool is_one_node) {
    const std::uint64_t least_bytes =
        std::max<std::uint64_t>(is_one_node ? step_bytes / 8 : step_bytes / 2, 1);
    const std::uint64_t most_bytes = is_one_node ? step_bytes * 32 : step_bytes;
    std::uint64_t size = std::max(least_bytes, divide_up(bytes, least_channels));
    for (std::uint32_t channels = least_channels;
         size > most_bytes && channels <= most_channels / 2;) {
        channels *= 2;
        size = divide_up(bytes, channels);
    }
    return align_up(size, least_bytes);
}

std::optional<std::vector<OlderOp>> place_transfers(const OlderRules &rules, bool is_one_node,
                                                    std::span<const OlderCall> calls,
                                                    std::span<const OpFacts> ops) {
    if (rules.version < OLDEST_PLANNED_VERSION || rules.version >= FIRST_VERSION_WITH_TASKS ||
        calls.empty() || ops.size() < calls.size() || ops.size() > MOST_PIECES)
        return std::nullopt;
    for (const OlderCall &call : calls)
        if (call.count > MOST_BYTES || bytes_of(call) > MOST_BYTES)
            return std::nullopt;
    return rules.version < FIRST_WITH_PARTS ? place_pieces(is_one_node, calls, ops)
                                            : place_parts(calls, ops);
}

} // namespace collwire::nccl
