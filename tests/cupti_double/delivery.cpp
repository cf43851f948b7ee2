// SPDX-License-Identifier: Apache-2.0
// The client's buffers: asked for on the launching thread, returned by the worker thread.
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "tests/cupti_double/collector.h"
#include "tests/cupti_double/record.h"
#include "tests/cupti_double/time_source.h"

namespace collwire::cupti_double {
namespace {

constexpr std::size_t RECORD_ALIGNMENT_BYTES = 8;
// In the place of a record that is not delivered yet.
constexpr int UNTOUCHED = 0xb5;
// As far off as records of H100s were after a second registration of the timestamp callback.
constexpr std::uint64_t SPOILED_BY_NS = 100'000'000'000'000;

// A forced flush gives kernels that have not begun one time for both ends, so far ahead: measured.
constexpr std::uint64_t QUEUED_AHEAD_NS = 110'000'000;

// Of the completion callback that runs.
thread_local std::uint64_t records_read = 0;

// By how much a clock of the client gains on CLOCK_MONOTONIC. 0 for one that counts nanoseconds:
// the readings are not better than what it may be off.
double drift_of(const ClockOffset &first, const ClockOffset &now) {
    constexpr double OTHER_UNIT = 0.01;
    if (first.at_ns == 0 || now.at_ns <= first.at_ns)
        return 0;
    const double drift = static_cast<double>(now.offset_ns - first.offset_ns) /
                         static_cast<double>(now.at_ns - first.at_ns);
    return drift > OTHER_UNIT || drift < -OTHER_UNIT ? drift : 0;
}

} // namespace

void ActivityCollector::place_earlier() {
    while (!earlier_.empty()) {
        place(earlier_.front());
        earlier_.pop_front();
    }
}

void ActivityCollector::place(const KernelPointer &kernel) {
    ActivityBuffer *buffer = buffer_with_room();
    if (buffer == nullptr) {
        kernel->fate = callbacks_.request == nullptr ? "no_callbacks" : "no_buffer";
        dropped_++;
        dropped_in_all_++;
        return;
    }
    std::memset(buffer->memory + buffer->records.size() * record_bytes_, UNTOUCHED, record_bytes_);
    buffer->records.push_back(kernel);
    kernel->buffer = buffer;
    kernel->fate = kernel->has_times ? "recorded" : "without_times";
    if (!has_room(*buffer)) {
        buffer->is_full = true;
        wake_.notify_all();
    }
}

ActivityBuffer *ActivityCollector::buffer_with_room() {
    if (!buffers_.empty() && !buffers_.back()->is_full)
        return buffers_.back().get();
    return callbacks_.request != nullptr ? request_buffer() : nullptr;
}

bool ActivityCollector::has_room(const ActivityBuffer &buffer) const {
    const std::size_t records = buffer.records.size();
    return (records + 1) * record_bytes_ <= buffer.bytes &&
           (buffer.most_records == 0 || records < buffer.most_records);
}

ActivityBuffer *ActivityCollector::request_buffer() {
    auto buffer = std::make_unique<ActivityBuffer>();
    buffer->requested_by = callbacks_;
    {
        const InBufferCallback here(mutex_, "the request callback");
        callbacks_.request(&buffer->memory, &buffer->bytes, &buffer->most_records);
    }
    log_.write("requested", fmt::format("\"buffer\":\"{}\",\"bytes\":{},\"most_records\":{},"
                                        "\"registration\":{}",
                                        static_cast<void *>(buffer->memory), buffer->bytes,
                                        buffer->most_records, callbacks_.registration));
    if (buffer->memory == nullptr) {
        if (settings_.api_version < FIRST_VERSION_WITH_REFUSAL)
            fatal(fmt::format("the request callback gave no buffer, and CUPTI of API version {} "
                              "crashes there. Fix: give one, and drop the records",
                              settings_.api_version));
        return nullptr;
    }
    if (reinterpret_cast<std::uintptr_t>(buffer->memory) % RECORD_ALIGNMENT_BYTES != 0)
        log_.misuse("the request callback gave a buffer that is not aligned to 8 bytes");
    if (!has_room(*buffer)) {
        log_.misuse(fmt::format("the request callback gave a buffer of {} bytes: too small for a "
                                "record of {}",
                                buffer->bytes, record_bytes_));
        return nullptr;
    }
    return buffers_.emplace_back(std::move(buffer)).get();
}

void ActivityCollector::start_worker() {
    if (worker_.joinable())
        return;
    // The client's handlers of signals do not run on CUPTI's thread.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    worker_ = std::thread([this] { run_worker(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ActivityCollector::run_worker() {
    ::pthread_setname_np(::pthread_self(), "cuptidbl-worker");
    const auto is_flush_asked = [this] { return flushes_asked_ > flushes_done_; };
    const auto is_some_due = [this] {
        return std::any_of(buffers_.begin(), buffers_.end(),
                           [this](const auto &buffer) { return is_due(*buffer, Delivery::Full); });
    };
    Lock lock(mutex_);
    for (;;) {
        if (period_ms_ != 0) {
            const std::uint32_t period_ms = period_ms_;
            wake_.wait_for(lock, std::chrono::milliseconds(period_ms), [&] {
                return is_stopping_ || is_flush_asked() || period_ms_ != period_ms;
            });
        } else {
            wake_.wait(lock, [&] {
                return is_stopping_ || is_flush_asked() || is_some_due() || period_ms_ != 0;
            });
        }
        if (is_stopping_)
            return;
        if (!is_flush_asked()) {
            deliver_all(Delivery::Full);
            continue;
        }
        const std::uint64_t asked = flushes_asked_;
        deliver_all(std::exchange(is_force_asked_, false) ? Delivery::Forced : Delivery::Complete);
        flushes_done_ = asked;
        flushed_.notify_all();
    }
}

bool ActivityCollector::is_due(const ActivityBuffer &buffer, Delivery delivery) const {
    if (delivery == Delivery::Forced)
        return true;
    return (buffer.is_full || delivery == Delivery::Complete) &&
           std::all_of(buffer.records.begin(), buffer.records.end(),
                       [](const KernelPointer &kernel) { return kernel->is_complete(); });
}

void ActivityCollector::deliver_all(Delivery delivery) {
    std::deque<std::unique_ptr<ActivityBuffer>> kept;
    std::deque<std::unique_ptr<ActivityBuffer>> due;
    for (auto &buffer : buffers_)
        (is_due(*buffer, delivery) ? due : kept).push_back(std::move(buffer));
    buffers_ = std::move(kept);
    for (const auto &buffer : due)
        deliver(*buffer, delivery);
}

void ActivityCollector::deliver(ActivityBuffer &buffer, Delivery delivery) {
    check_untouched(buffer);
    const std::string described = write_records(buffer);
    const std::size_t valid_bytes = buffer.records.size() * record_bytes_;
    const BufferCallbacks &to =
        settings_.buffer_owner == BufferOwner::RegisteredThen ? buffer.requested_by : callbacks_;
    constexpr const char *REASONS[] = {"full", "flush", "forced"};
    const std::uint64_t begin_ns = monotonic_ns();
    records_read = 0;
    {
        const InBufferCallback here(mutex_, "the completion callback");
        to.complete(nullptr, 0, buffer.memory, buffer.bytes, valid_bytes);
    }
    delivered_ += buffer.records.size();
    log_.write("delivered",
               fmt::format("\"buffer\":\"{}\",\"bytes\":{},\"valid_bytes\":{},\"registration\":{},"
                           "\"reason\":\"{}\",\"read\":{},\"callback_ns\":{},{}",
                           static_cast<void *>(buffer.memory), buffer.bytes, valid_bytes,
                           to.registration, REASONS[static_cast<int>(delivery)], records_read,
                           monotonic_ns() - begin_ns, described));
}

// Returns members for the log.
std::string ActivityCollector::write_records(ActivityBuffer &buffer) {
    std::map<ReadTimestamp, ClockOffset> clocks;
    std::string ids;
    std::size_t running = 0;
    ClockOffset worst;
    std::uint8_t *at = buffer.memory;
    for (const KernelPointer &kernel : buffer.records) {
        KernelRecord record = record_of(kernel->launch, kernel->kind);
        if (kernel->has_times) {
            auto found = clocks.find(kernel->clock);
            if (found == clocks.end())
                found = clocks.emplace(kernel->clock, measure_offset(kernel->clock)).first;
            if (found->second.error_ns >= worst.error_ns)
                worst = found->second;
            const double drift =
                kernel->clock == read_timestamp_ ? drift_of(registered_clock_, found->second) : 0;
            const auto converted = [&](std::uint64_t ns) {
                const auto since_ns =
                    static_cast<double>(static_cast<std::int64_t>(ns - found->second.at_ns));
                const std::uint64_t spoiled = are_times_spoiled_ ? SPOILED_BY_NS : 0;
                return ns != 0 ? ns + static_cast<std::uint64_t>(found->second.offset_ns) +
                                     static_cast<std::uint64_t>(
                                         static_cast<std::int64_t>(since_ns * drift)) +
                                     spoiled
                               : 0;
            };
            record.start = converted(kernel->started_ns);
            record.end = converted(kernel->ended_ns);
            record.completed = record.end;
        }
        if (!kernel->is_complete()) {
            running++;
            if (kernel->started_ns == 0)
                record.start = record.end = record.completed =
                    monotonic_ns() + QUEUED_AHEAD_NS +
                    static_cast<std::uint64_t>(measure_offset(kernel->clock).offset_ns);
            kernel->fate = "delivered_running";
        }
        kernel->buffer = nullptr;
        std::memcpy(at, &record, record_bytes_);
        at += record_bytes_;
        if (log_.has_file())
            ids += fmt::format("{}{}", ids.empty() ? "" : ",", kernel->launch.id);
    }
    const bool is_spoiled = std::exchange(are_times_spoiled_, false);
    return fmt::format("\"running\":{},\"clock_offset_ns\":{},\"clock_error_ns\":{},"
                       "\"spoiled\":{},\"kernels\":[{}]",
                       running, worst.offset_ns, worst.error_ns, is_spoiled, ids);
}

void ActivityCollector::check_untouched(const ActivityBuffer &buffer) const {
    const std::uint8_t *end = buffer.memory + buffer.records.size() * record_bytes_;
    if (std::any_of(static_cast<const std::uint8_t *>(buffer.memory), end,
                    [](std::uint8_t byte) { return byte != UNTOUCHED; }))
        log_.misuse("the client wrote into a buffer that CUPTI held");
}

Result ActivityCollector::next_record(std::uint8_t *buffer, std::size_t valid_bytes,
                                      std::uint8_t **record) {
    const Result result = cupti_double::next_record(buffer, valid_bytes, record, record_bytes_);
    if (result == Result::Success)
        records_read++;
    else if (result != Result::MaxLimitReached)
        log_.misuse(fmt::format("cuptiActivityGetNextRecord: {}", name_of(result)));
    return result;
}

} // namespace collwire::cupti_double
