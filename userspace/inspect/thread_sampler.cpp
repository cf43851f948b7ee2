// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/thread_sampler.h"

#include <algorithm>
#include <cstring>

#include <asm/perf_regs.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace collwire::inspect {
namespace {

constexpr std::uint64_t PERIOD_NS = 200'000;
constexpr int SAMPLES = 3;
constexpr std::size_t PAGE_BYTES = 4096;
constexpr std::uint32_t STACK_BYTES = 16384;
constexpr std::size_t DATA_BYTES = 16 * PAGE_BYTES; // a power of 2
constexpr std::size_t RING_BYTES = PAGE_BYTES + DATA_BYTES;

// perf_event_open(2), in this order: ABI of the registers, these by their numbers, the stack's
// bytes, and how many of these there were.
struct SampleHead {
    perf_event_header header;
    std::uint64_t abi, bp, sp, ip, stack_bytes;
};
static_assert(PERF_REG_X86_BP < PERF_REG_X86_SP && PERF_REG_X86_SP < PERF_REG_X86_IP);

int open_event(std::uint32_t tid, bool user_alone) {
    perf_event_attr attr{};
    attr.size = sizeof(attr);
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_CPU_CLOCK;
    attr.sample_period = PERIOD_NS;
    attr.disabled = 1;
    attr.sample_type = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    attr.sample_stack_user = STACK_BYTES;
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
    int fd = open_event(tid, false);
    if (fd < 0)
        fd = open_event(tid, true);
    if (fd < 0)
        return false;
    void *ring = mmap(nullptr, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED || ioctl(fd, PERF_EVENT_IOC_REFRESH, SAMPLES) != 0) {
        if (ring != MAP_FAILED)
            munmap(ring, RING_BYTES);
        close(fd);
        return false;
    }
    events_.emplace(tid, Event{fd, ring});
    return true;
}

std::vector<ThreadSampler::Sample> ThreadSampler::samples(std::uint32_t tid) const {
    const auto event = events_.find(tid);
    if (event == events_.end())
        return {};
    const auto *page = static_cast<const perf_event_mmap_page *>(event->second.ring);
    const auto *data = static_cast<const std::byte *>(event->second.ring) + PAGE_BYTES;
    const std::uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
    std::vector<Sample> found;
    // Nothing makes room for the kernel: it stops at a full ring and overwrites nothing.
    for (std::uint64_t at = 0;
         at + sizeof(perf_event_header) <= std::min<std::uint64_t>(head, DATA_BYTES);) {
        perf_event_header header;
        std::memcpy(&header, data + at, sizeof(header));
        if (header.size < sizeof(header) || at + header.size > DATA_BYTES)
            break;
        SampleHead sample{};
        std::uint64_t n = 0;
        if (header.type == PERF_RECORD_SAMPLE && header.size >= sizeof(sample) + sizeof(n))
            std::memcpy(&sample, data + at, sizeof(sample));
        if (sample.abi == PERF_SAMPLE_REGS_ABI_64 &&
            sample.stack_bytes <= header.size - sizeof(sample) - sizeof(n)) {
            std::memcpy(&n, data + at + sizeof(sample) + sample.stack_bytes, sizeof(n));
            Sample one{{sample.ip, sample.sp, sample.bp}, {}};
            one.words.resize(std::min(n, sample.stack_bytes) / sizeof(std::uint64_t));
            std::memcpy(one.words.data(), data + at + sizeof(sample),
                        one.words.size() * sizeof(std::uint64_t));
            found.push_back(std::move(one));
        }
        at += header.size;
    }
    std::ranges::reverse(found);
    return found;
}

} // namespace collwire::inspect
