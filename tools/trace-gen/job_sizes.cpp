// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_sizes.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace collwire::trace_gen {
namespace {

constexpr std::uint64_t KIB = 1024;
constexpr std::uint64_t LEAST_TRAFFIC_BYTES = 16 * KIB; // MinTrafficPerChannel
constexpr std::uint64_t CELL_ALIGN_BYTES = 16;
// init.cc DEFAULT_BUFFSIZE, DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE, each over NCCL_STEPS.
constexpr std::uint64_t SIMPLE_STEP_BYTES = 512 * KIB;
constexpr std::uint64_t LL_STEP_BYTES = 64 * KIB;
constexpr std::uint64_t LL128_STEP_BYTES = 614'400;
// A line of LL: 8 bytes of data in 16. A warp's piece of LL128: 1,920 of data in 2,048.
constexpr std::uint64_t LL_LINE_BYTES = 8;
constexpr std::uint64_t LL128_PIECE_BYTES = 1920;
constexpr std::uint64_t LL128_PIECE_WIRE_BYTES = 2048;
// init.cc: NCCL_P2P_NET_CHUNKSIZE.
constexpr std::uint64_t TRANSFER_STEP_BYTES = 128 * KIB;
constexpr std::uint64_t TRANSFER_ALIGN_BYTES = 4 * KIB;
constexpr std::uint64_t RING_ALIGN_BYTES = 16;
constexpr std::array<std::uint64_t, CW_MTU_CLASSES> MTU_BYTES = {256, 512, 1024, 2048, 4096};

std::uint64_t up(std::uint64_t a, std::uint64_t b) {
    return (a + b - 1) / b;
}

std::uint64_t on_wire(cw_nccl_protocol protocol, std::uint64_t bytes) {
    if (protocol == CW_NCCL_LL)
        return up(bytes, LL_LINE_BYTES) * 2 * LL_LINE_BYTES;
    if (protocol == CW_NCCL_LL128)
        return up(bytes, LL128_PIECE_BYTES) * LL128_PIECE_WIRE_BYTES;
    return bytes;
}

struct StepSizes {
    std::uint64_t step_bytes = 0;
    std::uint64_t chunk_bytes = 0; // of data
    std::uint32_t chunk_steps = 1;
    std::uint32_t slice_steps = 1;
};

StepSizes steps_of(const CollectiveSize &size) {
    StepSizes sizes;
    switch (size.protocol) {
    case CW_NCCL_LL:
        sizes.step_bytes = LL_STEP_BYTES;
        sizes.chunk_bytes = LL_STEP_BYTES / 2;
        break;
    case CW_NCCL_LL128:
        sizes.step_bytes = LL128_STEP_BYTES;
        sizes.chunk_bytes = LL128_STEP_BYTES / 16 * 15 / LL128_PIECE_BYTES * LL128_PIECE_BYTES;
        break;
    default:
        if (size.algorithm == CW_NCCL_RING) {
            sizes.chunk_steps = STEPS_OF_FIFO / 2;
            sizes.slice_steps = STEPS_OF_FIFO / 4;
        }
        sizes.step_bytes = SIMPLE_STEP_BYTES;
        sizes.chunk_bytes = SIMPLE_STEP_BYTES * sizes.chunk_steps;
    }
    return sizes;
}

bool is_all_reduce(const CollectiveSize &size) {
    return size.func == CW_NCCL_ALL_REDUCE;
}

// topoGetAlgoInfo: a small collective gets fewer channels, so that each thread has some bytes
// (comm.h NCCL_LL_THREAD_THRESHOLD and the others; tuning.cc: on a ring LL's is for each rank).
std::uint32_t useful_channels(const CollectiveSize &size, std::uint32_t n_ranks,
                              std::uint32_t max_channels) {
    const std::uint64_t all_bytes =
        size.count * size.element_bytes * (is_all_reduce(size) ? 1 : n_ranks);
    std::uint64_t thread_bytes = 8;
    std::uint64_t threads = 512;
    if (size.protocol == CW_NCCL_LL && size.algorithm == CW_NCCL_RING)
        thread_bytes *= n_ranks;
    if (size.protocol == CW_NCCL_LL128)
        threads = 640;
    if (size.protocol == CW_NCCL_SIMPLE)
        thread_bytes = 64;
    std::uint32_t channels = max_channels;
    while (channels > 1 && all_bytes < channels * threads * thread_bytes)
        channels--;
    return channels;
}

// The messages of one chunk: a slice each, with Simple on a ring two, of which the second may be
// empty (prims_simple.h: a slice has at least a 32nd of its room).
void send_chunk(const CollectiveSize &size, const ChannelPart &part, std::uint64_t bytes,
                Carried &carried) {
    carried.data_bytes += bytes;
    const std::uint32_t slices = part.chunk_steps / part.slice_steps;
    if (slices == 1) {
        carried.add_message(on_wire(size.protocol, bytes));
        return;
    }
    const std::uint64_t unit_bytes = 16 * std::uint64_t{size.element_bytes};
    const std::uint64_t slice_bytes =
        std::max(up(bytes, unit_bytes * slices) * unit_bytes,
                 part.slice_bytes / 32 / size.element_bytes * size.element_bytes);
    std::uint64_t left_bytes = bytes;
    for (std::uint32_t slice = 0; slice < slices; slice++) {
        const std::uint64_t now_bytes = std::min(slice_bytes, left_bytes);
        carried.add_message(now_bytes);
        left_bytes -= now_bytes;
    }
}

// all_gather.h, reduce_scatter.h: n - 1 equal chunks in each loop.
Carried once_round(const CollectiveSize &size, const ChannelPart &part, std::uint32_t n_ranks) {
    Carried all;
    const std::uint64_t full_chunks = part.channel_bytes / part.chunk_bytes;
    for (const auto &[bytes, loops] :
         {std::pair{part.chunk_bytes, full_chunks},
          std::pair{part.channel_bytes % part.chunk_bytes, std::uint64_t{1}}}) {
        if (bytes == 0 || loops == 0)
            continue;
        Carried chunk;
        send_chunk(size, part, bytes, chunk);
        all.add(chunk, loops * (n_ranks - 1));
    }
    return all;
}

// all_reduce.h runRing: a walk over the chunks of the full loops' one kind, then of the last loop.
Carried twice_round(const CollectiveSize &size, const ChannelPart &part, std::uint32_t n_ranks,
                    std::uint32_t place) {
    Carried all;
    const std::uint64_t loops = part.channel_bytes / part.loop_bytes;
    const std::uint64_t rest_bytes = part.channel_bytes % part.loop_bytes;
    if (loops > 0) {
        Carried chunk;
        send_chunk(size, part, part.chunk_bytes, chunk);
        all.add(chunk, loops * 2 * (n_ranks - 1));
    }
    if (rest_bytes == 0)
        return all;
    const std::uint64_t chunk_bytes =
        up(up(rest_bytes, n_ranks), RING_ALIGN_BYTES) * RING_ALIGN_BYTES;
    // Chunks of a loop have at most three sizes: full, the one that is cut, and empty ones.
    std::array<std::uint64_t, 3> kinds{};
    const auto send = [&](std::uint32_t chunk) {
        const std::uint64_t begin = chunk * chunk_bytes;
        if (begin >= rest_bytes)
            kinds[2]++;
        else
            kinds[rest_bytes - begin >= chunk_bytes ? 0 : 1]++;
    };
    for (std::uint32_t step = 1; step <= n_ranks; step++) // sums up: own place last
        send((place + n_ranks - step) % n_ranks);
    for (std::uint32_t step = 1; step + 1 < n_ranks; step++) // copies
        send((place + n_ranks - step) % n_ranks);
    const std::array<std::uint64_t, 3> sizes = {chunk_bytes, rest_bytes % chunk_bytes, 0};
    for (std::size_t kind = 0; kind < kinds.size(); kind++) {
        if (kinds[kind] == 0)
            continue;
        Carried chunk;
        send_chunk(size, part, sizes[kind], chunk);
        all.add(chunk, kinds[kind]);
    }
    return all;
}

} // namespace

Carried &Carried::operator+=(const Carried &other) {
    add(other, 1);
    return *this;
}

void Carried::add(const Carried &other, std::uint64_t times) {
    payload_bytes += other.payload_bytes * times;
    data_bytes += other.data_bytes * times;
    messages += other.messages * times;
    empty_messages += other.empty_messages * times;
    steps += other.steps * times;
    for (std::size_t i = 0; i < packets.size(); i++)
        packets[i] += other.packets[i] * times;
}

void Carried::add_message(std::uint64_t bytes) {
    payload_bytes += bytes;
    messages++;
    empty_messages += bytes == 0 ? 1 : 0;
    for (std::size_t i = 0; i < packets.size(); i++)
        packets[i] += std::max<std::uint64_t>(1, up(bytes, MTU_BYTES[i]));
}

std::vector<ChannelPart> channel_parts(const CollectiveSize &size, std::uint32_t n_ranks,
                                       std::uint32_t max_channels) {
    const std::uint64_t traffic_a_byte =
        is_all_reduce(size) ? 2 : n_ranks; // ncclFuncTrafficPerByte
    const std::uint64_t bytes = size.count * size.element_bytes;
    const std::uint64_t weight = traffic_a_byte * (size.protocol == CW_NCCL_LL ? 4 : 1);
    const std::uint64_t target_bytes =
        std::max(LEAST_TRAFFIC_BYTES, std::max(LEAST_TRAFFIC_BYTES, bytes * weight) /
                                          useful_channels(size, n_ranks, max_channels));
    const std::uint64_t cell_bytes =
        up(up(LEAST_TRAFFIC_BYTES, weight), CELL_ALIGN_BYTES) * CELL_ALIGN_BYTES;
    const std::uint64_t cells = up(bytes, cell_bytes);
    std::uint64_t per_channel = std::min(cells, up(target_bytes, cell_bytes * weight));
    const std::uint64_t low = max_channels == 1 ? cells : per_channel;
    const std::uint64_t rest = cells - low;
    std::uint64_t middle = rest / per_channel;
    std::uint64_t high = rest % per_channel;
    if (1 + middle + (high != 0 ? 1 : 0) > max_channels) {
        middle = max_channels - 2;
        per_channel = rest / (middle + 1);
        high = per_channel + rest % (middle + 1);
    }
    if (high == 0 && middle != 0) {
        high = per_channel;
        middle--;
    }
    std::vector<std::uint64_t> sizes(1 + middle, per_channel * cell_bytes);
    sizes[0] = low * cell_bytes;
    if (high != 0)
        sizes.push_back(high * cell_bytes);
    sizes.back() -= cells * cell_bytes - bytes; // the last cell is not full

    const StepSizes steps = steps_of(size);
    const bool is_ring = size.algorithm == CW_NCCL_RING;
    std::vector<ChannelPart> parts;
    std::uint64_t offset_bytes = 0;
    for (const std::uint64_t channel_bytes : sizes) {
        ChannelPart part{.channel = static_cast<std::uint32_t>(parts.size()),
                         .offset_bytes = offset_bytes,
                         .channel_bytes = channel_bytes,
                         .chunk_bytes = steps.chunk_bytes,
                         .slice_bytes = steps.chunk_bytes / steps.chunk_steps * steps.slice_steps,
                         .fifo_bytes = steps.step_bytes * steps.slice_steps,
                         .loop_bytes = steps.chunk_bytes * (is_ring ? n_ranks : 1),
                         .chunk_steps = steps.chunk_steps,
                         .slice_steps = steps.slice_steps};
        // nBytes of calcCollChunking: AllGather and ReduceScatter count all ranks' shares.
        const std::uint64_t all_bytes = channel_bytes * (is_all_reduce(size) ? 1 : n_ranks);
        const std::uint64_t in_a_loop =
            !is_ring ? 1 : (is_all_reduce(size) ? 2 : 1) * std::uint64_t{n_ranks - 1};
        part.steps = static_cast<std::uint32_t>(up(all_bytes, part.loop_bytes) * in_a_loop *
                                                steps.chunk_steps);
        offset_bytes += channel_bytes;
        parts.push_back(part);
    }
    return parts;
}

Carried sent_on_ring(const CollectiveSize &size, const ChannelPart &part, std::uint32_t n_ranks,
                     std::uint32_t place) {
    Carried carried = is_all_reduce(size) ? twice_round(size, part, n_ranks, place)
                                          : once_round(size, part, n_ranks);
    carried.steps = part.steps;
    carried.chunk_steps = part.chunk_steps;
    return carried;
}

Carried sent_on_tree(const CollectiveSize &size, const ChannelPart &part) {
    Carried all;
    for (std::uint64_t at = 0; at < part.channel_bytes; at += part.chunk_bytes)
        send_chunk(size, part, std::min(part.chunk_bytes, part.channel_bytes - at), all);
    all.steps = part.steps;
    all.chunk_steps = part.chunk_steps;
    return all;
}

TransferPlan transfer_plan(std::uint64_t bytes, const TransferSetting &setting) {
    std::uint32_t least_channels = setting.channels_a_peer;
    while (std::uint64_t{least_channels} * setting.n_ranks > setting.p2p_channels &&
           least_channels > 1)
        least_channels /= 2;
    TransferPlan plan;
    std::uint64_t chunk_bytes = TRANSFER_STEP_BYTES;
    if (bytes < TRANSFER_STEP_BYTES)
        chunk_bytes /= 4;
    else if (bytes < 8 * TRANSFER_STEP_BYTES)
        chunk_bytes /= 2;

    const std::uint64_t least_part_bytes = TRANSFER_STEP_BYTES / 2;
    std::uint64_t channels =
        bytes == 0 ? 1 : std::min<std::uint64_t>(least_channels, up(bytes, least_part_bytes));
    std::uint64_t part_bytes = std::max(least_part_bytes, up(bytes, channels));
    while (part_bytes > TRANSFER_STEP_BYTES && channels <= setting.channels_a_peer / 2) {
        channels *= 2;
        part_bytes = up(bytes, channels);
    }
    plan.n_channels = static_cast<std::uint32_t>(channels);
    const std::uint64_t bound_bytes =
        up(up(bytes, channels), TRANSFER_ALIGN_BYTES) * TRANSFER_ALIGN_BYTES;
    for (std::uint32_t i = 0; i < channels; i++) {
        const std::uint64_t begin = std::min(i * bound_bytes, bytes);
        const std::uint64_t length = std::min((i + 1) * bound_bytes, bytes) - begin;
        const std::uint64_t steps = bytes == 0 ? 1 : up(length, chunk_bytes);
        if (steps == 0)
            continue;
        plan.parts.push_back({.channel = (setting.base_channel + i) & (setting.p2p_channels - 1),
                              .bytes = length,
                              .chunk_bytes = chunk_bytes,
                              .first_bytes = std::min(length, chunk_bytes),
                              .steps = static_cast<std::uint32_t>(steps)});
    }
    return plan;
}

Carried sent_of_transfer(const TransferPart &part) {
    Carried all;
    all.data_bytes = part.bytes;
    for (std::uint32_t step = 0; step < part.steps; step++) {
        const std::uint64_t begin = std::min(step * part.chunk_bytes, part.bytes);
        all.add_message(std::min(part.chunk_bytes, part.bytes - begin));
    }
    all.steps = part.steps;
    return all;
}

} // namespace collwire::trace_gen
