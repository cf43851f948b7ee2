// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/event_ring.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <bpf/libbpf.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "userspace/loader/libbpf_log.h"

namespace collwire::loader {
namespace {

constexpr int STOPPED = -ECANCELED; // libbpf itself gives other errors
constexpr std::size_t MAX_COLLECTED_BYTES = 256U << 20U;
constexpr std::chrono::milliseconds LOOK_EVERY{100};
// The caller reads itself at least that often, unless something holds it up.
constexpr std::uint64_t HELD_UP_NS = 300'000'000;
constexpr std::size_t ALIGNMENT = 8;

std::size_t padded(std::size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

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

void EventRing::keep_empty() {
    if (!watcher_.joinable())
        watcher_ = std::thread([this] { watch(); });
}

EventRing::~EventRing() {
    if (watcher_.joinable()) {
        {
            const std::scoped_lock lock(mutex_);
            is_over_ = true;
        }
        over_.notify_all();
        watcher_.join();
    }
    ring_buffer__free(ring_);
}

int EventRing::on_sample(void *self, void *data, std::size_t size_bytes) {
    EventRing &ring = *static_cast<EventRing *>(self);
    const auto &header = *static_cast<const cw_header *>(data);
    // Only our own programs write here; a short record would be a bug of theirs and is skipped.
    if (size_bytes >= sizeof(cw_header) && header.length_bytes >= sizeof(cw_header) &&
        header.length_bytes <= size_bytes) {
        const auto *bytes = static_cast<const std::byte *>(data);
        ring.collected_.insert(ring.collected_.end(), bytes, bytes + header.length_bytes);
        ring.collected_.resize(padded(ring.collected_.size()));
    }
    if (ring.records_left_ == 0)
        return 0;
    // libbpf counts this record as consumed then.
    return --ring.records_left_ == 0 ? STOPPED : 0;
}

int EventRing::fd() const {
    return ring_buffer__epoll_fd(ring_);
}

void EventRing::note_reading() {
    const std::uint64_t now_ns = monotonic_ns();
    const std::uint64_t gap_ns = read_ns_ == 0 ? 0 : now_ns - read_ns_;
    read_ns_ = now_ns;
    if (gap_ns <= STANDSTILL_NS)
        return;
    ++standstills_.n;
    standstills_.last_ns = gap_ns;
    standstills_.longest_ns = std::max(standstills_.longest_ns, gap_ns);
}

EventRing::Standstills EventRing::standstills() const {
    const std::scoped_lock lock(mutex_);
    return standstills_;
}

void EventRing::watch() {
    std::unique_lock lock(mutex_);
    while (!over_.wait_for(lock, LOOK_EVERY, [this] { return is_over_; })) {
        if (read_ns_ != 0 && monotonic_ns() - read_ns_ < HELD_UP_NS)
            continue;
        // What is beyond stays in the ring buffers, where programs count what they drop.
        if (collected_.size() < MAX_COLLECTED_BYTES)
            static_cast<void>(collect(0)); // the caller gets the error, too
        else
            note_reading();
    }
}

Result<bool> EventRing::collect(std::size_t most_records) {
    note_reading();
    records_left_ = most_records;
    int n = 0;
    do {
        // The kernel wakes the reader only if it sees that all earlier records were read; without a
        // fence it may not see that yet while libbpf does not see the new record yet.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        n = ring_buffer__consume(ring_);
    } while (n > 0 && (most_records != 0 || collected_.size() < MAX_COLLECTED_BYTES));
    records_left_ = 0;
    if (n == STOPPED || n > 0)
        return true;
    if (n < 0)
        return bpf_error("ring buffer", n, {});
    return false;
}

bool EventRing::next_batch() {
    if (batch_at_ < batch_.size())
        return true;
    batch_.clear();
    batch_at_ = 0;
    batch_.swap(collected_);
    return !batch_.empty();
}

Result<std::size_t> EventRing::consume() {
    std::size_t n = 0;
    bool more = true;
    while (more) {
        {
            const std::scoped_lock lock(mutex_);
            const auto collected = collect(0);
            if (!collected)
                return collected.failure();
            more = *collected;
            if (!next_batch())
                return n;
        }
        while (batch_at_ < batch_.size()) {
            const auto &header = *reinterpret_cast<const cw_header *>(&batch_[batch_at_]);
            batch_at_ += padded(header.length_bytes);
            ++n;
            callback_(header);
        }
        more = true; // until nothing comes
    }
    return n;
}

Result<bool> EventRing::consume_some(std::size_t most_records, std::chrono::nanoseconds longest) {
    const std::uint64_t stop_at_ns = monotonic_ns() + static_cast<std::uint64_t>(longest.count());
    for (std::size_t n = 0;;) {
        bool more = true;
        {
            const std::scoped_lock lock(mutex_);
            // While earlier records wait, new ones stay in the ring buffer.
            if (batch_at_ >= batch_.size() && collected_.empty()) {
                const auto collected = collect(most_records - n);
                if (!collected)
                    return collected.failure();
                more = *collected;
            } else {
                note_reading();
            }
            if (!next_batch())
                return more;
        }
        while (batch_at_ < batch_.size()) {
            const auto &header = *reinterpret_cast<const cw_header *>(&batch_[batch_at_]);
            batch_at_ += padded(header.length_bytes);
            callback_(header);
            if (++n == most_records || monotonic_ns() >= stop_at_ns)
                return more || batch_at_ < batch_.size();
        }
        if (!more)
            return false;
    }
}

Result<std::size_t> EventRing::poll(std::chrono::milliseconds timeout) {
    auto there = consume();
    if (!there || *there != 0)
        return there;
    epoll_event event{};
    if (epoll_wait(fd(), &event, 1, static_cast<int>(timeout.count())) < 0 && errno != EINTR)
        return bpf_error("ring buffer", -errno, {});
    return consume();
}

} // namespace collwire::loader
