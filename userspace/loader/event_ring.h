// SPDX-License-Identifier: Apache-2.0
// Reads the ring buffers of all BPF programs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "collwire/record.h"
#include "userspace/loader/shared_maps.h"

struct ring_buffer;

namespace collwire::loader {

class EventRing {
public:
    // Called with each whole record: length_bytes covers its bytes in the ring. Valid until it
    // returns.
    using Callback = std::function<void(const cw_header &)>;

    static Result<std::unique_ptr<EventRing>> create(const SharedMaps &maps, Callback callback);
    EventRing(const EventRing &) = delete;
    EventRing &operator=(const EventRing &) = delete;
    ~EventRing();

    // Readable when there are records.
    [[nodiscard]] int fd() const;
    // Passes on the records that are there now; returns their number.
    Result<std::size_t> consume();
    // The same, but stops after that many records or that time; returns whether there may be more.
    // A ring that fills as fast as it is read must not block the caller.
    Result<bool> consume_some(std::size_t most_records, std::chrono::nanoseconds longest);
    // Waits up to `timeout` for the first record.
    Result<std::size_t> poll(std::chrono::milliseconds timeout);

    // From now on a thread moves records into memory while the caller is held up.
    void keep_empty();

    // How often nobody read the ring buffers for longer than STANDSTILL_NS: the process was stopped
    // or had no CPU. The longest of them, and when the last one ended.
    struct Standstills {
        std::uint64_t n = 0;
        std::uint64_t longest_ns = 0;
        std::uint64_t last_ns = 0; // how long the last one was
    };
    static constexpr std::uint64_t STANDSTILL_NS = 3'000'000'000;
    [[nodiscard]] Standstills standstills() const;

private:
    explicit EventRing(Callback callback) : callback_(std::move(callback)) {}
    static int on_sample(void *self, void *data, std::size_t size_bytes);
    // With the mutex held. At most that many records (0: no limit); returns whether there may be
    // more.
    Result<bool> collect(std::size_t most_records);
    void note_reading();
    void watch();
    // Records to pass on, moved out of what was collected.
    bool next_batch();

    Callback callback_;
    ring_buffer *ring_ = nullptr;
    // A record each, padded to 8 bytes.
    std::vector<std::byte> batch_;
    std::size_t batch_at_ = 0;

    mutable std::mutex mutex_; // of all below
    std::vector<std::byte> collected_;
    std::size_t records_left_ = 0; // of collect; 0: no limit
    std::uint64_t read_ns_ = 0;
    Standstills standstills_;
    bool is_over_ = false;
    std::condition_variable over_;
    std::thread watcher_;
};

} // namespace collwire::loader
