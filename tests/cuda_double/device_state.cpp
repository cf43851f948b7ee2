// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/device_state.h"

#include <fmt/format.h>

#include "tests/cuda_double/library.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

CommunicatorLayout read_communicator_layout() {
    const Layout &layout = library().layout();
    const bool is_renamed = layout.size_bytes("ncclKernelComm").has_value();
    const std::string comm = is_renamed ? "ncclKernelComm" : "ncclDevComm";
    const std::string both = is_renamed ? "ncclKernelCommAndChannels" : "ncclDevCommAndChannels";
    return {layout.required(comm + ".rank"),
            layout.required(comm + ".nRanks"),
            layout.required(comm + ".buffSizes"),
            layout.required(comm + ".p2pChunkSize"),
            layout.required(comm + ".abortFlag"),
            layout.field(comm + ".workConsumed"),
            layout.field(comm + ".workStarted"),
            layout.field(comm + ".workCompleted"),
            layout.required(both + ".channels").offset_bytes(),
            layout.required_size_bytes("ncclDevChannel")};
}

struct ChannelLayout {
    Field peers, previous, next, ranks, index, tree_up, tree_down;
    std::int64_t receive_offset, connection_bytes;
};

const ChannelLayout &channel_layout() {
    static const ChannelLayout known = [] {
        const Layout &layout = library().layout();
        return ChannelLayout{layout.required("ncclDevChannel.peers"),
                             layout.required("ncclDevChannel.ring.prev"),
                             layout.required("ncclDevChannel.ring.next"),
                             layout.required("ncclDevChannel.ring.userRanks"),
                             layout.required("ncclDevChannel.ring.index"),
                             layout.required("ncclDevChannel.tree.up"),
                             layout.required("ncclDevChannel.tree.down"),
                             layout.required("ncclDevChannelPeer.recv").offset_bytes(),
                             layout.required_size_bytes("ncclConnInfo")};
    }();
    return known;
}

struct NvlsLayout {
    Field heads, head, up, down, tree_up, tree_down;
};

const NvlsLayout &nvls_layout() {
    static const NvlsLayout known = [] {
        const auto of = [](const char *member) {
            return library().layout().required(std::string("ncclDevChannel.nvls.") + member);
        };
        return NvlsLayout{of("nHeads"), of("headRank"), of("up"),
                          of("down"),   of("treeUp"),   of("treeDown")};
    }();
    return known;
}

// Up to the first -1.
std::vector<int> peers_of(const char *channel, const Field &array) {
    const auto *peers = reinterpret_cast<const int *>(channel + array.offset_bytes());
    const auto arity = array.size_bytes() / static_cast<std::int64_t>(sizeof(int));
    std::vector<int> found;
    for (std::int64_t i = 0; i < arity && peers[i] >= 0; i++)
        found.push_back(peers[i]);
    return found;
}

} // namespace

const CommunicatorLayout &communicator_layout() {
    static const CommunicatorLayout known = read_communicator_layout();
    return known;
}

int Communicator::rank() const {
    return communicator_layout().rank.read_int(device_);
}

int Communicator::ranks() const {
    return communicator_layout().ranks.read_int(device_);
}

std::int64_t Communicator::buffer_bytes(Protocol protocol) const {
    const auto *bytes =
        reinterpret_cast<const int *>(device_ + communicator_layout().buffer_bytes.offset_bytes());
    return bytes[static_cast<std::size_t>(protocol)];
}

std::int64_t Communicator::p2p_chunk_bytes() const {
    return communicator_layout().p2p_chunk_bytes.read_int(device_);
}

bool Communicator::aborted() const {
    const auto *flag = communicator_layout().abort_flag.pointer<std::uint32_t>(device_);
    return flag != nullptr && __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0;
}

Channel::Channel(const Communicator &communicator, int id)
    : id_(id), device_(communicator.device() + communicator_layout().channels_offset +
                       id * communicator_layout().channel_bytes) {}

int Channel::previous() const {
    return channel_layout().previous.read_int(device_);
}

int Channel::next() const {
    return channel_layout().next.read_int(device_);
}

int Channel::ring_index() const {
    return channel_layout().index.read_int(device_);
}

int Channel::ring_rank(int distance) const {
    return channel_layout().ranks.pointer<const int>(device_)[distance];
}

int Channel::tree_up() const {
    return channel_layout().tree_up.read_int(device_);
}

std::vector<int> Channel::tree_down() const {
    return peers_of(device_, channel_layout().tree_down);
}

Channel::Nvls Channel::nvls() const {
    const NvlsLayout &layout = nvls_layout();
    Nvls nvls{peers_of(device_, layout.up), layout.head.read_int(device_),
              layout.down.read_int(device_), layout.tree_up.read_int(device_),
              peers_of(device_, layout.tree_down)};
    if (nvls.up.size() != layout.heads.read(device_) ||
        nvls.head >= static_cast<int>(nvls.up.size()))
        fatal(fmt::format("channel {}: {} heads of NVLS, {} peers. Fix: a version that README.md "
                          "lists",
                          id_, layout.heads.read(device_), nvls.up.size()));
    return nvls;
}

char *Channel::connection(int peer, Direction direction, int index) const {
    const ChannelLayout &layout = channel_layout();
    char *state = layout.peers.pointer<char *>(device_)[peer];
    if (state == nullptr)
        fatal(fmt::format("channel {} has no peer {}. Fix: report it, with NCCL_DEBUG=INFO", id_,
                          peer));
    return state + (direction == Direction::Receive ? layout.receive_offset : 0) +
           index * layout.connection_bytes;
}

} // namespace collwire::cuda_double
