// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/event_ring.h"

#include <atomic>
#include <cerrno>

#include <bpf/libbpf.h>

#include "base/clock.h"
#include "userspace/loader/libbpf_log.h"

namespace collwire::loader {
namespace {

constexpr int STOPPED = -ECANCELED; // libbpf itself gives other errors

} // namespace

Result<std::unique_ptr<EventRing>> EventRing::create(const SharedMaps &maps, Callback callback) {
    const LibbpfLog log;
    std::unique_ptr<EventRing> self(new EventRing(std::move(callback)));
    self->ring_ = ring_buffer__new(maps.events_fd(), on_sample, self.get(), nullptr);
    if (self->ring_ == nullptr)
        return bpf_error("ring buffer", errno, log.text());
    if (const int failed =
            ring_buffer__add(self->ring_, maps.bulk_events_fd(), on_sample, self.get());
        failed != 0)
        return bpf_error("ring buffer", failed, log.text());
    return self;
}

EventRing::~EventRing() {
    ring_buffer__free(ring_);
}

int EventRing::on_sample(void *self, void *data, std::size_t size_bytes) {
    EventRing &ring = *static_cast<EventRing *>(self);
    const auto &header = *static_cast<const cw_header *>(data);
    // Only our own programs write here; a short record would be a bug of theirs and is skipped.
    if (size_bytes >= sizeof(cw_header) && header.length_bytes <= size_bytes)
        ring.callback_(header);
    if (ring.records_left_ == 0)
        return 0;
    // libbpf counts this record as consumed then.
    return --ring.records_left_ == 0 || monotonic_ns() >= ring.stop_at_ns_ ? STOPPED : 0;
}

int EventRing::fd() const {
    return ring_buffer__epoll_fd(ring_);
}

Result<std::size_t> EventRing::consume() {
    const int n = ring_buffer__consume(ring_);
    if (n < 0)
        return bpf_error("ring buffer", n, {});
    return static_cast<std::size_t>(n);
}

Result<bool> EventRing::consume_some(std::size_t most_records, std::chrono::nanoseconds longest) {
    records_left_ = most_records;
    stop_at_ns_ = monotonic_ns() + static_cast<std::uint64_t>(longest.count());
    int n = 0;
    do {
        // The kernel wakes the reader only if it sees that all earlier records were read; without a
        // fence it may not see that yet while libbpf does not see the new record yet.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        n = ring_buffer__consume(ring_);
    } while (n > 0);
    records_left_ = 0;
    if (n == STOPPED)
        return true;
    if (n < 0)
        return bpf_error("ring buffer", n, {});
    return false;
}

Result<std::size_t> EventRing::poll(std::chrono::milliseconds timeout) {
    const int n = ring_buffer__poll(ring_, static_cast<int>(timeout.count()));
    if (n == -EINTR)
        return std::size_t{0};
    if (n < 0)
        return bpf_error("ring buffer", n, {});
    return static_cast<std::size_t>(n);
}

} // namespace collwire::loader
