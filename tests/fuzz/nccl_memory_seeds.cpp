// SPDX-License-Identifier: Apache-2.0
// Writes memories of processes with NCCL to DIRECTORY, for fuzz_nccl_memory to start from.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/nccl_memory.h"

namespace {

using namespace collwire::nccl::memory;
namespace memory = collwire::nccl::memory;

class Writer {
public:
    explicit Writer(unsigned flags) : flags_(flags), bytes_(HEAD_BYTES) {
        bytes_[0] = static_cast<char>(flags);
        put(Roots{});
    }
    // Returns the address.
    template <typename T> std::uint64_t put(const T &value) {
        while (bytes_.size() % alignof(std::uint64_t) != 0)
            bytes_.push_back('\0');
        const std::size_t at = bytes_.size();
        bytes_.resize(at + sizeof(value));
        std::memcpy(&bytes_[at], &value, sizeof(value));
        return BASE + at - HEAD_BYTES;
    }
    void set_field(const char *name, std::uint32_t offset) {
        const auto layout = memory::layout();
        const auto which = std::distance(layout.offsets.begin(), layout.offsets.find(name));
        bytes_[0] = static_cast<char>(flags_ | ONE_FIELD_IS);
        bytes_[1] = static_cast<char>(which);
        std::memcpy(&bytes_[2], &offset, sizeof(offset));
    }
    void begin_with(const Roots &roots) { std::memcpy(&bytes_[HEAD_BYTES], &roots, sizeof(roots)); }
    [[nodiscard]] bool write(const std::filesystem::path &path) const {
        std::ofstream file(path, std::ios::binary);
        file.write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
        return file.good();
    }

private:
    unsigned flags_;
    std::vector<char> bytes_;
};

struct Counts {
    std::int32_t n_ranks = 2;
    std::size_t n_comms = 3; // all are one
};

// Rank 0 of two, with a connection each way on its first channel.
Writer process(unsigned flags, std::uint64_t net, const Counts &counts = {}) {
    Writer to(flags);
    std::uint64_t net_comm = 0;
    if (net == NET_IB) {
        IbComm ib{3, 2, {}, {}, 1, {{{0, 5, 2, {10, 0, 0, 2}}, {40, 5, 1, {}}}}};
        for (RecvDevice &device : ib.devices)
            device = {{to.put(Qp{0, 31}), 0}, {{10, 0, 0, 1}, 0}};
        for (int i = 0; i < 3; ++i)
            ib.qps[static_cast<std::size_t>(i)] = {to.put(Qp{0, 17U + static_cast<unsigned>(i)}),
                                                   i % 2};
        net_comm = to.put(ib);
    } else {
        net_comm = to.put(SocketComm{{5}, {{{6}, {7}, {8}}}, 3});
    }
    RecvMem recv_mem{};
    recv_mem.tail = 9;
    recv_mem.fifo[0].size = 16;
    Resources of_connection{net_comm,         0,  1,  0, 0, 0, 0, to.put(SendMem{4}),
                            to.put(recv_mem), {}, {}, {}};
    of_connection.mems[0].cpu = to.put(std::array<std::uint32_t, 64>{});
    of_connection.buffs = {0x20000000, 0x20000000, 0x20000000};
    of_connection.buff_sizes = {256, 256, 256};
    const std::uint64_t resources = to.put(of_connection);
    const std::uint64_t sends = to.put(Connection{1, 2, 0, resources});
    const std::uint64_t receives = to.put(Connection{0, 2, 1, resources});
    Peer peer{};
    peer.send[0] = {1, 1, sends};
    peer.receive[0] = {1, 1, receives};
    const std::uint64_t peers = to.put(std::array<std::uint64_t, 2>{0, to.put(peer)});
    const std::uint64_t order = to.put(std::array<std::int32_t, 2>{0, 1});
    Comm comm{};
    comm.magic = MAGIC;
    comm.hash = 0xabcdef;
    comm.n_ranks = counts.n_ranks;
    comm.n_channels = comm.nvls_channels = 2;
    comm.nvls_chunk_bytes = 131072;
    comm.channels[0] = {peers, order, 1, 1, 0, -1, {1, -1, -1}, 2, 0, -1, {3, 1, -1}};
    comm.channels[1] = {peers, order, 1, 1, 0, 1, {-1, -1, -1}, 2, 0, 1, {3, -1, -1}};
    Args args{};
    args.subs[0] = {sends, 0, 48, 8, 8, 0, 0, 0};
    args.subs[1] = {receives, 0, 48, 8, 8, 8, 8, 0};
    args.n_subs = 2;
    args.state = 2;
    args.next_peer = to.put(args);
    args.protocol = 0;
    comm.proxy_state = to.put(ProxyState{net + BIAS, to.put(args), 0});
    comm.name = to.put(std::array<char, 8>{"tp0"});
    comm.shared = to.put(SharedResources{0, 12});
    comm.seq_number = {1, 2, 3, 4, 5};
    const std::uint64_t at = to.put(comm);
    const std::uint64_t table = to.put(std::uint64_t{0});
    for (std::size_t i = 1; i < counts.n_comms; ++i)
        to.put(at);
    to.begin_with({table, static_cast<std::int32_t>(counts.n_comms)});
    return to;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: nccl_memory_seeds DIRECTORY\n";
        return 2;
    }
    const std::filesystem::path directory = argv[1];
    std::error_code failure;
    std::filesystem::create_directories(directory, failure);
    for (const unsigned flags : {0U, unsigned{REPEATS}, unsigned{WITHOUT_QPS}, unsigned{COUNTS}})
        for (const std::uint64_t net : {NET_IB, NET_SOCKET}) {
            const std::string name = std::to_string(flags) + (net == NET_IB ? "-ib" : "-sockets");
            if (!process(flags, net).write(directory / name))
                return 1;
        }
    // A million peers of 16 KB each.
    Writer absurd = process(REPEATS, NET_IB, {65536, 3});
    absurd.set_field("ncclConnector", 8000);
    return absurd.write(directory / "9-absurd") ? 0 : 1;
}
