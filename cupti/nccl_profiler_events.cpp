// SPDX-License-Identifier: Apache-2.0
// NcclProfiler: the events that NCCL's threads report.
#include "nccl_profiler.h"

#include "clock.h"
#include "collwire/nccl_launch_records.h"

#include <cstring>

namespace collwire::cupti {
namespace {

// A handle says what it is, and which one: a number, never an address. NCCL keeps handles longer
// than the tables keep events.
enum class Handle : uint64_t { None = 0, GroupApi = 1, Plan = 2, Task = 3, Kernel = 4 };
constexpr unsigned NUMBER_BITS = 56;

void *handle_of(Handle what, uint64_t number) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): never followed
    return reinterpret_cast<void *>(static_cast<uint64_t>(what) << NUMBER_BITS | number);
}
Handle what_of(const void *handle) {
    return static_cast<Handle>(reinterpret_cast<uint64_t>(handle) >> NUMBER_BITS);
}
uint64_t number_of(const void *handle) {
    return reinterpret_cast<uint64_t>(handle) & ((uint64_t{1} << NUMBER_BITS) - 1);
}

uintptr_t thread_id() {
    return reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
}

} // namespace

// ncclFuncToString(), src/misc/utils.cc and src/enqueue.cc.
uint8_t profiler_function(const char *name) {
    static constexpr struct {
        const char *name;
        uint8_t function;
    } KNOWN[] = {
        {"AllReduce", CW_NCCL_ALL_REDUCE},
        {"AllGather", CW_NCCL_ALL_GATHER},
        {"ReduceScatter", CW_NCCL_REDUCE_SCATTER},
        {"Broadcast", CW_NCCL_BROADCAST},
        {"Reduce", CW_NCCL_REDUCE},
        {"Send", CW_NCCL_SEND},
        {"Recv", CW_NCCL_RECV},
        {"SendRecv", CW_NCCL_SEND_RECV},
        {"AlltoAll", CW_NCCL_ALL_TO_ALL},
        {"Scatter", CW_NCCL_SCATTER},
        {"Gather", CW_NCCL_GATHER},
        {"AllGatherV", CW_NCCL_ALL_GATHER_V},
    };
    for (const auto &known : KNOWN)
        if (name && strcmp(name, known.name) == 0)
            return known.function;
    return CW_NCCL_FUNC_UNKNOWN;
}

// Not worth waiting for: the next group tries again.
void NcclProfiler::change_mask(uint64_t now_ns) {
    if (!lock_.try_take())
        return;
    mask_.change(now_ns);
    lock_.release();
}

int NcclProfiler::start(int version, void *context_pointer, void **handle,
                        const nccl::Description &event) {
    // NCCL keeps the handle of the event before where a plugin leaves it.
    *handle = nullptr;
    calls_.fetch_add(1, std::memory_order_relaxed);
    auto *context = static_cast<Context *>(context_pointer);
    if (!context || !recording())
        return 0;
    const uint64_t now_ns = monotonic_ns();
    switch (version < nccl::FIRST_WITH_API_EVENTS ? event.type & 0xff : event.type) {
    case nccl::GROUP_API:
        mask_.group_opened(now_ns);
        *handle = handle_of(Handle::GroupApi, 1);
        break;
    case nccl::KERNEL_LAUNCH:
        context->launch_ns.store(now_ns, std::memory_order_relaxed);
        context->launch_thread.store(thread_id(), std::memory_order_relaxed);
        break;
    case nccl::GROUP:
        context->plan.store(next_plan_.fetch_add(1, std::memory_order_relaxed) + 1,
                            std::memory_order_relaxed);
        context->posted_ns.store(now_ns, std::memory_order_relaxed);
        // Without a handle NCCL before 2.28 has no events of operations. Later versions count
        // captured operations in its presence, for another tool's comparison of ranks.
        if (version < nccl::FIRST_WITH_API_EVENTS) {
            *handle = handle_of(Handle::Plan, 1);
            if (mask_.plan_started(now_ns))
                change_mask(now_ns);
        }
        break;
    case nccl::COLLECTIVE:
    case nccl::TRANSFER:
        start_task(*context, handle, event);
        break;
    case nccl::KERNEL_CHANNEL:
        start_kernel(*context, handle, event, now_ns);
        break;
    default:
        break;
    }
    return 0;
}

void NcclProfiler::start_task(Context &context, void **handle, const nccl::Description &event) {
    Tables *tables = tables_.load(std::memory_order_relaxed);
    const uint64_t ticket = next_task_.fetch_add(1, std::memory_order_relaxed) + 1;
    TaskSlot &slot = tables->tasks[ticket % TASKS];
    slot.ticket.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    cw_gpu_channel_item item = {};
    item.comm_hash = context.comm_hash;
    item.rank = static_cast<uint32_t>(event.rank);
    item.plan = context.plan.load(std::memory_order_relaxed);
    item.posted_ns = context.posted_ns.load(std::memory_order_relaxed);
    // A callback of CUDA posts plans of which another thread may have launched the next one.
    if (context.launch_thread.load(std::memory_order_relaxed) == thread_id())
        item.launch_ns = context.launch_ns.load(std::memory_order_relaxed);
    item.source = CW_GPU_SOURCE_PROFILER;
    item.api_version = static_cast<uint8_t>(context.version);
    item.peer = UINT32_MAX;
    const bool is_transfer = (event.type & 0xff) == nccl::TRANSFER;
    const bool is_old = context.version < nccl::FIRST_WITH_GPU_TIMES;
    if (is_transfer && is_old) {
        item.comm_hash = event.transfer_v3.comm_hash;
        item.func = profiler_function(event.transfer_v3.function);
        item.count = event.transfer_v3.count;
        item.peer = static_cast<uint32_t>(event.transfer_v3.peer);
    } else if (is_transfer) {
        item.func = profiler_function(event.transfer.function);
        item.count = event.transfer.count;
        item.peer = static_cast<uint32_t>(event.transfer.peer);
        item.n_channels = event.transfer.channels;
    } else if (is_old) {
        item.comm_hash = event.collective_v3.comm_hash;
        item.func = profiler_function(event.collective_v3.function);
        item.count = event.collective_v3.count;
        item.sequence = event.collective_v3.sequence;
    } else {
        item.func = profiler_function(event.collective.function);
        item.count = event.collective.count;
        item.sequence = event.collective.sequence;
        item.n_channels = event.collective.channels;
    }
    // NCCL does not count a send to itself, and the kernel does (enqueue.cc addP2pToPlan, v2.26.5-1
    // to v2.30.7-1).
    if (is_transfer && item.peer == item.rank)
        context.is_out_of_step.store(1, std::memory_order_relaxed);
    slot.task.item = item;
    slot.task.context = static_cast<uint32_t>(&context - contexts_);
    slot.ticket.store(ticket, std::memory_order_release);
    *handle = handle_of(Handle::Task, ticket);
}

void NcclProfiler::start_kernel(Context &context, void **handle, const nccl::Description &event,
                                uint64_t now_ns) {
    Tables *tables = tables_.load(std::memory_order_relaxed);
    const uint64_t ticket = next_kernel_.fetch_add(1, std::memory_order_acq_rel) + 1;
    Kernel &kernel = tables->kernels[ticket % KERNELS];
    uint32_t state = FREE;
    if (!kernel.state.compare_exchange_strong(state, TAKEN, std::memory_order_acquire)) {
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    bool has_task = false;
    if (what_of(event.parent) == Handle::Task) {
        const uint64_t parent = number_of(event.parent);
        const TaskSlot &slot = tables->tasks[parent % TASKS];
        has_task = slot.ticket.load(std::memory_order_acquire) == parent;
        if (has_task)
            kernel.task = slot.task;
        std::atomic_thread_fence(std::memory_order_acquire);
        has_task = has_task && slot.ticket.load(std::memory_order_relaxed) == parent;
    }
    if (!has_task) {
        kernel.task = {};
        cw_gpu_channel_item &item = kernel.task.item;
        item.comm_hash = context.comm_hash;
        item.rank = context.rank;
        item.func = CW_NCCL_FUNC_UNKNOWN;
        item.peer = UINT32_MAX;
        item.flags = CW_GPU_CHANNEL_NO_TASK;
        item.source = CW_GPU_SOURCE_PROFILER;
        item.api_version = static_cast<uint8_t>(context.version);
        kernel.task.context = static_cast<uint32_t>(&context - contexts_);
    }
    kernel.task.item.channel = event.kernel.channel;
    kernel.gpu_start_ns = context.version < nccl::FIRST_WITH_GPU_TIMES ? 0 : event.kernel.gpu_ns;
    kernel.gpu_end_ns = kernel.seen_end_ns = 0;
    kernel.seen_start_ns = now_ns;
    kernel.ticket.store(ticket, std::memory_order_relaxed);
    kernel.state.store(RUNNING, std::memory_order_release);
    *handle = handle_of(Handle::Kernel, ticket);
}

int NcclProfiler::record(int version, void *handle, int state,
                         const nccl::StateArguments *arguments) {
    calls_.fetch_add(1, std::memory_order_relaxed);
    if (version < nccl::FIRST_WITH_GPU_TIMES || state != nccl::KERNEL_CHANNEL_STOP || !arguments ||
        what_of(handle) != Handle::Kernel)
        return 0;
    Tables *tables = recording();
    if (!tables)
        return 0;
    Kernel &kernel = tables->kernels[number_of(handle) % KERNELS];
    if (kernel.ticket.load(std::memory_order_acquire) == number_of(handle))
        kernel.gpu_end_ns = arguments->gpu_ns;
    return 0;
}

int NcclProfiler::stop(void *handle) {
    calls_.fetch_add(1, std::memory_order_relaxed);
    const Handle what = what_of(handle);
    if (what == Handle::GroupApi) {
        const uint64_t now_ns = monotonic_ns();
        if (mask_.group_closed(now_ns))
            change_mask(now_ns);
    } else if (what == Handle::Kernel) {
        Tables *tables = recording();
        if (!tables)
            return 0;
        Kernel &kernel = tables->kernels[number_of(handle) % KERNELS];
        if (kernel.ticket.load(std::memory_order_acquire) != number_of(handle))
            return 0;
        kernel.seen_end_ns = monotonic_ns();
        uint32_t state = RUNNING;
        kernel.state.compare_exchange_strong(state, DONE, std::memory_order_acq_rel);
    }
    return 0;
}

} // namespace collwire::cupti
