// SPDX-License-Identifier: Apache-2.0
// Queue pairs and names of network plugins out of memory that may hold anything: what comes out
// makes sense, and reading ends.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "userspace/nccl/memory/plugin_memory.h"

namespace collwire::process {
namespace {

// The input is the memory from here on, again and again.
constexpr std::uint64_t BASE = 0x10000;
constexpr std::uint64_t MEMORY_BYTES = 1U << 24U;
// Of the first and 1,024 others: their heads, their sizes, and up to two pages more than 2 MiB
// have.
constexpr std::uint64_t MOST_READS = 1025 * (1 + 1 + 2) + 512;
constexpr std::uint64_t MOST_BYTES = (2U << 20U) + 1025 * (64 + 8);
constexpr std::size_t MOST_NAME_BYTES = 31;

struct Memory {
    std::span<const std::byte> bytes;
    std::uint64_t reads = 0, bytes_read = 0;
};
Memory memory;

void expect(bool holds) {
    if (!holds)
        std::abort();
}

} // namespace

// In the place of the real ones, which read processes.
bool ProcessView::read(std::uint64_t address, std::span<std::byte> into) const {
    ++memory.reads;
    if (address < BASE || address - BASE > MEMORY_BYTES ||
        into.size() > MEMORY_BYTES - (address - BASE))
        return false;
    memory.bytes_read += into.size();
    std::size_t at = static_cast<std::size_t>(address - BASE) % memory.bytes.size();
    while (!into.empty()) {
        const std::size_t n = std::min(into.size(), memory.bytes.size() - at);
        std::memcpy(into.data(), memory.bytes.data() + at, n);
        into = into.subspan(n);
        at = 0;
    }
    return true;
}

Result<void> ProcessView::refresh() {
    Mapping data;
    data.begin = BASE;
    data.end = BASE + MEMORY_BYTES;
    data.writable = true;
    Mapping code;
    code.begin = data.end;
    code.end = data.end + 4096;
    code.executable = true;
    code.path = "/lib/libplugin.so";
    mappings_ = {data, code};
    return {};
}

const Mapping *ProcessView::mapping_of(std::uint64_t address) const {
    const auto found = std::ranges::find_if(mappings_, [address](const Mapping &mapping) {
        return address >= mapping.begin && address < mapping.end;
    });
    return found == mappings_.end() ? nullptr : &*found;
}

} // namespace collwire::process

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace collwire;
    using namespace collwire::process;
    if (size < 2 * sizeof(std::uint64_t))
        return 0;
    memory = {std::as_bytes(std::span(data, size))};
    ProcessView process{1};
    if (!process.refresh())
        return 0;
    std::uint64_t address = 0;
    std::memcpy(&address, data, sizeof(address));
    const std::unordered_set<std::uint32_t> numbers{0, 1, 0x11, 0x1234, 0xffffff};
    for (const std::uint64_t from : {BASE, BASE + address % MEMORY_BYTES, address}) {
        memory.reads = memory.bytes_read = 0;
        const auto found = nccl::find_plugin_qps(process, from, numbers);
        expect(memory.reads <= MOST_READS && memory.bytes_read <= MOST_BYTES);
        expect(found.size() <= nccl::MAX_PLUGIN_QPS);
        for (const nccl::PluginQp &qp : found)
            expect(numbers.contains(qp.number) && qp.depth >= 1 && qp.depth <= 3);
        if (const auto network = nccl::read_plugin_network(process, from))
            expect(network->name.size() <= MOST_NAME_BYTES);
    }
    return 0;
}
