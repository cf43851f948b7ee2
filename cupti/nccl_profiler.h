// SPDX-License-Identifier: Apache-2.0
// The guest as a plugin of NCCL's profiler: the times of NCCL's kernels by channel, where CUPTI is
// another tool's. NCCL's mask of events is 0 until a recorder wants a trace and CUPTI is not armed.
// Events take no lock and allocate nothing; the guest's thread reads, converts and hands over.
#pragma once

#include "collwire/gpu_records.h"
#include "control_lock.h"
#include "nccl_profiler_abi.h"
#include "nccl_profiler_clock.h"
#include "nccl_profiler_mask.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace collwire::cupti {

class NcclProfiler {
public:
    static constexpr size_t CONTEXTS = 1024; // communicators at a time
    static constexpr size_t TASKS = 8192;    // operations that are launched and did not start
    static constexpr size_t KERNELS = 16384; // channels that run, or are not handed over yet

    // One look at what is wanted. `cupti`: why CUPTI is not armed.
    void poll(bool is_wanted, cw_gpu_state cupti);
    void at_exit();

    // NCCL loaded the plugin in this process.
    void note_use() { is_used_.store(true, std::memory_order_release); }
    bool is_used() const { return is_used_.load(std::memory_order_acquire); }
    bool is_active() const { return state_.load(std::memory_order_relaxed) != State::Idle; }

    // NCCL's calls. `version` is that of the interface; version 3 gives no hash and no rank. The
    // result is NCCL's: always success.
    int init(int version, void **context, int *mask, uint64_t comm_hash, int rank);
    int start(int version, void *context, void **handle, const nccl::Description &event);
    int stop(void *handle);
    int record(int version, void *handle, int state, const nccl::StateArguments *arguments);
    int finalize(void *context);

private:
    enum class State : uint8_t { Idle, Waiting, Armed, Leaving, Draining };
    static constexpr uint32_t FREE = 0;
    static constexpr uint32_t USED = 1, CLOSED = 2;             // of a context
    static constexpr uint32_t TAKEN = 1, RUNNING = 2, DONE = 3; // of a kernel

    struct Context {
        std::atomic<uint32_t> state = 0; // FREE, USED, then CLOSED until the next look
        int version = 0;
        int *mask = nullptr;
        uint64_t comm_hash = 0;
        uint32_t rank = 0;
        // Of the plan that NCCL launches now. One thread at a time launches on a communicator.
        std::atomic<uint64_t> plan = 0, posted_ns = 0, launch_ns = 0;
        std::atomic<uintptr_t> launch_thread = 0;
        std::atomic<uint32_t> is_out_of_step = 0;
        GpuClock clock; // the guest's thread alone
    };

    struct Task {
        cw_gpu_channel_item item;
        uint32_t context;
    };

    struct TaskSlot {
        std::atomic<uint64_t> ticket;
        Task task;
    };

    struct Kernel {
        std::atomic<uint32_t> state; // FREE, TAKEN, RUNNING, DONE
        std::atomic<uint64_t> ticket;
        Task task;
        uint64_t gpu_start_ns, gpu_end_ns, seen_start_ns, seen_end_ns;
    };

    struct Tables {
        std::atomic<uint32_t> is_recording; // 0 in a child of a fork
        TaskSlot tasks[TASKS];
        Kernel kernels[KERNELS];
    };

    bool take_tables();
    void empty_tables();
    Tables *recording() const;
    void begin(cw_gpu_state cupti, uint64_t now_ns);
    void drain(bool is_last, uint64_t &unfinished);
    void convert(Kernel &kernel, bool is_done, cw_gpu_channel_item &item);
    void free_contexts();
    void report(cw_gpu_state state, cw_gpu_reason reason, uint64_t begin_ns, uint64_t end_ns);

    void start_task(Context &context, void **handle, const nccl::Description &event);
    void start_kernel(Context &context, void **handle, const nccl::Description &event,
                      uint64_t now_ns);
    void change_mask(uint64_t now_ns);

    std::atomic<State> state_ = State::Idle;
    std::atomic<Tables *> tables_ = nullptr;
    std::atomic<uint64_t> next_plan_ = 0, next_task_ = 0, next_kernel_ = 0;
    std::atomic<uint64_t> dropped_ = 0, calls_ = 0;
    std::atomic<uint32_t> communicators_ = 0, version_ = 0;
    std::atomic<bool> is_used_ = false;
    bool is_exiting_ = false, is_refused_ = false, has_memory_ = false;
    cw_gpu_state cupti_ = CW_GPU_OFF;
    uint64_t begin_ns_ = 0, reported_ns_ = 0, off_ns_ = 0;
    uint64_t first_kernel_ = 0, last_seen_kernel_ = 0; // tickets
    uint64_t channels_ = 0, orphans_ = 0, clock_error_ns_ = 0, clock_breaks_ = 0;
    bool is_error_unknown_ = false;
    ControlLock lock_;
    ProfilerMask mask_;
    Context contexts_[CONTEXTS];
};

// Of a name in NCCL's words, such as "AllReduce": enum cw_nccl_func.
uint8_t profiler_function(const char *name);

} // namespace collwire::cupti
