// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include "probes.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace collwire::cupti {
namespace {

// FNV-1a.
uint32_t hash_of(const char *text) {
    uint32_t hash = 2166136261U;
    for (; *text; ++text)
        hash = (hash ^ static_cast<unsigned char>(*text)) * 16777619U;
    return hash;
}

bool begins_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

// Of a grid, a block or a cluster. A size that does not fit is the largest.
template <class T> T product_of(const auto(&sizes)[3]) {
    constexpr uint64_t MOST = std::numeric_limits<T>::max();
    uint64_t product = 1;
    for (const auto size : sizes)
        product = std::min(product * static_cast<uint32_t>(size), MOST);
    return static_cast<T>(product);
}

bool is_same(const char *kept, const char *text) {
    return strncmp(kept, text, CW_GPU_NAME_BYTES - 1) == 0;
}

cw_gpu_name_item name_item(size_t number, const char *text, bool is_truncated) {
    cw_gpu_name_item item = {};
    item.name = static_cast<uint16_t>(number);
    item.is_truncated = is_truncated;
    memcpy(item.text, text, CW_GPU_NAME_BYTES);
    return item;
}

} // namespace

const char *nccl_kernel_name(const char *mangled) {
    if (mangled[0] == '_' && mangled[1] == 'Z') {
        mangled += 2;
        while (*mangled >= '0' && *mangled <= '9')
            ++mangled;
    }
    return begins_with(mangled, "nccl") ? mangled : nullptr;
}

bool is_known_nccl_kernel(const char *name) {
    return begins_with(name, "ncclDevKernel") || begins_with(name, "ncclSymDevKernel") ||
           begins_with(name, "ncclSymkDevKernel") || begins_with(name, "ncclKernel_");
}

void Kernels::begin() {
    for (Name &name : names_)
        name.state.store(FREE, std::memory_order_release);
}

void Kernels::hand_over_names() const {
    cw_gpu_name_item items[CW_GPU_BATCH_ITEMS];
    uint32_t count = 0;
    for (size_t number = 0; number < NAMES; ++number) {
        const Name &name = names_[number];
        if (name.state.load(std::memory_order_acquire) == READY)
            items[count++] = name_item(number, name.text, name.is_truncated);
        if (count == CW_GPU_BATCH_ITEMS || (count != 0 && number + 1 == NAMES)) {
            hand_over(CW_GPU_ITEM_NAME, items, count);
            count = 0;
        }
    }
}

uint16_t Kernels::number_of(const char *text) {
    const uint32_t hash = hash_of(text);
    for (size_t step = 0; step < NAMES; ++step) {
        const auto number = static_cast<uint16_t>((hash + step) % NAMES);
        Name &name = names_[number];
        uint32_t state = name.state.load(std::memory_order_acquire);
        if (state == FREE &&
            name.state.compare_exchange_strong(state, TAKEN, std::memory_order_acq_rel)) {
            strncpy(name.text, text, CW_GPU_NAME_BYTES - 1);
            name.text[CW_GPU_NAME_BYTES - 1] = 0;
            name.is_truncated = strlen(text) >= CW_GPU_NAME_BYTES;
            const cw_gpu_name_item item = name_item(number, name.text, name.is_truncated);
            hand_over(CW_GPU_ITEM_NAME, &item, 1);
            name.state.store(READY, std::memory_order_release);
            return number;
        }
        if (state == READY && is_same(name.text, text))
            return number;
    }
    unnamed_.fetch_add(1, std::memory_order_relaxed);
    return CW_GPU_NO_NAME;
}

void Kernels::add(const KernelRecord &record, cw_gpu_kernel_item *items, uint32_t &count) {
    // Launched before the trace began: CUPTI delivers such kernels without times.
    if (record.start == 0) {
        before_armed_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    // A forced flush delivers kernels that have not begun, all with one equal time that is no time
    // of theirs (measured with CUPTI 13.0: 110 ms ahead).
    const bool is_queued = record.end == record.start;
    const uint64_t start_ns = is_queued ? 0 : clock_.to_monotonic(record.start),
                   end_ns = is_queued || record.end == 0 ? 0 : clock_.to_monotonic(record.end);
    const char *name = record.name ? nccl_kernel_name(record.name) : nullptr;
    windows_.add(record.device, start_ns, end_ns, name != nullptr);
    if (!name) {
        others_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    if (!is_known_nccl_kernel(name))
        unknown_.fetch_add(1, std::memory_order_relaxed);
    kernels_.fetch_add(1, std::memory_order_relaxed);
    cw_gpu_kernel_item &item = items[count++];
    item = {};
    item.start_ns = start_ns;
    item.end_ns = end_ns;
    item.graph_node = record.graph_node;
    item.correlation = record.correlation;
    item.graph = record.graph;
    item.context = record.context;
    item.stream = record.stream;
    item.blocks = product_of<uint32_t>(record.grid);
    item.threads = product_of<uint16_t>(record.block);
    item.cluster = product_of<uint16_t>(record.cluster);
    item.device = static_cast<uint16_t>(record.device);
    item.name = number_of(record.name);
    item.flags = static_cast<uint16_t>(
        (record.end == 0 ? CW_GPU_KERNEL_RUNNING : 0) | (is_queued ? CW_GPU_KERNEL_QUEUED : 0) |
        (record.end != 0 && record.end < record.start ? CW_GPU_KERNEL_ODD_TIME : 0));
}

void Kernels::read(const Functions &functions, uint8_t *buffer, size_t valid_bytes) {
    cw_gpu_kernel_item items[CW_GPU_BATCH_ITEMS];
    uint32_t count = 0;
    void *next = nullptr;
    Result result = SUCCESS;
    while ((result = functions.get_next_record(buffer, valid_bytes, &next)) == SUCCESS && next) {
        const auto &record = *static_cast<const KernelRecord *>(next);
        if (record.kind != static_cast<uint32_t>(CONCURRENT_KERNEL))
            continue;
        add(record, items, count);
        if (count == CW_GPU_BATCH_ITEMS) {
            hand_over(CW_GPU_ITEM_KERNEL, items, count);
            count = 0;
        }
    }
    if (count != 0)
        hand_over(CW_GPU_ITEM_KERNEL, items, count);
    if (result != SUCCESS && result != MAX_LIMIT_REACHED)
        error_.store(result, std::memory_order_relaxed);
}

void Kernels::add_counts(cw_gpu_state_item &state) const {
    state.kernels = kernels_.load(std::memory_order_relaxed);
    state.unknown_names = unknown_.load(std::memory_order_relaxed);
    state.unnamed = unnamed_.load(std::memory_order_relaxed);
    state.other_kernels = others_.load(std::memory_order_relaxed);
    state.before_armed = before_armed_.load(std::memory_order_relaxed);
}

} // namespace collwire::cupti
