// SPDX-License-Identifier: Apache-2.0
// Communicators, connections, channels and operations under way out of memory that may hold
// anything: loops, absurd counts, addresses of nothing. What comes out makes sense, and reading
// ends.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "correlate/inspect/waits.h"
#include "tests/fuzz/nccl_memory.h"
#include "userspace/inspect/proxy_reader.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/memory/channels.h"
#include "userspace/nccl/memory/live_comms.h"
#include "userspace/nccl/memory/nvls.h"
#include "userspace/nccl/memory/queue_pair_paths.h"

namespace collwire::process {
namespace {

namespace memory = nccl::memory;

constexpr std::uint64_t REPEATED_BYTES = 1ULL << 30U;
// What "bounded" of live_comms.h means.
constexpr std::uint64_t MOST_READS = 1'000'000;
constexpr std::uint64_t MOST_BYTES = 256ULL << 20U;
constexpr std::size_t CHANNEL_BYTES = 32U << 20U;
constexpr std::size_t MOST_CONNECTIONS = 70'000;
constexpr std::size_t COMMS_WITH_CHANNELS = 2; // the others are alike
// And of proxy_reader.h.
constexpr std::uint64_t MOST_READS_OF_PROXY = 500'000;
constexpr std::size_t MOST_OPERATIONS = 16384;

struct Image {
    std::span<const std::byte> bytes;
    bool repeats = false;
    std::uint64_t reads = 0, bytes_read = 0;
};
Image image;

void expect(bool holds) {
    if (!holds)
        std::abort();
}

void check(const std::vector<cw_nccl_connection> &connections, std::uint64_t comm) {
    for (const cw_nccl_connection &connection : connections) {
        expect(connection.n <= CW_NCCL_ENDPOINTS);
        expect(connection.first + connection.n <= connection.n_endpoints);
        expect(connection.comm == comm && connection.net_comm != 0);
    }
}

void check(const std::vector<source::QueuePairPath> &paths, const cw_nccl_connection &connection) {
    expect(paths.size() <= connection.n);
    for (const source::QueuePairPath &path : paths) {
        expect(path.tgid == connection.tgid && path.mtu >= 1 && path.mtu <= 5);
        expect(path.is_ethernet == (path.remote_lid == 0));
    }
}

void check(const nccl::LiveComm &live) {
    expect(live.comm.n_ranks > 0 && live.comm.rank >= 0 && live.comm.rank < live.comm.n_ranks);
    expect(std::ranges::find(live.comm.name, '\0') != std::end(live.comm.name));
    check(live.connections, live.comm.comm);
}

void check(const std::vector<std::vector<std::byte>> &channels) {
    expect(channels.size() <= 64);
    for (const std::vector<std::byte> &bytes : channels) {
        cw_nccl_channel record;
        expect(bytes.size() >= sizeof(record));
        std::memcpy(&record, bytes.data(), sizeof(record));
        expect(record.header.length_bytes == bytes.size());
        expect(bytes.size() >= sizeof(record) + std::size_t{record.n_order} * sizeof(std::int32_t));
    }
}

void check(const inspect::Proxy &first, inspect::Proxy second) {
    expect(first.operations.size() <= MOST_OPERATIONS);
    inspect::merge_first_look(first, second);
    inspect::Inspection inspection;
    inspection.processes.emplace_back();
    inspection.processes[0].proxies.push_back(std::move(second));
    inspect::judge(inspection);
    const inspect::Process &process = inspection.processes[0];
    expect(!inspect::sentence_of(inspect::standing_of(process.proxies[0], process)).empty());
}

nccl::LibraryLayout layout_of(std::span<const std::byte> head) {
    nccl::LibraryLayout layout = memory::layout();
    const auto flags = std::to_integer<unsigned>(head[0]);
    layout.version = (flags & memory::COUNTS) != 0 ? "2.28.9" : "2.24.3";
    if ((flags & memory::WITHOUT_QPS) != 0)
        layout.offsets.erase("ncclIbQp");
    if ((flags & memory::ONE_FIELD_IS) != 0) {
        std::uint32_t value = 0;
        std::memcpy(&value, &head[2], sizeof(value));
        const auto which = std::to_integer<std::size_t>(head[1]) % layout.offsets.size();
        std::next(layout.offsets.begin(), static_cast<std::ptrdiff_t>(which))->second.value = value;
    }
    return layout;
}

} // namespace

// In the place of the real one, which reads processes.
bool ProcessView::read(std::uint64_t address, std::span<std::byte> into) const {
    ++image.reads;
    const std::uint64_t most = image.repeats ? REPEATED_BYTES : image.bytes.size();
    if (image.bytes.empty() || address < memory::BASE || address - memory::BASE > most ||
        into.size() > most - (address - memory::BASE))
        return false;
    image.bytes_read += into.size();
    std::size_t at = (address - memory::BASE) % image.bytes.size();
    for (std::size_t done = 0; done < into.size(); at = 0) {
        const std::size_t n = std::min(into.size() - done, image.bytes.size() - at);
        std::memcpy(&into[done], &image.bytes[at], n);
        done += n;
    }
    return true;
}

// One call of the kernel.
std::size_t ProcessView::read_words(std::span<const std::uint64_t> addresses,
                                    std::span<std::uint64_t> into) const {
    const std::uint64_t reads = image.reads + 1;
    std::size_t n = 0;
    while (n < addresses.size() && read(addresses[n], std::as_writable_bytes(into.subspan(n, 1))))
        ++n;
    image.reads = reads;
    return n;
}

} // namespace collwire::process

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace collwire;
    using namespace collwire::process;
    const auto input = std::as_bytes(std::span(data, size));
    if (input.size() < memory::HEAD_BYTES)
        return 0;
    const nccl::LibraryLayout layout = layout_of(input.first(memory::HEAD_BYTES));
    const auto bpf_layout = nccl::bpf_layout_of(layout, 1);
    if (!bpf_layout)
        return 0;
    image = {input.subspan(memory::HEAD_BYTES),
             (std::to_integer<unsigned>(input[0]) & memory::REPEATS) != 0};
    const process::ProcessView process{1};
    const auto comms = nccl::read_comms(process, layout, *bpf_layout, memory::BIAS).comms;
    expect(image.reads <= MOST_READS && image.bytes_read <= MOST_BYTES);
    std::size_t connections = 0;
    for (const nccl::LiveComm &live : comms) {
        check(live);
        connections += live.connections.size();
        for (const cw_nccl_connection &connection : live.connections)
            check(nccl::read_queue_pair_paths(process, layout, connection), connection);
    }
    expect(connections <= MOST_CONNECTIONS);
    for (std::size_t i = 0; i < std::min(comms.size(), COMMS_WITH_CHANNELS); ++i) {
        inspect::ProxyReader reader{process, layout, *bpf_layout, memory::BIAS};
        const std::uint64_t before = image.reads;
        const inspect::Proxy first = reader.read(comms[i].comm.proxy_state, false);
        inspect::Proxy second = reader.read(comms[i].comm.proxy_state, true);
        expect(image.reads - before <= MOST_READS_OF_PROXY);
        check(first, std::move(second));
    }
    for (std::size_t i = 0; i < std::min(comms.size(), COMMS_WITH_CHANNELS); ++i)
        check(nccl::read_channels(process, layout, comms[i].comm, CHANNEL_BYTES));
    for (std::size_t i = 0; i < std::min(comms.size(), COMMS_WITH_CHANNELS); ++i)
        if (const auto nvls = nccl::read_nvls(process, layout, comms[i].comm))
            expect(nvls->n_heads > nvls->head_rank && nvls->n_channels > 0);
    std::uint16_t at = 0;
    std::memcpy(&at, &input[memory::CONNECTION_BYTE], sizeof(at));
    check(nccl::read_connection(process, layout, *bpf_layout, memory::BIAS, memory::BASE + 16,
                                memory::BASE + at),
          0);
    return 0;
}
