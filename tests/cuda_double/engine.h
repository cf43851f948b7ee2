// SPDX-License-Identifier: Apache-2.0
// Streams are queues of work; one thread, the engine, plays the device for all of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace collwire::cuda_double {

// Something at the head of a stream. The engine calls it again and again; it must not block.
class WorkItem {
public:
    virtual ~WorkItem() = default;
    // True when it has ended.
    virtual bool advance(bool &progressed) = 0;
    [[nodiscard]] virtual std::string state() const = 0; // for the report of a hang
};
using WorkMaker = std::function<std::unique_ptr<WorkItem>()>;

// An event counts how often its record was asked for, and which of them is done.
struct EventState {
    std::atomic<std::uint64_t> asked{0};
    std::atomic<std::uint64_t> done{0};
    std::atomic<std::uint64_t> when_ns{0};

    void complete(std::uint64_t ticket);
    [[nodiscard]] bool is_done(std::uint64_t ticket) const { return done >= ticket; }
};
using EventPointer = std::shared_ptr<EventState>;

// A captured graph is the list of what was submitted, played back in that order on one stream.
struct Graph {
    std::uint64_t id = 0;
    int references = 1;
    std::vector<WorkMaker> nodes;
    std::vector<std::function<void()>> when_destroyed;
};

struct Stream {
    std::uint64_t id = 0;
    int device = 0;
    bool destroyed = false;
    Graph *capture = nullptr;
    std::deque<std::unique_ptr<WorkItem>> queue; // the engine alone removes from it
};

class Engine {
public:
    Stream *create_stream(int device);
    void destroy_stream(Stream &stream); // once its work is done
    Stream &null_stream() { return null_stream_; }

    // Now, or as a node of the graph that the stream is capturing.
    void submit(Stream &stream, const WorkMaker &make);
    void enqueue(Stream &stream, std::unique_ptr<WorkItem> item);

    [[nodiscard]] bool is_idle(Stream &stream);
    void wait_until_idle(Stream &stream);
    void wait_until_all_idle();
    void wake() { work_arrived_.notify_all(); }

    Graph *begin_capture(Stream &stream);
    [[nodiscard]] Graph *find_capture(std::uint64_t graph_id); // null: it has ended
    Graph *end_capture(Stream &stream);                        // null: there is none
    static void release(Graph &graph);

private:
    using Busy = std::vector<Stream *>;

    void run();
    Busy wait_for_work(bool &waited);
    bool advance_head(Stream &stream, bool &progressed);
    void report_hang(const Busy &busy);
    bool all_idle() const;

    std::mutex mutex_;
    std::condition_variable work_arrived_;
    std::condition_variable stream_idle_;
    bool running_ = false;
    Stream null_stream_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::map<std::uint64_t, Graph *> captures_;
    std::uint64_t stream_ids_ = 0;
    std::uint64_t graph_ids_ = 0;
};

Engine &engine();

} // namespace collwire::cuda_double
