// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/thread_sampler.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <asm/perf_regs.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace collwire::inspect {
namespace {

constexpr std::size_t PAGE_BYTES = 4096;
constexpr std::size_t DATA_BYTES = 2 * PAGE_BYTES; // a power of 2
constexpr std::size_t RING_BYTES = PAGE_BYTES + DATA_BYTES;

// perf_event_open(2), in this order: ABI of the registers, then these by their numbers.
struct Sample {
    perf_event_header header;
    std::uint64_t abi, bp, sp, ip;
};
static_assert(PERF_REG_X86_BP < PERF_REG_X86_SP && PERF_REG_X86_SP < PERF_REG_X86_IP);

int open_event(std::uint32_t tid, std::uint64_t period_ns, bool user_alone) {
    perf_event_attr attr{};
    attr.size = sizeof(attr);
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_CPU_CLOCK;
    attr.sample_period = period_ns;
    attr.sample_type = PERF_SAMPLE_REGS_USER;
    attr.sample_regs_user =
        (1ULL << PERF_REG_X86_BP) | (1ULL << PERF_REG_X86_SP) | (1ULL << PERF_REG_X86_IP);
    attr.exclude_kernel = user_alone ? 1 : 0;
    attr.exclude_hv = 1;
    return static_cast<int>(syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

} // namespace

ThreadSampler::~ThreadSampler() {
    for (const auto &[tid, event] : events_) {
        munmap(event.ring, RING_BYTES);
        close(event.fd);
    }
}

bool ThreadSampler::add(std::uint32_t tid) {
    if (events_.contains(tid))
        return true;
    // Threads that spin are mostly in system calls, which an unprivileged user may not sample.
    int fd = open_event(tid, period_ns_, false);
    if (fd < 0)
        fd = open_event(tid, period_ns_, true);
    if (fd < 0)
        return false;
    void *ring = mmap(nullptr, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) {
        close(fd);
        return false;
    }
    events_.emplace(tid, Event{fd, ring});
    return true;
}

std::vector<StackTop> ThreadSampler::tops(std::uint32_t tid) const {
    const auto event = events_.find(tid);
    if (event == events_.end())
        return {};
    const auto *page = static_cast<const perf_event_mmap_page *>(event->second.ring);
    const auto *data = static_cast<const std::byte *>(event->second.ring) + PAGE_BYTES;
    const std::uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
    const auto copy = [data](std::uint64_t at, std::byte *into, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
            into[i] = data[(at + i) % DATA_BYTES];
    };
    std::vector<StackTop> found;
    // Nothing reads on behalf of the kernel: it stops at a full ring and overwrites nothing.
    for (std::uint64_t at = 0; at + sizeof(perf_event_header) <= head;) {
        std::array<std::byte, sizeof(Sample)> bytes{};
        perf_event_header header;
        copy(at, bytes.data(), sizeof(header));
        std::memcpy(&header, bytes.data(), sizeof(header));
        if (header.size < sizeof(header) || at + header.size > head)
            break;
        if (header.type == PERF_RECORD_SAMPLE && header.size == sizeof(Sample)) {
            copy(at, bytes.data(), sizeof(Sample));
            Sample sample;
            std::memcpy(&sample, bytes.data(), sizeof(sample));
            if (sample.abi == PERF_SAMPLE_REGS_ABI_64)
                found.push_back({sample.ip, sample.sp, sample.bp});
        }
        at += header.size;
    }
    std::vector<StackTop> distinct;
    for (std::size_t i = found.size(); i > 0; --i)
        if (std::ranges::none_of(distinct, [&](const StackTop &one) {
                return one.pc == found[i - 1].pc && one.sp == found[i - 1].sp;
            }))
            distinct.push_back(found[i - 1]);
    return distinct;
}

} // namespace collwire::inspect
