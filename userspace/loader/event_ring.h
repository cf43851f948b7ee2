// SPDX-License-Identifier: Apache-2.0
// Reads the ring buffer of all BPF programs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

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

private:
    explicit EventRing(Callback callback) : callback_(std::move(callback)) {}
    static int on_sample(void *self, void *data, std::size_t size_bytes);
    Callback callback_;
    ring_buffer *ring_ = nullptr;
    std::size_t records_left_ = 0; // of consume_some; 0: no limit
    std::uint64_t stop_at_ns_ = 0;
};

} // namespace collwire::loader
