// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/nvls.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/clock.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"

namespace collwire::nccl {
namespace {

constexpr std::int32_t MAX_CHANNELS = 64; // MAXCHANNELS of 2.26 and later
constexpr std::int32_t MAX_HEADS = 32;    // NCCL_MAX_NVLS_ARITY
constexpr std::int32_t MAX_CHUNK_BYTES = 1 << 30;

class NvlsReader {
public:
    NvlsReader(const process::ProcessView &process, const LibraryLayout &layout,
               const cw_nccl_comm &comm)
        : process_(process), layout_(layout), comm_(comm) {}

    std::optional<cw_nccl_nvls> run() const {
        const auto channels = offset("ncclComm.channels");
        const auto channel_bytes = offset("ncclChannel");
        const auto n_channels = read<std::int32_t>(comm_.comm, "ncclComm.nvlsChannels");
        if (!channels || !channel_bytes || !n_channels || *n_channels <= 0 ||
            *n_channels > MAX_CHANNELS)
            return std::nullopt;
        const std::uint64_t even = comm_.comm + *channels;
        const auto n_heads = read<std::int32_t>(even, "ncclChannel.nvls.nHeads");
        const auto head_rank = read<std::int32_t>(even, "ncclChannel.nvls.headRank");
        if (!n_heads || !head_rank || *n_heads <= 0 || *n_heads > MAX_HEADS || *head_rank < -1 ||
            *head_rank >= *n_heads)
            return std::nullopt;
        cw_nccl_nvls record{};
        record.header = {sizeof(record), CW_KIND_NCCL_NVLS, CW_CPU_USERSPACE, monotonic_ns()};
        record.comm = comm_.comm;
        record.tgid = comm_.tgid;
        record.n_heads = *n_heads;
        record.head_rank = *head_rank;
        record.n_channels = *n_channels;
        record.chunk_bytes = chunk_bytes("ncclComm.nvlsChunkSize");
        record.tree_chunk_bytes = chunk_bytes("ncclComm.nvlsTreeMaxChunkSize");
        for (std::size_t odd = 0; odd < 2; ++odd) {
            const auto place = read_tree(even + odd * *channel_bytes);
            // A single channel has no odd one.
            if (!place && static_cast<std::int32_t>(odd) < *n_channels)
                return std::nullopt;
            const bool is_there = place && static_cast<std::int32_t>(odd) < *n_channels;
            record.tree_up[odd] = is_there ? place->up : -1;
            for (std::size_t i = 0; i < 2; ++i)
                record.tree_down[2 * odd + i] = is_there ? place->down[i] : -1;
        }
        return record;
    }

private:
    struct Tree {
        std::int32_t up = -1;
        std::array<std::int32_t, 2> down{-1, -1};
    };

    // The first of the three below is the node itself, as a rank beyond all ranks.
    [[nodiscard]] std::optional<Tree> read_tree(std::uint64_t channel) const {
        const auto up = read<std::int32_t>(channel, "ncclChannel.nvls.treeUp");
        const auto down = read<std::array<std::int32_t, 3>>(channel, "ncclChannel.nvls.treeDown");
        if (!up || !down || !is_rank(*up) || !is_rank((*down)[1]) || !is_rank((*down)[2]))
            return std::nullopt;
        return Tree{*up, {(*down)[1], (*down)[2]}};
    }

    [[nodiscard]] std::int32_t chunk_bytes(std::string_view name) const {
        const auto bytes = read<std::int32_t>(comm_.comm, name);
        return bytes && *bytes > 0 && *bytes <= MAX_CHUNK_BYTES ? *bytes : 0;
    }

    [[nodiscard]] bool is_rank(std::int32_t rank) const {
        return rank >= -1 && rank < comm_.n_ranks;
    }

    [[nodiscard]] std::optional<std::uint64_t> offset(std::string_view name) const {
        const auto found = layout_.offsets.find(std::string(name));
        return found == layout_.offsets.end() ? std::nullopt : std::optional{found->second.value};
    }

    template <class Value>
    [[nodiscard]] std::optional<Value> read(std::uint64_t of, std::string_view name) const {
        const auto at = offset(name);
        return at ? process_.read<Value>(of + *at) : std::nullopt;
    }

    const process::ProcessView &process_;
    const LibraryLayout &layout_;
    const cw_nccl_comm &comm_;
};

} // namespace

std::optional<cw_nccl_nvls> read_nvls(const process::ProcessView &process,
                                      const LibraryLayout &layout, const cw_nccl_comm &comm) {
    return NvlsReader(process, layout, comm).run();
}

} // namespace collwire::nccl
