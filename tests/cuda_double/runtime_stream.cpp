// SPDX-License-Identifier: Apache-2.0
// Streams, events and host functions.
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "tests/cuda_double/kernel_feed.h"
#include "tests/cuda_double/runtime.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

// Host functions may block, so they have a thread of their own.
class HostThread {
public:
    void call(std::function<void()> function) {
        const std::lock_guard lock(mutex_);
        if (!running_) {
            running_ = true;
            std::thread([this] { run(); }).detach();
        }
        calls_.push_back(std::move(function));
        arrived_.notify_one();
    }

private:
    void run() {
        ::pthread_setname_np(::pthread_self(), "cudadbl-host");
        for (;;) {
            std::unique_lock lock(mutex_);
            arrived_.wait(lock, [this] { return !calls_.empty(); });
            const auto function = std::move(calls_.front());
            calls_.pop_front();
            lock.unlock();
            function();
        }
    }

    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<std::function<void()>> calls_;
    bool running_ = false;
};

// Never destroyed: its thread waits on a condition variable until the process ends.
HostThread &host_thread() {
    static HostThread &kept = *new HostThread;
    return kept;
}

class HostCall : public WorkItem {
public:
    HostCall(cudaHostFn_t function, void *user) : function_(function), user_(user) {}

    bool advance(bool &progressed) override {
        if (!done_) {
            done_ = std::make_shared<std::atomic<bool>>(false);
            host_thread().call([function = function_, user = user_, done = done_] {
                function(user);
                *done = true;
                engine().wake();
            });
            progressed = true;
        }
        return *done_;
    }
    [[nodiscard]] std::string state() const override { return "a host function"; }

private:
    cudaHostFn_t function_;
    void *user_;
    std::shared_ptr<std::atomic<bool>> done_;
};

class Record : public WorkItem {
public:
    explicit Record(EventPointer event) : event_(std::move(event)), ticket_(++event_->asked) {}

    bool advance(bool &) override {
        event_->when_ns = now_ns();
        event_->complete(ticket_);
        return true;
    }
    [[nodiscard]] std::string state() const override { return "an event's record"; }

private:
    EventPointer event_;
    std::uint64_t ticket_;
};

class Wait : public WorkItem {
public:
    explicit Wait(EventPointer event) : event_(std::move(event)), ticket_(event_->asked) {}

    bool advance(bool &) override { return event_->is_done(ticket_); }
    [[nodiscard]] std::string state() const override { return "a wait for an event"; }

private:
    EventPointer event_;
    std::uint64_t ticket_;
};

} // namespace

// The handles 0, 1 and 2 are CUDA's default streams.
Stream &stream_of(cudaStream_t handle) {
    return reinterpret_cast<std::uintptr_t>(handle) <= 2 ? engine().null_stream()
                                                         : *reinterpret_cast<Stream *>(handle);
}

EventHandle &event_of(cudaEvent_t handle) {
    return *reinterpret_cast<EventHandle *>(handle);
}

std::unique_ptr<WorkItem> make_record(const EventPointer &event) {
    return std::make_unique<Record>(event);
}

std::unique_ptr<WorkItem> make_wait(const EventPointer &event) {
    return std::make_unique<Wait>(event);
}

std::unique_ptr<WorkItem> make_host_call(cudaHostFn_t function, void *user) {
    return std::make_unique<HostCall>(function, user);
}

} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    *stream = reinterpret_cast<cudaStream_t>(engine().create_stream(current_device()));
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    engine().destroy_stream(stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    engine().wait_until_idle(stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return engine().is_idle(stream_of(stream)) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    *id = stream_of(stream).id;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    *device = stream_of(stream).device;
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user) {
    engine().submit(stream_of(stream), [=] { return make_host_call(function, user); });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    *event = reinterpret_cast<cudaEvent_t>(new EventHandle);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete &event_of(event);
    return cudaSuccess;
}

// In a capture an event only says which streams belong to the graph: it is played in order.
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
    next_correlation();
    EventHandle &event = event_of(handle);
    Stream &stream = stream_of(stream_handle);
    event.captured_in = stream.capture != nullptr ? stream.capture->id : 0;
    if (stream.capture == nullptr)
        engine().enqueue(stream, make_record(event.state));
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
    next_correlation();
    EventHandle &event = event_of(handle);
    Stream &stream = stream_of(stream_handle);
    if (Graph *graph = engine().find_capture(event.captured_in))
        stream.capture = graph;
    else if (stream.capture == nullptr)
        engine().enqueue(stream, make_wait(event.state));
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const EventState &state = *event_of(event).state;
    return state.is_done(state.asked) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const EventPointer state = event_of(event).state;
    const std::uint64_t ticket = state->asked;
    while (!state->is_done(ticket))
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *elapsed_ms, cudaEvent_t from, cudaEvent_t to) {
    const auto elapsed_ns = static_cast<std::int64_t>(event_of(to).state->when_ns) -
                            static_cast<std::int64_t>(event_of(from).state->when_ns);
    *elapsed_ms = static_cast<float>(elapsed_ns) / 1e6F;
    return cudaSuccess;
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
