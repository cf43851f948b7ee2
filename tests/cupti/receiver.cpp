// SPDX-License-Identifier: Apache-2.0
// A test double of the recorder, preloaded: it takes the guest's hand-overs in the process, without
// a probe. COLLWIRE_RECEIVED=FILE: a JSON line for each item, at most COLLWIRE_RECEIVED_LINES of
// kernels, and a last line with sums. It checks times: none in the future, none backwards. Its
// semaphore takes the place of the guest's: COLLWIRE_RECEIVER_ARMED=1 sets it from the first moment
// on.
#include "callback_watch.h"
#include "collwire/gpu_records.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

uint64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct Received {
    std::mutex lock;
    FILE *file = nullptr;
    uint64_t lines = 0, most_lines = UINT64_MAX;
    uint64_t kernels = 0, running = 0, backwards = 0, in_future = 0, too_old = 0, longest_ns = 0,
             bad_batches = 0, latest_delay_ns = 0, channels = 0;
    uint64_t began_ns = monotonic_ns();

    Received() {
        const char *path = getenv("COLLWIRE_RECEIVED");
        if (const char *most = getenv("COLLWIRE_RECEIVED_LINES"))
            most_lines = strtoull(most, nullptr, 10);
        if (path)
            file = fopen((std::string(path) + "." + std::to_string(getpid())).c_str(), "w");
    }

    ~Received() {
        const std::scoped_lock held(lock);
        if (!file)
            return;
        const CallbackCounts watched = callback_counts();
        fprintf(file,
                "{\"item\":\"sum\",\"kernels\":%lu,\"running\":%lu,\"backwards\":%lu,\"in_future\":"
                "%lu,\"too_old\":%lu,\"longest_ns\":%lu,"
                "\"bad_batches\":%lu,\"latest_delay_ns\":%lu,\"callbacks\":%lu,"
                "\"callback_allocations\":%lu,\"callback_locks\":%lu,"
                "\"callback_system_calls\":%lu}\n",
                kernels, running, backwards, in_future, too_old, longest_ns, bad_batches,
                latest_delay_ns, watched.callbacks, watched.allocations, watched.locks,
                watched.system_calls);
        fclose(file);
        file = nullptr;
    }

    void kernel(const cw_gpu_kernel_item &item, uint64_t now_ns) {
        ++kernels;
        if (item.flags & (CW_GPU_KERNEL_RUNNING | CW_GPU_KERNEL_QUEUED))
            ++running;
        else {
            if (item.end_ns < item.start_ns)
                ++backwards;
            else if (item.end_ns - item.start_ns > longest_ns)
                longest_ns = item.end_ns - item.start_ns;
            if (item.end_ns > now_ns + 1'000'000)
                ++in_future;
            else if (item.end_ns < now_ns && now_ns - item.end_ns > latest_delay_ns)
                latest_delay_ns = now_ns - item.end_ns;
        }
        if (item.start_ns < began_ns)
            ++too_old;
        if (!file || lines++ >= most_lines)
            return;
        fprintf(file,
                "{\"item\":\"kernel\",\"start_ns\":%llu,\"end_ns\":%llu,\"correlation\":%u,"
                "\"graph\":%u,\"node\":%llu,\"context\":%u,\"stream\":%u,"
                "\"blocks\":%u,\"threads\":%u,\"cluster\":%u,\"device\":%u,\"name\":%u,\"flags\":%"
                "u,\"at_ns\":%lu}\n",
                item.start_ns, item.end_ns, item.correlation, item.graph, item.graph_node,
                item.context, item.stream, item.blocks, item.threads, item.cluster, item.device,
                item.name, item.flags, now_ns);
    }

    void state(const cw_gpu_state_item &item, uint64_t now_ns) {
        if (!file)
            return;
        fprintf(file,
                "{\"item\":\"state\",\"state\":%u,\"reason\":%u,\"result\":%d,\"cupti\":%u,\"begin_"
                "ns\":%llu,\"end_ns\":%llu,\"kernels\":%llu,"
                "\"unknown\":%llu,\"unnamed\":%llu,\"others\":%llu,\"before_armed\":%llu,"
                "\"dropped\":%llu,\"lacking\":%llu,\"memory_bytes\":%llu,"
                "\"clock_error_ns\":%llu,\"yields\":%llu,\"owner\":\"%s\",\"not_summed\":%llu,"
                "\"at_ns\":%lu}\n",
                item.state, item.reason, item.result, item.cupti_version, item.begin_ns,
                item.end_ns, item.kernels, item.unknown_names, item.unnamed, item.other_kernels,
                item.before_armed, item.dropped, item.buffers_lacking, item.memory_bytes,
                item.clock_error_ns, item.yields, item.owner, item.not_summed, now_ns);
        fflush(file);
    }

    void channel(const cw_gpu_channel_item &item, uint64_t now_ns) {
        ++channels;
        if (!file || lines++ >= most_lines)
            return;
        fprintf(file,
                "{\"item\":\"channel\",\"start_ns\":%llu,\"end_ns\":%llu,\"comm_hash\":%llu,"
                "\"plan\":%llu,\"posted_ns\":%llu,\"launch_ns\":%llu,\"sequence\":%llu,"
                "\"count\":%llu,\"rank\":%u,\"channel\":%u,\"flags\":%u,\"func\":%u,"
                "\"n_channels\":%u,\"api_version\":%u,\"source\":%u,\"peer\":%d,\"at_ns\":%lu}\n",
                item.start_ns, item.end_ns, item.comm_hash, item.plan, item.posted_ns,
                item.launch_ns, item.sequence, item.count, item.rank, item.channel, item.flags,
                item.func, item.n_channels, item.api_version, item.source,
                static_cast<int>(item.peer), now_ns);
    }

    void profiler(const cw_gpu_profiler_item &item, uint64_t now_ns) {
        if (!file)
            return;
        fprintf(file,
                "{\"item\":\"profiler\",\"state\":%u,\"reason\":%u,\"cupti_state\":%u,"
                "\"api_version\":%u,\"begin_ns\":%llu,\"end_ns\":%llu,\"channels\":%llu,"
                "\"orphans\":%llu,\"dropped\":%llu,\"tasks\":%llu,\"calls\":%llu,"
                "\"memory_bytes\":%llu,\"clock_error_ns\":%llu,\"clock_breaks\":%llu,"
                "\"communicators\":%u,\"out_of_step\":%u,\"at_ns\":%lu}\n",
                item.state, item.reason, item.cupti_state, item.api_version, item.begin_ns,
                item.end_ns, item.channels, item.orphans, item.dropped, item.tasks, item.calls,
                item.memory_bytes, item.clock_error_ns, item.clock_breaks, item.communicators,
                item.out_of_step, now_ns);
        fflush(file);
    }

    void window(const cw_gpu_window_item &item) {
        if (!file)
            return;
        fprintf(file,
                "{\"item\":\"window\",\"start_ns\":%llu,\"busy_ns\":%llu,\"nccl_ns\":%llu,"
                "\"overlap_ns\":%llu,\"kernels\":%u,\"nccl_kernels\":%u,\"device\":%u}\n",
                item.start_ns, item.busy_ns, item.nccl_ns, item.overlap_ns, item.kernels,
                item.nccl_kernels, item.device);
    }

    void take(const cw_gpu_batch &batch) {
        const uint64_t now_ns = monotonic_ns();
        const std::scoped_lock held(lock);
        if (batch.magic != CW_GPU_BATCH_MAGIC || batch.version != CW_GPU_BATCH_VERSION ||
            batch.count > CW_GPU_BATCH_ITEMS) {
            ++bad_batches;
            return;
        }
        for (uint32_t i = 0; i < batch.count; ++i) {
            // NOLINTNEXTLINE(performance-no-int-to-ptr): an address, as the recorder gets it
            const auto *item = reinterpret_cast<const char *>(batch.items) +
                               static_cast<size_t>(i) * batch.item_bytes;
            if (batch.item == CW_GPU_ITEM_KERNEL)
                kernel(*reinterpret_cast<const cw_gpu_kernel_item *>(item), now_ns);
            if (batch.item == CW_GPU_ITEM_STATE)
                state(*reinterpret_cast<const cw_gpu_state_item *>(item), now_ns);
            if (batch.item == CW_GPU_ITEM_CHANNEL)
                channel(*reinterpret_cast<const cw_gpu_channel_item *>(item), now_ns);
            if (batch.item == CW_GPU_ITEM_PROFILER)
                profiler(*reinterpret_cast<const cw_gpu_profiler_item *>(item), now_ns);
            if (batch.item == CW_GPU_ITEM_WINDOW)
                window(*reinterpret_cast<const cw_gpu_window_item *>(item));
            if (batch.item == CW_GPU_ITEM_NAME && file) {
                const auto &name = *reinterpret_cast<const cw_gpu_name_item *>(item);
                fprintf(file, "{\"item\":\"name\",\"name\":%u,\"text\":\"%s\"}\n", name.name,
                        name.text);
            }
        }
    }
};

// Never destroyed before the guest's last hand-over: that comes from a handler of exit().
Received &received() {
    static Received *one = new Received;
    return *one;
}

struct AtEnd {
    // Not in a child of a fork.
    ~AtEnd() {
        if (getpid() == process)
            received().~Received();
    }
    pid_t process = getpid();
} at_end;

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT volatile unsigned short collwire_gpu_arm_semaphore;
volatile unsigned short collwire_gpu_arm_semaphore = 0;

// The semaphore follows a file: it exists, or it does not.
static void follow(const std::string &path) {
    for (;;) {
        collwire_gpu_arm_semaphore = access(path.c_str(), F_OK) == 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

__attribute__((constructor)) static void set_semaphore() {
    collwire_gpu_arm_semaphore = getenv("COLLWIRE_RECEIVER_ARMED") != nullptr;
    if (const char *path = getenv("COLLWIRE_RECEIVER_ARM_FILE"))
        std::thread(follow, std::string(path)).detach();
}

EXPORT void collwire_gpu_batch(const cw_gpu_batch *batch) {
    const PauseOfWatch pause;
    received().take(*batch);
}
