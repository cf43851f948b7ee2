// SPDX-License-Identifier: Apache-2.0
// NCCL 2.20 and 2.21: a kernel gets its communicator, a channel mask and an array of ncclWork,
// which has several elements: collectives, or pairs of a receive and a send.
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "tests/cuda_double/library.h"
#include "tests/cuda_double/settings.h"
#include "tests/cuda_double/work.h"

namespace collwire::cuda_double {
namespace {

enum class WorkType { Unused, Collective, PointToPoint, RegisteredCollective };

constexpr int kPeerBits = 30; // signed

struct ElementLayout {
    Field next, function, is_last, in_fifo, type; // of the header
    std::int64_t work_bytes;
    std::int64_t elements_offset, registered_offset, pairs_offset;
    std::int64_t element_bytes, registered_bytes, pair_bytes;
    Field is_used, argument_is_address, registered, one_node, root, send_buffer, receive_buffer,
        count;
    Field reduction_argument, chunk_count, part_count, last_chunk_count, part_offset;
    Field work_done; // of the channel
};

const ElementLayout &element_layout() {
    static const ElementLayout known = [] {
        const Layout &layout = library().layout();
        const auto of_header = [&](const char *member) {
            return layout.required(std::string("ncclWorkHeader.") + member);
        };
        const auto of_element = [&](const char *member) {
            return layout.required(std::string("ncclWorkElem.") + member);
        };
        return ElementLayout{of_header("workNext"),
                             of_header("funcIndex"),
                             of_header("isLast"),
                             of_header("inFifo"),
                             of_header("type"),
                             layout.required_size_bytes("ncclWork"),
                             layout.required("ncclWork.elems").offset_bytes(),
                             layout.required("ncclWork.regElems").offset_bytes(),
                             layout.required("ncclWork.p2pElems").offset_bytes(),
                             layout.required_size_bytes("ncclWorkElem"),
                             layout.required_size_bytes("ncclWorkElemReg"),
                             layout.required_size_bytes("ncclWorkElemP2p"),
                             of_element("isUsed"),
                             of_element("redOpArgIsPtr"),
                             of_element("regUsed"),
                             layout.field("ncclWorkElem.oneNode"),
                             of_element("root"),
                             of_element("sendbuff"),
                             of_element("recvbuff"),
                             of_element("count"),
                             of_element("redOpArg"),
                             of_element("chunkCount"),
                             of_element("workCount"),
                             of_element("lastChunkCount"),
                             of_element("workOffset"),
                             layout.required("ncclDevChannel.workFifoDone")};
    }();
    return known;
}

struct PairLayout {
    Field peer, protocol, kind, registered, groups, address_high, address_low;
    Field bytes_high, bytes_low, chunk_bytes;
};

const PairLayout &pair_layout() {
    static const PairLayout known = [] {
        const auto of = [](const char *member) {
            return library().layout().required(std::string("ncclWorkElemP2p.") + member);
        };
        return PairLayout{of("peer"),      of("proto"),    of("p2pType"),  of("reg"),
                          of("ngroups"),   of("buffHi32"), of("buffLo32"), of("countHi32"),
                          of("countLo32"), of("chunkSize")};
    }();
    return known;
}

void refuse_registered(bool is_registered) {
    if (is_registered)
        fatal("registered user buffers have no double. Fix: NCCL_GRAPH_REGISTER=0, and no "
              "ncclCommRegister");
}

class ElementReader : public WorkReader {
public:
    explicit ElementReader(const std::vector<char> &arguments) {
        if (arguments.size() != sizeof arguments_)
            fatal("a kernel of NCCL 2.20 without its three arguments. Fix: report the version");
        std::memcpy(&arguments_, arguments.data(), sizeof arguments_);
    }

    [[nodiscard]] Communicator communicator() const override {
        return Communicator(arguments_.communicator);
    }
    [[nodiscard]] std::uint64_t channel_mask() const override { return arguments_.channel_mask; }

    Batch read_batch(const Channel &channel, int place, KernelTruth &truth) override {
        const ElementLayout &layout = element_layout();
        const char *live = arguments_.works + place * layout.work_bytes;
        const std::vector<char> work(live, live + layout.work_bytes);
        const char *header = work.data();

        Batch batch;
        batch.function = function_of(static_cast<unsigned>(layout.function.read(header)));
        batch.profiled.push_back(false);
        if (layout.is_last.read(header) == 0)
            batch.next = layout.next.read_int(header);
        else if (layout.in_fifo.read(header) != 0)
            acknowledge(channel, static_cast<std::uint32_t>(layout.next.read(header)));

        const auto type = static_cast<WorkType>(layout.type.read(header));
        if (type == WorkType::PointToPoint)
            read_pairs(batch, work, channel, truth);
        else
            read_elements(batch, work, type, channel, truth);
        return batch;
    }

private:
    static void acknowledge(const Channel &channel, std::uint32_t done) {
        auto *counter = element_layout().work_done.pointer<std::uint32_t>(channel.device());
        __atomic_store_n(counter, done, __ATOMIC_RELEASE);
    }

    // Every channel has a copy of its own of a work; the channel's n-th work of the same content is
    // the other channels' n-th.
    int number_of(const Channel &channel, const std::string &content, KernelTruth &truth,
                  const WorkDescription &description) {
        const int nth = seen_[fmt::format("{} {}", channel.id(), content)]++;
        return truth.work_item(fmt::format("{} {}", nth, content), description);
    }

    void read_elements(Batch &batch, const std::vector<char> &work, WorkType type,
                       const Channel &channel, KernelTruth &truth) {
        const ElementLayout &layout = element_layout();
        const bool has_registration = type == WorkType::RegisteredCollective;
        const std::int64_t stride =
            has_registration ? layout.registered_bytes : layout.element_bytes;
        std::int64_t at = has_registration ? layout.registered_offset : layout.elements_offset;
        for (; at + stride <= layout.work_bytes && layout.is_used.read(work.data() + at) != 0;
             at += stride) {
            const char *element = work.data() + at;
            refuse_registered(layout.registered.read(element) != 0);
            Collective collective;
            collective.function = batch.function;
            collective.input = layout.send_buffer.pointer<const char>(element);
            collective.output = layout.receive_buffer.pointer<char>(element);
            collective.count = static_cast<std::int64_t>(layout.count.read(element));
            collective.part_offset = static_cast<std::int64_t>(layout.part_offset.read(element));
            collective.part_count = static_cast<std::int64_t>(layout.part_count.read(element));
            collective.chunk_count = static_cast<std::int64_t>(layout.chunk_count.read(element));
            collective.last_chunk_count = layout.last_chunk_count.read_signed(element);
            collective.root = layout.root.read_int(element);
            collective.is_one_node = layout.one_node && layout.one_node.read(element) != 0;
            collective.reduction_argument =
                reduction_argument(batch.function, layout.reduction_argument.read(element),
                                   layout.argument_is_address.read(element) != 0);
            const auto bytes =
                static_cast<std::uint64_t>(collective.count) * bytes_of(batch.function.type);
            collective.work = number_of(channel,
                                        fmt::format("{} {} {} {} {}", name_of(batch.function),
                                                    static_cast<const void *>(collective.input),
                                                    static_cast<void *>(collective.output), bytes,
                                                    collective.root),
                                        truth, {.function = batch.function, .bytes = bytes});
            batch.collectives.push_back(collective);
        }
    }

    // Receives are at even places, sends at odd ones.
    void read_pairs(Batch &batch, const std::vector<char> &work, const Channel &channel,
                    KernelTruth &truth) {
        const ElementLayout &layout = element_layout();
        const PairLayout &pair = pair_layout();
        const char *element = work.data() + layout.pairs_offset;
        const int groups = pair.groups.read_int(element);
        for (int group = 0; group < groups; group++, element += layout.pair_bytes) {
            const bool is_send = group % 2 == 1;
            // Sign-extends the bit field.
            const int peer =
                static_cast<int>(pair.peer.read(element) << (32 - kPeerBits)) >> (32 - kPeerBits);
            if (pair.kind.read(element) == 0 || peer == -1)
                continue;
            refuse_registered(pair.registered.read(element) != 0);
            const std::uint64_t bytes = bytes_of_pair(element);
            const int number =
                number_of(channel, fmt::format("{} {}", is_send ? "send" : "receive", peer), truth,
                          {.function = batch.function});
            truth.add_transfer_bytes(number, is_send ? bytes : 0, is_send ? 0 : bytes);
            if (peer != communicator().rank())
                batch.transfers.push_back(read_transfer(element, is_send, peer, number));
            else if (is_send)
                batch.copies.push_back(
                    {address_of(element), address_of(element - layout.pair_bytes), bytes});
        }
    }

    static char *address_of(const char *element) {
        const PairLayout &pair = pair_layout();
        // The kernel's argument. NOLINTNEXTLINE(performance-no-int-to-ptr)
        return reinterpret_cast<char *>(pair.address_high.read(element) << 32 |
                                        pair.address_low.read(element));
    }

    static std::uint64_t bytes_of_pair(const char *element) {
        const PairLayout &pair = pair_layout();
        return pair.bytes_high.read(element) << 32 | pair.bytes_low.read(element);
    }

    static Transfer read_transfer(const char *element, bool is_send, int peer, int work) {
        const PairLayout &pair = pair_layout();
        const auto protocol = static_cast<Protocol>(pair.protocol.read(element));
        const std::uint64_t chunk_bytes = pair.chunk_bytes.read(element);
        return {is_send ? Direction::Send : Direction::Receive, protocol, peer, address_of(element),
                bytes_of_pair(element),
                // Half of a line of LL is data.
                protocol == Protocol::LL ? chunk_bytes / 2 : chunk_bytes, work};
    }

    struct Arguments {
        char *communicator;
        std::uint64_t channel_mask;
        const char *works;
    } arguments_{};
    std::map<std::string, int> seen_;
};

} // namespace

std::unique_ptr<WorkReader> make_element_reader(const std::vector<char> &arguments) {
    return std::make_unique<ElementReader>(arguments);
}

} // namespace collwire::cuda_double
