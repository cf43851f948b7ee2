// SPDX-License-Identifier: Apache-2.0
// CUPTI's records of kernels that may hold anything: what the guest library hands over keeps its
// form, every record is counted once, and reading ends.
#include "cupti/kernels.h"
#include "cupti/probes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

volatile unsigned short collwire_gpu_arm_semaphore = 0;

namespace collwire::cupti {

// injection.cpp's, which no part here calls.
void on_request(uint8_t **, size_t *, size_t *) {}
void on_completed(void *, uint32_t, uint8_t *, size_t, size_t) {}
void on_exit_of_process() {}

namespace {

struct HandedOver {
    uint64_t kernels = 0, no_names = 0;
    std::vector<bool> names = std::vector<bool>(CW_GPU_NO_NAME); // by number
};
HandedOver handed_over;

void expect(bool holds) {
    if (!holds)
        std::abort();
}

template <class Item> const Item &item_of(const cw_gpu_batch &batch, uint32_t i) {
    expect(batch.item_bytes == sizeof(Item));
    // An address, as the recorder gets it. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<const Item *>(batch.items)[i];
}

void take(const cw_gpu_batch &batch) {
    expect(batch.magic == CW_GPU_BATCH_MAGIC && batch.version == CW_GPU_BATCH_VERSION);
    expect(batch.count >= 1 && batch.count <= CW_GPU_BATCH_ITEMS);
    for (uint32_t i = 0; i < batch.count; ++i) {
        if (batch.item == CW_GPU_ITEM_NAME) {
            const auto &name = item_of<cw_gpu_name_item>(batch, i);
            expect(std::memchr(name.text, 0, sizeof name.text) != nullptr);
            expect(name.name != CW_GPU_NO_NAME && !handed_over.names[name.name]);
            handed_over.names[name.name] = true;
        } else if (batch.item == CW_GPU_ITEM_KERNEL) {
            const auto &kernel = item_of<cw_gpu_kernel_item>(batch, i);
            ++handed_over.kernels;
            if (kernel.name == CW_GPU_NO_NAME)
                ++handed_over.no_names;
            else
                expect(handed_over.names[kernel.name]);
            if ((kernel.flags & CW_GPU_KERNEL_RUNNING) != 0)
                expect(kernel.end_ns == 0);
        } else {
            const auto &window = item_of<cw_gpu_window_item>(batch, i);
            expect(batch.item == CW_GPU_ITEM_WINDOW && window.window_ns == Windows::WINDOW_NS);
            expect(window.busy_ns <= window.window_ns && window.nccl_ns <= window.window_ns);
            expect(window.overlap_ns <= std::min(window.busy_ns, window.nccl_ns));
            expect(window.device < Windows::DEVICES && window.start_ns % window.window_ns == 0);
        }
    }
}

Result get_timestamp(uint64_t *time) {
    *time = monotonic_ns();
    return SUCCESS;
}

Result next_record(uint8_t *buffer, size_t valid_bytes, void **record) {
    const size_t at = *record ? static_cast<size_t>(static_cast<uint8_t *>(*record) - buffer) +
                                    sizeof(KernelRecord)
                              : 0;
    if (at + sizeof(KernelRecord) > valid_bytes)
        return INVALID_OPERATION;
    *record = buffer + at;
    return SUCCESS;
}

// A record of the input: its fields as they come, except for the name, which is a string, and for
// most of the times.
KernelRecord record_of(const uint8_t *data, size_t bytes, std::string &name) {
    KernelRecord record = {};
    std::memcpy(static_cast<void *>(&record), data, std::min(bytes, sizeof record));
    const auto choice = static_cast<uint8_t>(record.kind >> 24);
    if (choice % 8 != 0)
        record.kind = CONCURRENT_KERNEL;
    if (choice % 4 != 1) {
        record.start = monotonic_ns() - 500'000'000 + record.start % 3'000'000'000;
        record.end = record.start + record.end % 3'000'000'000;
    }
    if (choice % 4 != 2)
        record.device %= 18;
    const auto *field = reinterpret_cast<const char *>(data) + offsetof(KernelRecord, name);
    const size_t here =
        bytes > offsetof(KernelRecord, name) ? bytes - offsetof(KernelRecord, name) : 0;
    record.name = nullptr;
    if (here != 0 && *field != 0) {
        name = (choice & 64) != 0 ? "ncclDevKernel_" : (choice & 32) != 0 ? "_Z9nccl" : "";
        name.append(field, strnlen(field, std::min<size_t>(here, 8)));
        if ((choice & 16) != 0)
            name.append(CW_GPU_NAME_BYTES - name.size() % 3, 'x');
        record.name = name.c_str();
    }
    return record;
}

} // namespace
} // namespace collwire::cupti

void collwire_gpu_batch(const cw_gpu_batch *batch) {
    collwire::cupti::take(*batch);
}

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace collwire::cupti;
    // 10 MiB, mapped once, and a pair that takes a millisecond.
    static Windows windows;
    static Clock clock;
    static bool is_read = false;
    Functions functions = {};
    functions.get_timestamp = get_timestamp;
    functions.get_next_record = next_record;
    Kernels kernels(clock, windows);
    handed_over = {};
    is_read = is_read || clock.read_pair(functions);
    expect(is_read && windows.take());
    kernels.begin();

    std::vector<KernelRecord> records;
    std::vector<std::string> names(size / sizeof(KernelRecord) + 1);
    uint64_t of_kind = 0;
    for (size_t at = 0; at < size; at += sizeof(KernelRecord)) {
        records.push_back(record_of(data + at, size - at, names[records.size()]));
        of_kind += records.back().kind == static_cast<uint32_t>(CONCURRENT_KERNEL) ? 1 : 0;
    }
    kernels.read(functions, reinterpret_cast<uint8_t *>(records.data()),
                 records.size() * sizeof(KernelRecord));
    windows.hand_over_until(monotonic_ns() + 10'000'000'000);

    cw_gpu_state_item counts = {};
    kernels.add_counts(counts);
    expect(counts.kernels == handed_over.kernels && counts.unnamed == handed_over.no_names);
    expect(counts.kernels + counts.other_kernels + counts.before_armed == of_kind);
    expect(counts.unknown_names <= counts.kernels);
    return 0;
}
