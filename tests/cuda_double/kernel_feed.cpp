// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/kernel_feed.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>

#include "tests/cuda_double/injection.h"
#include "tests/cuda_double/runtime.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

using cupti_double::CudaState;
using cupti_double::KernelObserver;

// As CUPTI numbers them: 7 is the default stream, others come after the runtime's own.
constexpr std::uint32_t DEFAULT_STREAM = 7;
constexpr std::uint32_t FIRST_STREAM = 13;

thread_local const LaunchingCall *current_call = nullptr;

std::uint64_t monotonic_ns() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// Keeps the launches until somebody observes.
class KernelFeed {
public:
    const CudaState *observe(const KernelObserver *observer) {
        static constexpr CudaState STATE = {&is_cuda_initialised,
                                            [] { return feed().forgotten_.load(); }};
        const std::lock_guard lock(mutex_);
        if (observer_ != nullptr)
            note("a second observer takes the kernels from the first. Fix: one double of CUPTI in "
                 "a process");
        for (const Earlier &kernel : earlier_)
            observer->earlier(kernel.launch, kernel.started_ns, kernel.ended_ns);
        earlier_.clear();
        observer_ = observer;
        return &STATE;
    }

    void launched(KernelLaunch &launch) {
        if (const KernelObserver *observer = observer_) {
            launch.id = ++ids_;
            observer->launched(launch);
            return;
        }
        const std::unique_lock lock(mutex_);
        launch.id = ++ids_;
        if (const KernelObserver *observer = observer_) {
            observer->launched(launch);
            return;
        }
        earlier_.push_back({launch});
        if (earlier_.size() > MOST_EARLIER) {
            earlier_.pop_front();
            forgotten_++;
        }
    }

    void started(std::uint64_t id, std::uint64_t at_ns) {
        report(&KernelObserver::started, &Earlier::started_ns, id, at_ns);
    }
    void ended(std::uint64_t id, std::uint64_t at_ns) {
        report(&KernelObserver::ended, &Earlier::ended_ns, id, at_ns);
    }

    // Never destroyed: the engine's thread uses it until the process ends.
    static KernelFeed &feed() {
        static KernelFeed &kept = *new KernelFeed;
        return kept;
    }

private:
    static constexpr std::size_t MOST_EARLIER = 20'000;

    struct Earlier {
        KernelLaunch launch;
        std::uint64_t started_ns = 0;
        std::uint64_t ended_ns = 0;
    };
    using Function = void (*)(std::uint64_t, std::uint64_t);

    void report(Function KernelObserver::*function, std::uint64_t Earlier::*time, std::uint64_t id,
                std::uint64_t at_ns) {
        const KernelObserver *observer = observer_;
        if (observer == nullptr) {
            const std::lock_guard lock(mutex_);
            observer = observer_;
            if (observer == nullptr) {
                // Ids are in order, and have no gap.
                if (!earlier_.empty() && id >= earlier_.front().launch.id)
                    earlier_[id - earlier_.front().launch.id].*time = at_ns;
                return;
            }
        }
        (observer->*function)(id, at_ns);
    }

    std::mutex mutex_;
    std::atomic<const KernelObserver *> observer_{nullptr};
    std::atomic<std::uint64_t> ids_{0};
    std::atomic<std::uint64_t> forgotten_{0};
    std::deque<Earlier> earlier_;
};

} // namespace

LaunchingCall::LaunchingCall(const Stream &stream)
    : outer_(current_call), stream_(stream),
      device_(stream.id == 0 ? current_device() : stream.device), correlation_(next_correlation()) {
    current_call = this;
}

LaunchingCall::~LaunchingCall() {
    current_call = outer_;
}

void LaunchingCall::describe(KernelLaunch &launch) {
    const LaunchingCall &call = *current_call;
    const auto stream = static_cast<std::uint32_t>(call.stream_.id);
    launch.correlation = call.correlation_;
    launch.device = static_cast<std::uint32_t>(call.device_);
    launch.context = launch.device + 1;
    launch.context_handle = context_of(call.device_);
    launch.stream = stream == 0 ? DEFAULT_STREAM : FIRST_STREAM + stream - 1;
    launch.channel = stream;
    launch.launched_ns = monotonic_ns();
}

std::uint32_t next_correlation() {
    static std::atomic<std::uint32_t> calls{0};
    return ++calls;
}

void report_launched(KernelLaunch &launch) {
    KernelFeed::feed().launched(launch);
}

void report_started(std::uint64_t id) {
    KernelFeed::feed().started(id, monotonic_ns());
}

void report_ended(std::uint64_t id) {
    KernelFeed::feed().ended(id, monotonic_ns());
}

} // namespace collwire::cuda_double

extern "C" __attribute__((visibility("default"))) const collwire::cupti_double::CudaState *
collwire_cuda_double_observe(const collwire::cupti_double::KernelObserver *observer) {
    return collwire::cuda_double::KernelFeed::feed().observe(observer);
}
