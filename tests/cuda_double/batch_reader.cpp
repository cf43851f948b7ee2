// SPDX-License-Identifier: Apache-2.0
// NCCL 2.22 and later: a kernel gets ncclDevKernelArgs, followed by batches; a batch says with a
// bit set which work structures belong to it, in the arguments themselves or in a FIFO in memory.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tests/cuda_double/library.h"
#include "tests/cuda_double/settings.h"
#include "tests/cuda_double/work.h"

namespace collwire::cuda_double {
namespace {

enum class WorkType { PointToPoint, Collective, RegisteredCollective, Broadcast };
enum class Storage { Arguments, Fifo, Persistent };

constexpr std::uint64_t kP2pGrainBytes = 4096;
constexpr int kFirstWithPartsInARow = 22800;

struct BatchLayout {
    Field communicator, channel_mask, storage, work_mask, work_buffer; // of the arguments
    std::int64_t arguments_bytes;
    Field jump, extends, type, function, base, bits; // of a batch
    std::int64_t batch_bytes;
    std::int64_t collective_bytes, registered_bytes, p2p_bytes, broadcast_bytes;
};

const BatchLayout &batch_layout() {
    static const BatchLayout known = [] {
        const Layout &layout = library().layout();
        const auto of_arguments = [&](const char *member) {
            return layout.required(std::string("ncclDevKernelArgs.") + member);
        };
        const auto of_batch = [&](const char *member) {
            return layout.required(std::string("ncclDevWorkBatch.") + member);
        };
        return BatchLayout{of_arguments("comm"),
                           of_arguments("channelMask"),
                           of_arguments("workStorageType"),
                           of_arguments("workMask"),
                           of_arguments("workBuf"),
                           layout.required_size_bytes("ncclDevKernelArgs"),
                           of_batch("nextJump"),
                           of_batch("nextExtends"),
                           of_batch("workType"),
                           of_batch("funcId"),
                           of_batch("offsetBase"),
                           of_batch("offsetBitset"),
                           layout.required_size_bytes("ncclDevWorkBatch"),
                           layout.required_size_bytes("ncclDevWorkColl"),
                           layout.required_size_bytes("ncclDevWorkCollReg"),
                           layout.required_size_bytes("ncclDevWorkP2p"),
                           layout.size_bytes("ncclDevWorkBcast").value_or(0)};
    }();
    return known;
}

struct CollectiveLayout {
    Field channel_low, channel_high, argument_is_address, registered, net_registered, root;
    Field one_node;
    Field send_buffer, receive_buffer, reduction_argument, profiled;
    Field count_low, count_middle, count_high, grains_low, grains_middle, grains_high;
};

const CollectiveLayout &collective_layout() {
    static const CollectiveLayout known = [] {
        const Layout &layout = library().layout();
        const auto of = [&](const char *member) {
            return layout.required(std::string("ncclDevWorkColl.") + member);
        };
        return CollectiveLayout{of("channelLo"),
                                of("channelHi"),
                                of("redOpArgIsPtr"),
                                of("regUsed"),
                                layout.field("ncclDevWorkColl.netRegUsed"),
                                of("root"),
                                layout.field("ncclDevWorkColl.oneNode"),
                                of("sendbuff"),
                                of("recvbuff"),
                                of("redOpArg"),
                                layout.field("ncclDevWorkColl.profilerEnabled"),
                                of("cbd.countLo"),
                                of("cbd.countMid"),
                                of("cbd.countHi"),
                                of("cbd.chunkGrainsLo"),
                                of("cbd.chunkGrainsMid"),
                                of("cbd.chunkGrainsHi")};
    }();
    return known;
}

struct TransferLayout {
    struct Side {
        Field address, bytes, rank, channels, chunk, is_ll, net_registered, ipc_registered;
    } send, receive;
    Field p2p_channels, channel_base, profiled;
};

const TransferLayout &transfer_layout() {
    static const TransferLayout known = [] {
        const Layout &layout = library().layout();
        const auto of = [&](const std::string &member) {
            return layout.required("ncclDevWorkP2p." + member);
        };
        const auto side = [&](const std::string &name, const char *channels) {
            return TransferLayout::Side{of(name + "Addr"),
                                        of(name + "Bytes"),
                                        of(name + "Rank"),
                                        of(channels),
                                        of(name + "ChunkSize_u32fp8"),
                                        of(name + "ProtoLL"),
                                        layout.field("ncclDevWorkP2p." + name + "NetReg"),
                                        layout.field("ncclDevWorkP2p." + name + "IpcReg")};
        };
        return TransferLayout{side("send", "nSendChannels"), side("recv", "nRecvChannels"),
                              of("nP2pChannels"), of("channelBase"),
                              layout.field("ncclDevWorkP2p.profilerEnabled")};
    }();
    return known;
}

struct BroadcastLayout {
    Field distance, chunk_bytes, input, output, bytes, done_bytes;
};

const BroadcastLayout &broadcast_layout() {
    static const BroadcastLayout known = [] {
        const auto of = [](const char *member) {
            return library().layout().required(std::string("ncclDevWorkBcast.") + member);
        };
        return BroadcastLayout{of("ringDepth"), of("chunkSize"), of("sendbuff"),
                               of("recvbuff"),  of("bytes"),     of("bytes_done")};
    }();
    return known;
}

bool is_set(const Field &field, const char *structure) {
    return field && field.read(structure) != 0;
}

void refuse_registered(bool is_registered) {
    if (is_registered)
        fatal("registered user buffers have no double. Fix: NCCL_LOCAL_REGISTER=0, "
              "NCCL_GRAPH_REGISTER=0 and NCCL_LEGACY_CUDA_REGISTER=0, and no ncclCommRegister");
}

// NCCL's float of 8 bits without a sign: 5 bits of exponent, 3 of mantissa.
std::uint64_t decode_u32fp8(std::uint64_t value) {
    const std::uint64_t exponent = value >> 3;
    const std::uint64_t mantissa = value & 7;
    return exponent == 0 ? mantissa : (mantissa | 8) << (exponent - 1);
}

std::int64_t grain_bytes(Protocol protocol) {
    switch (protocol) {
    case Protocol::LL:
        return 16;
    case Protocol::LL128:
        return 1920;
    case Protocol::Simple:
        break;
    }
    return 512;
}

// The first and the last channel of a collective have counts of their own.
void read_part(const char *work, int channel, Collective &collective) {
    const CollectiveLayout &layout = collective_layout();
    const int low = layout.channel_low.read_int(work);
    const int high = layout.channel_high.read_int(work);
    const auto count_low = static_cast<std::int64_t>(layout.count_low.read(work));
    const auto count_middle = static_cast<std::int64_t>(layout.count_middle.read(work));
    const auto count_high = static_cast<std::int64_t>(layout.count_high.read(work));
    const auto element_bytes = static_cast<std::int64_t>(bytes_of(collective.function.type));
    const std::int64_t grain = grain_bytes(collective.function.protocol) / element_bytes;
    const auto chunk = [&](const Field &grains) {
        return static_cast<std::int64_t>(grains.read(work)) * grain;
    };
    collective.count = count_low + count_middle * (high - low - 1) + count_high;
    if (channel == low) {
        collective.part_offset = 0;
        collective.part_count = count_low;
        collective.chunk_count = chunk(layout.grains_low);
    } else if (channel == high) {
        collective.part_offset = count_low + (high - low - 1) * count_middle;
        collective.part_count = count_high;
        collective.chunk_count = chunk(layout.grains_high);
    } else {
        collective.part_offset = count_low + (channel - low - 1) * count_middle;
        collective.part_count = count_middle;
        collective.chunk_count = chunk(layout.grains_middle);
    }
}

Collective read_collective(const char *work, const Function &function, int channel) {
    const CollectiveLayout &layout = collective_layout();
    refuse_registered(is_set(layout.registered, work) || is_set(layout.net_registered, work));
    Collective collective;
    collective.function = function;
    collective.input = layout.send_buffer.pointer<const char>(work);
    collective.output = layout.receive_buffer.pointer<char>(work);
    collective.root = layout.root.read_int(work);
    collective.is_one_node = is_set(layout.one_node, work);
    collective.reduction_argument = reduction_argument(
        function, layout.reduction_argument.read(work), layout.argument_is_address.read(work) != 0);
    read_part(work, channel, collective);
    return collective;
}

struct WorkAt {
    std::uint32_t offset = 0; // in its storage: distinguishes works
    std::vector<char> bytes;
};

struct WorkList {
    WorkType type = WorkType::PointToPoint;
    unsigned function = 0;
    std::vector<WorkAt> works;
    std::uint32_t consumed = 0; // up to this offset
    std::optional<int> next;
};

class BatchReader : public WorkReader {
public:
    explicit BatchReader(std::vector<char> arguments) : arguments_(std::move(arguments)) {}

    [[nodiscard]] Communicator communicator() const override {
        return Communicator(batch_layout().communicator.pointer<char>(arguments_.data()));
    }
    [[nodiscard]] std::uint64_t channel_mask() const override {
        return batch_layout().channel_mask.read(arguments_.data());
    }

    Batch read_batch(const Channel &channel, int place, KernelTruth &truth) override {
        const WorkList list = read_list(place);
        acknowledge(channel, list.consumed);
        Batch batch;
        batch.function = function_of(list.function);
        batch.next = list.next;
        for (const WorkAt &work : list.works)
            add(batch, list.type, work, channel, truth);
        return batch;
    }

private:
    static std::int64_t work_bytes(WorkType type) {
        const BatchLayout &layout = batch_layout();
        std::int64_t bytes = 0;
        switch (type) {
        case WorkType::PointToPoint:
            bytes = layout.p2p_bytes;
            break;
        case WorkType::Collective:
            bytes = layout.collective_bytes;
            break;
        case WorkType::RegisteredCollective:
            bytes = layout.registered_bytes;
            break;
        case WorkType::Broadcast:
            bytes = layout.broadcast_bytes;
            break;
        }
        if (bytes == 0)
            fatal(fmt::format("work of type {} has no double. Fix: a version that README.md lists",
                              static_cast<int>(type)));
        return bytes;
    }

    [[nodiscard]] Storage storage() const {
        return static_cast<Storage>(batch_layout().storage.read(arguments_.data()));
    }

    [[nodiscard]] const char *work_at(std::uint32_t offset) const {
        const BatchLayout &layout = batch_layout();
        if (storage() == Storage::Arguments)
            return arguments_.data() + offset;
        const auto mask = static_cast<std::uint32_t>(layout.work_mask.read(arguments_.data()));
        return layout.work_buffer.pointer<const char>(arguments_.data()) + (offset & mask);
    }

    // A batch and those that extend it. Works are copied at once, as the kernel does.
    [[nodiscard]] WorkList read_list(int place) const {
        const BatchLayout &layout = batch_layout();
        WorkList list;
        for (;;) {
            const char *batch =
                arguments_.data() + layout.arguments_bytes + place * layout.batch_bytes;
            list.type = static_cast<WorkType>(layout.type.read(batch));
            list.function = static_cast<unsigned>(layout.function.read(batch));
            const auto base = static_cast<std::uint32_t>(layout.base.read(batch));
            const std::uint64_t bits = layout.bits.read(batch);
            const std::int64_t bytes = work_bytes(list.type);
            const auto offset_of = [&](int index) {
                return base + static_cast<std::uint32_t>(index * bytes);
            };
            for (std::uint64_t left = bits; left != 0; left &= left - 1) {
                const std::uint32_t offset = offset_of(std::countr_zero(left));
                const char *work = work_at(offset);
                list.works.push_back({offset, {work, work + bytes}});
            }
            if (bits != 0)
                list.consumed = offset_of(static_cast<int>(std::bit_width(bits)));
            const int jump = layout.jump.read_int(batch);
            if (layout.extends.read(batch) == 0) {
                if (jump != 0)
                    list.next = place + jump;
                return list;
            }
            place += jump;
        }
    }

    void acknowledge(const Channel &channel, std::uint32_t consumed) const {
        const Field &work_consumed = communicator_layout().work_consumed;
        if (!work_consumed || storage() != Storage::Fifo)
            return;
        auto *counters = work_consumed.pointer<std::uint32_t>(communicator().device());
        if (counters != nullptr)
            __atomic_store_n(&counters[channel.id()], consumed, __ATOMIC_RELEASE);
    }

    void add(Batch &batch, WorkType type, const WorkAt &at, const Channel &channel,
             KernelTruth &truth) const {
        const std::string key = fmt::format("{}", at.offset);
        const char *work = at.bytes.data();
        switch (type) {
        case WorkType::PointToPoint:
            batch.profiled.push_back(is_set(transfer_layout().profiled, work));
            return add_transfers(batch, work, key, channel, truth);
        case WorkType::Broadcast:
            batch.profiled.push_back(false);
            return add_broadcast(batch, work, key, truth);
        case WorkType::Collective:
        case WorkType::RegisteredCollective: {
            batch.profiled.push_back(is_set(collective_layout().profiled, work));
            Collective collective = read_collective(work, batch.function, channel.id());
            const std::uint64_t bytes =
                static_cast<std::uint64_t>(collective.count) * bytes_of(collective.function.type);
            collective.work = truth.work_item(key, {.function = batch.function, .bytes = bytes});
            batch.collectives.push_back(collective);
            return;
        }
        }
    }

    void add_transfers(Batch &batch, const char *work, const std::string &key,
                       const Channel &channel, KernelTruth &truth) const {
        const TransferLayout &layout = transfer_layout();
        const int number = truth.work_item(key, {batch.function, layout.send.bytes.read(work),
                                                 layout.receive.bytes.read(work), 0});
        const int part = part_on(channel.id() - layout.channel_base.read_int(work),
                                 layout.p2p_channels.read_int(work));
        const auto read_side = [&](const TransferLayout::Side &side, Direction direction) {
            return read_transfer(work, side, direction, part, number);
        };
        const auto send = read_side(layout.send, Direction::Send);
        const auto receive = read_side(layout.receive, Direction::Receive);
        if (layout.send.rank.read_int(work) == communicator().rank()) {
            if (send)
                batch.copies.push_back(
                    {send->address,
                     layout.receive.address.pointer<char>(work) +
                         (send->address - layout.send.address.pointer<char>(work)),
                     send->bytes});
            return;
        }
        if (send)
            batch.transfers.push_back(*send);
        if (receive)
            batch.transfers.push_back(*receive);
    }

    // Channels of one pair follow one another modulo a power of two: up to 2.27 in the order of
    // their bits reversed (device.h ncclP2pChannelToPart).
    static int part_on(int channels_after, int channels) {
        const int place = channels_after & (channels - 1);
        if (nccl_version() >= kFirstWithPartsInARow)
            return place;
        int part = 0;
        for (int bit = 1; bit < channels; bit *= 2)
            part = part * 2 + ((place & bit) != 0 ? 1 : 0);
        return part;
    }

    // Nothing where this channel has no part.
    static std::optional<Transfer> read_transfer(const char *work, const TransferLayout::Side &side,
                                                 Direction direction, int part, int number) {
        const auto parts = side.channels.read(work);
        const auto index = static_cast<std::uint64_t>(part);
        if (index >= parts)
            return std::nullopt;
        refuse_registered(is_set(side.net_registered, work) || is_set(side.ipc_registered, work));
        const std::uint64_t all_bytes = side.bytes.read(work);
        const std::uint64_t even_bytes = (all_bytes + parts - 1) / parts;
        const std::uint64_t part_bytes =
            (even_bytes + kP2pGrainBytes - 1) / kP2pGrainBytes * kP2pGrainBytes;
        const std::uint64_t begin = std::min(index * part_bytes, all_bytes);
        const std::uint64_t end = std::min((index + 1) * part_bytes, all_bytes);
        return Transfer{direction,
                        side.is_ll.read(work) != 0 ? Protocol::LL : Protocol::Simple,
                        side.rank.read_int(work),
                        side.address.pointer<char>(work) + begin,
                        end - begin,
                        decode_u32fp8(side.chunk.read(work)),
                        number};
    }

    static void add_broadcast(Batch &batch, const char *work, const std::string &key,
                              KernelTruth &truth) {
        const BroadcastLayout &layout = broadcast_layout();
        GroupedBroadcast broadcast;
        broadcast.input = layout.input.pointer<const char>(work);
        broadcast.output = layout.output.pointer<char>(work);
        broadcast.bytes = layout.bytes.read(work);
        broadcast.done_bytes = layout.done_bytes.read(work);
        broadcast.chunk_bytes = layout.chunk_bytes.read(work);
        broadcast.distance = layout.distance.read_int(work);
        broadcast.work =
            truth.work_item(key, {.function = batch.function, .bytes = broadcast.bytes});
        batch.broadcasts.push_back(broadcast);
    }

    std::vector<char> arguments_;
};

} // namespace

bool has_batches() {
    return library().layout().size_bytes("ncclDevWorkBatch").has_value();
}

std::unique_ptr<WorkReader> make_batch_reader(std::vector<char> arguments) {
    return std::make_unique<BatchReader>(std::move(arguments));
}

std::uint64_t reduction_argument(const Function &function, std::uint64_t value, bool is_address) {
    std::uint64_t argument = value;
    if (is_address) {
        argument = 0;
        // The kernel's argument. NOLINTNEXTLINE(performance-no-int-to-ptr)
        std::memcpy(&argument, reinterpret_cast<const void *>(value), bytes_of(function.type));
    }
    // Up to 2.23 the divisor stands alone.
    if (function.reduction == Reduction::SumPostDiv && nccl_version() < 22400)
        argument = argument << 1 | (is_signed_integer(function.type) ? 1 : 0);
    return argument;
}

} // namespace collwire::cuda_double
