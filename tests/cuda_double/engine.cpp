// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

// A kernel waits for the network most of the time, for flags that NCCL's proxy threads and other
// processes set with plain stores. A GPU polls them, and nothing else shows a store: so this polls,
// too, without a break at first, then less and less often.
class BackOff {
public:
    void reset() {
        idle_rounds_ = 0;
        last_progress_ns_ = now_ns();
        reported_ = false;
    }
    // True once, when nothing has moved for the time that counts as a hang.
    bool wait() {
        idle_rounds_++;
        if (idle_rounds_ < 200) {
            ::sched_yield();
            return false;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(idle_rounds_ < 2000 ? 20 : 200));
        if (reported_ || now_ns() - last_progress_ns_ < settings().hang_s * 1'000'000'000)
            return false;
        reported_ = true;
        return true;
    }

private:
    unsigned idle_rounds_ = 0;
    std::uint64_t last_progress_ns_ = now_ns();
    bool reported_ = false;
};

// A device whose kernels never finish, for as long as the file is there.
class StandStill {
public:
    // Asked where there is work. A second file says that some is held.
    bool holds() {
        if (settings().stuck_path.empty())
            return false;
        if (const std::uint64_t now = now_ns(); now >= next_look_ns_) {
            next_look_ns_ = now + LOOK_EVERY_NS;
            asked_for_ = ::access(settings().stuck_path.c_str(), F_OK) == 0;
        }
        if (asked_for_ && !has_said_)
            say_so();
        has_said_ = asked_for_;
        return asked_for_;
    }

private:
    static constexpr std::uint64_t LOOK_EVERY_NS = 1'000'000;

    static void say_so() {
        constexpr int MODE = 0644;
        const std::string path = settings().stuck_path + ".holds";
        if (const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, MODE); file >= 0)
            ::close(file);
    }

    std::uint64_t next_look_ns_ = 0;
    bool asked_for_ = false;
    bool has_said_ = false;
};

} // namespace

void EventState::complete(std::uint64_t ticket) {
    std::uint64_t seen = done;
    while (seen < ticket && !done.compare_exchange_weak(seen, ticket)) {
    }
}

// Never destroyed: its thread waits on a condition variable until the process ends.
Engine &engine() {
    static Engine &kept = *new Engine;
    return kept;
}

Stream *Engine::create_stream(int device) {
    const std::lock_guard lock(mutex_);
    auto &stream = streams_.emplace_back(std::make_unique<Stream>());
    stream->id = ++stream_ids_;
    stream->device = device;
    return stream.get();
}

void Engine::destroy_stream(Stream &stream) {
    const std::lock_guard lock(mutex_);
    stream.destroyed = true;
    if (!running_ && stream.queue.empty())
        std::erase_if(streams_, [&](const auto &kept) { return kept.get() == &stream; });
    work_arrived_.notify_one();
}

void Engine::submit(Stream &stream, const WorkMaker &make) {
    if (stream.capture != nullptr)
        stream.capture->nodes.push_back(make);
    else
        enqueue(stream, make());
}

void Engine::enqueue(Stream &stream, std::unique_ptr<WorkItem> item) {
    const std::lock_guard lock(mutex_);
    if (!running_) {
        running_ = true;
        std::thread([this] { run(); }).detach();
    }
    stream.queue.push_back(std::move(item));
    work_arrived_.notify_one();
}

bool Engine::is_idle(Stream &stream) {
    const std::lock_guard lock(mutex_);
    return stream.queue.empty();
}

void Engine::wait_until_idle(Stream &stream) {
    std::unique_lock lock(mutex_);
    stream_idle_.wait(lock, [&] { return stream.queue.empty(); });
}

bool Engine::all_idle() const {
    return null_stream_.queue.empty() &&
           std::all_of(streams_.begin(), streams_.end(),
                       [](const auto &stream) { return stream->queue.empty(); });
}

void Engine::wait_until_all_idle() {
    std::unique_lock lock(mutex_);
    stream_idle_.wait(lock, [&] { return all_idle(); });
}

Graph *Engine::begin_capture(Stream &stream) {
    const std::lock_guard lock(mutex_);
    auto *graph = new Graph;
    graph->id = ++graph_ids_;
    captures_[graph->id] = graph;
    stream.capture = graph;
    return graph;
}

Graph *Engine::find_capture(std::uint64_t graph_id) {
    const std::lock_guard lock(mutex_);
    const auto found = captures_.find(graph_id);
    return found != captures_.end() ? found->second : nullptr;
}

Graph *Engine::end_capture(Stream &stream) {
    const std::lock_guard lock(mutex_);
    Graph *graph = stream.capture;
    if (graph == nullptr)
        return nullptr;
    captures_.erase(graph->id);
    stream.capture = nullptr;
    for (auto &joined : streams_) {
        if (joined->capture == graph)
            joined->capture = nullptr;
    }
    return graph;
}

void Engine::release(Graph &graph) {
    if (--graph.references > 0)
        return;
    for (const auto &call : graph.when_destroyed)
        call();
    delete &graph;
}

Engine::Busy Engine::wait_for_work(bool &waited) {
    std::unique_lock lock(mutex_);
    for (;;) {
        std::erase_if(streams_, [](const auto &stream) {
            return stream->destroyed && stream->queue.empty();
        });
        Busy busy;
        for (const auto &stream : streams_) {
            if (!stream->queue.empty())
                busy.push_back(stream.get());
        }
        if (!null_stream_.queue.empty())
            busy.push_back(&null_stream_);
        if (!busy.empty())
            return busy;
        stream_idle_.notify_all();
        work_arrived_.wait(lock);
        waited = true;
    }
}

bool Engine::advance_head(Stream &stream, bool &progressed) {
    WorkItem *head = nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (stream.queue.empty())
            return false;
        head = stream.queue.front().get();
    }
    if (!head->advance(progressed))
        return false;
    progressed = true;
    std::unique_ptr<WorkItem> ended; // destroyed without the lock
    const std::lock_guard lock(mutex_);
    ended = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (stream.queue.empty())
        stream_idle_.notify_all();
    return true;
}

void Engine::report_hang(const Busy &busy) {
    for (Stream *stream : busy) {
        const std::lock_guard lock(mutex_);
        if (!stream->queue.empty())
            note(fmt::format("no progress for {} s in stream {}: {}", settings().hang_s, stream->id,
                             stream->queue.front()->state()));
    }
}

void Engine::run() {
    ::pthread_setname_np(::pthread_self(), "cudadbl-gpu");
    BackOff back_off;
    StandStill stand_still;
    for (;;) {
        bool progressed = false;
        const Busy busy = wait_for_work(progressed);
        for (Stream *stream : busy) {
            // A kernel that never finishes does not keep the program from copying.
            const auto may_go_on = [&] { return stream == &null_stream_ || !stand_still.holds(); };
            while (may_go_on() && advance_head(*stream, progressed)) {
            }
        }
        if (progressed)
            back_off.reset();
        else if (back_off.wait())
            report_hang(busy);
    }
}

} // namespace collwire::cuda_double
