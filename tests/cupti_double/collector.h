// SPDX-License-Identifier: Apache-2.0
// CUPTI's activity interface: kinds, the client's buffers, and the worker thread that returns them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cupti_double/abi.h"
#include "tests/cupti_double/event_log.h"
#include "tests/cupti_double/feed.h"
#include "tests/cupti_double/settings.h"
#include "tests/cupti_double/time_source.h"
#include "tests/cupti_double/watched_mutex.h"

namespace collwire::cupti_double {

struct ActivityBuffer;

struct TrackedKernel {
    KernelLaunch launch;
    std::uint64_t decided_ns = 0; // whether it has a record; 0: launched before CUPTI
    std::uint64_t started_ns = 0;
    std::uint64_t ended_ns = 0;
    std::uint32_t kind = KIND_CONCURRENT_KERNEL;
    ReadTimestamp clock = nullptr;
    bool has_times = true;            // false: launched before CUPTI could measure it
    const char *fate = "disabled";    // of its record, for the log
    ActivityBuffer *buffer = nullptr; // that holds its record
    [[nodiscard]] bool is_complete() const { return !has_times || ended_ns != 0; }
};
using KernelPointer = std::shared_ptr<TrackedKernel>;

struct BufferCallbacks {
    RequestBuffer request = nullptr;
    CompleteBuffer complete = nullptr;
    unsigned registration = 0; // from 1
};

// A buffer that the client gave, and whose records are not delivered yet.
struct ActivityBuffer {
    std::uint8_t *memory = nullptr;
    std::size_t bytes = 0;
    std::size_t most_records = 0; // 0: as many as fit
    BufferCallbacks requested_by;
    std::vector<KernelPointer> records;
    bool is_full = false;
};

class ActivityCollector {
public:
    ActivityCollector(const Settings &settings, EventLog &log);
    ~ActivityCollector();
    ActivityCollector(const ActivityCollector &) = delete;
    ActivityCollector &operator=(const ActivityCollector &) = delete;

    // The functions of CUPTI.
    Result register_callbacks(RequestBuffer request, CompleteBuffer complete);
    Result register_timestamp(ReadTimestamp read);
    Result enable(std::uint32_t kind);
    Result disable(std::uint32_t kind);
    Result set_context(const void *context, std::uint32_t kind, bool is_enabled);
    Result flush_all(std::uint32_t flags);
    Result set_flush_period(std::uint32_t period_ms);
    Result take_dropped(std::size_t *dropped);
    Result next_record(std::uint8_t *buffer, std::size_t valid_bytes, std::uint8_t **record);
    std::uint64_t timestamp();
    Result finalize();

    // From the double of CUDA.
    void earlier(const KernelLaunch &launch, std::uint64_t started_ns, std::uint64_t ended_ns);
    void launched(const KernelLaunch &launch);
    void started(std::uint64_t id, std::uint64_t at_ns);
    void ended(std::uint64_t id, std::uint64_t at_ns);

    // Logs the kernels that still run. Returns members for the summary.
    std::string finish();

private:
    enum class Delivery { Full, Complete, Forced };
    using Lock = std::unique_lock<WatchedMutex>;

    Result set_kind(std::uint32_t kind, bool is_enabled);
    [[nodiscard]] std::uint32_t kind_for(const KernelLaunch &launch) const; // 0: none is enabled
    void drop_pending();

    void place_earlier();
    void place(const KernelPointer &kernel);
    ActivityBuffer *buffer_with_room();
    ActivityBuffer *request_buffer();
    [[nodiscard]] bool has_room(const ActivityBuffer &buffer) const;

    void start_worker();
    void run_worker();
    bool is_due(const ActivityBuffer &buffer, Delivery delivery) const;
    void deliver_all(Delivery delivery);
    void deliver(ActivityBuffer &buffer, Delivery delivery);
    std::string write_records(ActivityBuffer &buffer);
    void check_untouched(const ActivityBuffer &buffer) const;
    void log_kernel(const TrackedKernel &kernel) const;

    const Settings &settings_;
    EventLog &log_;
    const std::size_t record_bytes_;

    WatchedMutex mutex_;
    std::condition_variable_any wake_;
    std::condition_variable_any flushed_;
    std::thread worker_;
    bool is_stopping_ = false;
    std::uint64_t flushes_asked_ = 0;
    std::uint64_t flushes_done_ = 0;
    bool is_force_asked_ = false;
    std::uint32_t period_ms_ = 0;

    BufferCallbacks callbacks_;
    ReadTimestamp read_timestamp_ = nullptr;
    ClockOffset registered_clock_; // read_timestamp_, when it was registered
    bool are_times_spoiled_ = false;
    std::set<std::uint32_t> kinds_;
    std::uint64_t sessions_ = 0; // times that a kind of kernels was enabled
    std::map<std::pair<const void *, std::uint32_t>, bool> context_kinds_;

    std::unordered_map<std::uint64_t, KernelPointer> running_; // launched and not ended
    std::deque<KernelPointer> earlier_;                        // to be delivered without times
    std::deque<std::unique_ptr<ActivityBuffer>> buffers_;      // the last one is filled
    std::size_t dropped_ = 0;                                  // since the client asked
    std::uint64_t dropped_in_all_ = 0;
    std::uint64_t kernels_ = 0;
    std::uint64_t delivered_ = 0;
};

} // namespace collwire::cupti_double
