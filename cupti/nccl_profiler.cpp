// SPDX-License-Identifier: Apache-2.0
#include "nccl_profiler.h"

#include "clock.h"
#include "probes.h"

#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>
#include <utility>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 // Linux 4.14
#endif

namespace collwire::cupti {

void on_exit_of_process();

namespace {

constexpr uint64_t REPORT_NS = 1'000'000'000, DRAIN_NS = 1'000'000'000;
// What follows an operation tells more of the GPU's clock: half a second of it is waited for.
constexpr uint64_t HELD_NS = 500'000'000;
constexpr int WAIT_MS = 1000, WAIT_OF_EXIT_MS = 200;

} // namespace

bool NcclProfiler::take_tables() {
    if (tables_.load(std::memory_order_relaxed)) {
        empty_tables();
        return true;
    }
    void *memory = mmap(nullptr, sizeof(Tables), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    // A child of a fork sees zeros, and so records nothing.
    if (madvise(memory, sizeof(Tables), MADV_WIPEONFORK) != 0) {
        munmap(memory, sizeof(Tables));
        return false;
    }
    tables_.store(static_cast<Tables *>(memory), std::memory_order_release); // all zeros
    return true;
}

// The mapping stays: NCCL may be in an event. Its pages go, and read as zeros.
void NcclProfiler::empty_tables() {
    if (Tables *tables = tables_.load(std::memory_order_relaxed))
        madvise(tables, sizeof(Tables), MADV_DONTNEED);
    first_kernel_ = last_seen_kernel_ = next_kernel_.load(std::memory_order_relaxed);
}

NcclProfiler::Tables *NcclProfiler::recording() const {
    Tables *tables = tables_.load(std::memory_order_acquire);
    return tables && tables->is_recording.load(std::memory_order_relaxed) ? tables : nullptr;
}

void NcclProfiler::begin(cw_gpu_state cupti, uint64_t now_ns) {
    cupti_ = cupti;
    begin_ns_ = now_ns;
    if (!take_tables()) {
        if (!std::exchange(is_refused_, true))
            report(CW_GPU_REFUSED, CW_GPU_REASON_NO_MEMORY, 0, 0);
        return;
    }
    has_memory_ = true;
    for (Context &context : contexts_)
        context.clock = {};
    clock_error_ns_ = 0;
    is_error_unknown_ = false;
    tables_.load(std::memory_order_relaxed)->is_recording.store(1, std::memory_order_release);
    mask_.want(true, now_ns);
    state_ = State::Waiting;
}

void NcclProfiler::poll(bool is_wanted, cw_gpu_state cupti) {
    if (!lock_.take(WAIT_MS))
        return;
    if (is_exiting_)
        return lock_.release();
    const uint64_t now_ns = monotonic_ns();
    uint64_t unfinished = 0;
    if (state_ != State::Idle) {
        mask_.poll(now_ns);
        drain(false, unfinished);
    }
    switch (state_.load(std::memory_order_relaxed)) {
    case State::Idle:
        if (is_wanted && is_used())
            begin(cupti, now_ns);
        else if (!is_wanted)
            is_refused_ = false;
        break;
    case State::Waiting:
        if (mask_.is_on()) {
            state_ = State::Armed;
            reported_ns_ = now_ns;
            report(CW_GPU_ARMED, CW_GPU_REASON_NONE, begin_ns_,
                   std::max(mask_.changed_ns(), begin_ns_));
        } else if ((mask_.is_refused() || mask_.is_late()) && !std::exchange(is_refused_, true)) {
            report(CW_GPU_REFUSED, mask_.is_late() ? CW_GPU_REASON_LATE : CW_GPU_REASON_THREADS, 0,
                   0);
        }
        [[fallthrough]];
    case State::Armed:
        if (!is_wanted) {
            begin_ns_ = now_ns;
            mask_.want(false, now_ns);
            state_ = State::Leaving;
        } else if (state_ == State::Armed && now_ns - reported_ns_ >= REPORT_NS) {
            reported_ns_ = now_ns;
            report(CW_GPU_RUNNING, CW_GPU_REASON_NONE, 0, 0);
        }
        break;
    case State::Leaving:
        if (mask_.is_off()) {
            off_ns_ = now_ns;
            state_ = State::Draining;
        }
        break;
    case State::Draining:
        if (unfinished != 0 && now_ns - off_ns_ < DRAIN_NS)
            break;
        tables_.load(std::memory_order_relaxed)->is_recording.store(0, std::memory_order_release);
        drain(true, unfinished);
        empty_tables();
        has_memory_ = false;
        state_ = State::Idle;
        report(CW_GPU_DISARMED, CW_GPU_REASON_NONE, begin_ns_,
               std::max(mask_.changed_ns(), begin_ns_));
        break;
    }
    free_contexts();
    lock_.release();
}

void NcclProfiler::at_exit() {
    if (!lock_.take(WAIT_OF_EXIT_MS))
        return;
    if (!std::exchange(is_exiting_, true) && is_used()) {
        uint64_t unfinished = 0;
        if (state_ != State::Idle) {
            drain(true, unfinished);
            tables_.load(std::memory_order_relaxed)
                ->is_recording.store(0, std::memory_order_release);
        }
        report(CW_GPU_EXITING, CW_GPU_REASON_NONE, 0, 0);
    }
    lock_.release();
}

void NcclProfiler::free_contexts() {
    for (Context &context : contexts_)
        if (context.state.load(std::memory_order_acquire) == CLOSED) {
            clock_breaks_ += context.clock.breaks();
            context.clock = {};
            context.state.store(FREE, std::memory_order_release);
        }
}

void NcclProfiler::report(cw_gpu_state state, cw_gpu_reason reason, uint64_t begin_ns,
                          uint64_t end_ns) {
    cw_gpu_profiler_item item = {};
    item.state = state;
    item.reason = reason;
    item.cupti_state = cupti_;
    item.api_version = version_.load(std::memory_order_relaxed);
    item.begin_ns = begin_ns;
    item.end_ns = end_ns;
    item.channels = channels_;
    item.orphans = orphans_;
    item.dropped = dropped_.load(std::memory_order_relaxed);
    item.tasks = next_task_.load(std::memory_order_relaxed);
    item.calls = calls_.load(std::memory_order_relaxed);
    item.memory_bytes = has_memory_ ? sizeof(Tables) : 0;
    item.clock_error_ns = is_error_unknown_ ? 0 : clock_error_ns_;
    item.clock_breaks = clock_breaks_;
    for (const Context &context : contexts_) {
        item.clock_breaks += context.clock.breaks();
        item.out_of_step += context.state.load(std::memory_order_relaxed) == USED &&
                            context.is_out_of_step.load(std::memory_order_relaxed);
    }
    item.communicators = communicators_.load(std::memory_order_relaxed);
    hand_over(CW_GPU_ITEM_PROFILER, &item, 1);
}

void NcclProfiler::convert(Kernel &kernel, bool is_done, cw_gpu_channel_item &item) {
    item = kernel.task.item;
    const Context &context = contexts_[kernel.task.context];
    if (item.api_version < nccl::FIRST_WITH_GPU_TIMES) {
        item.flags |= CW_GPU_CHANNEL_SEEN;
        item.start_ns = kernel.seen_start_ns;
        item.end_ns = is_done ? kernel.seen_end_ns : 0;
        is_error_unknown_ = true;
    } else {
        uint64_t error_ns = 0;
        item.start_ns =
            context.clock.to_monotonic(kernel.gpu_start_ns, kernel.seen_start_ns, error_ns);
        if (is_done)
            item.end_ns = kernel.gpu_end_ns - kernel.gpu_start_ns + item.start_ns;
        if (is_done && kernel.gpu_end_ns < kernel.gpu_start_ns)
            item.flags |= CW_GPU_CHANNEL_ODD_TIME;
        is_error_unknown_ = is_error_unknown_ || error_ns == 0;
        clock_error_ns_ = std::max(clock_error_ns_, error_ns);
    }
    if (!is_done)
        item.flags |= CW_GPU_CHANNEL_RUNNING;
    if (context.is_out_of_step.load(std::memory_order_relaxed))
        item.flags |= CW_GPU_CHANNEL_OUT_OF_STEP;
    orphans_ += (item.flags & CW_GPU_CHANNEL_NO_TASK) != 0;
    ++channels_;
}

// Twice over what has ended: a clock that knows all of it converts better.
void NcclProfiler::drain(bool is_last, uint64_t &unfinished) {
    Tables *tables = tables_.load(std::memory_order_relaxed);
    if (!tables)
        return;
    const uint64_t end = next_kernel_.load(std::memory_order_acquire) + 1;
    // All places once, where one has been taken for long.
    first_kernel_ = std::max(first_kernel_, end > KERNELS ? end - KERNELS : 1);
    for (uint64_t ticket = first_kernel_; ticket < end; ++ticket) {
        const Kernel &kernel = tables->kernels[ticket % KERNELS];
        const uint32_t state = kernel.state.load(std::memory_order_acquire);
        if (state < RUNNING || kernel.task.item.api_version < nccl::FIRST_WITH_GPU_TIMES)
            continue;
        Context &context = contexts_[kernel.task.context];
        const cw_gpu_channel_item &item = kernel.task.item;
        context.clock.add_seen(kernel.gpu_start_ns, kernel.seen_start_ns);
        if (state == DONE)
            context.clock.add_seen(kernel.gpu_end_ns, kernel.seen_end_ns);
        // A plan that another thread posts is posted before its kernel is launched: a callback.
        const uint64_t before_ns = item.launch_ns != 0 ? item.launch_ns
                                   : item.api_version >= nccl::FIRST_WITH_API_EVENTS
                                       ? item.posted_ns
                                       : 0;
        if (before_ns == 0 || context.is_out_of_step.load(std::memory_order_relaxed))
            continue;
        // The mark of an earlier operation.
        if (context.clock.is_before(kernel.gpu_start_ns, before_ns))
            context.is_out_of_step.store(1, std::memory_order_relaxed);
        else
            context.clock.add_launch(before_ns, kernel.gpu_start_ns);
    }
    // Where there is room.
    const uint64_t now_ns = monotonic_ns();
    const bool is_held = !is_last && end - first_kernel_ < KERNELS / 2;
    cw_gpu_channel_item items[CW_GPU_BATCH_ITEMS];
    uint32_t count = 0;
    uint64_t first_pending = end;
    for (uint64_t ticket = first_kernel_; ticket < end; ++ticket) {
        Kernel &kernel = tables->kernels[ticket % KERNELS];
        const uint32_t state = kernel.state.load(std::memory_order_acquire);
        const bool waits = state == DONE && is_held && kernel.seen_end_ns + HELD_NS > now_ns;
        if (!waits && (state == DONE || (state == RUNNING && is_last))) {
            convert(kernel, state == DONE, items[count++]);
            // A late stop finds another ticket.
            kernel.ticket.store(0, std::memory_order_relaxed);
            kernel.state.store(FREE, std::memory_order_release);
            if (count == CW_GPU_BATCH_ITEMS) {
                hand_over(CW_GPU_ITEM_CHANNEL, items, count);
                count = 0;
            }
            continue;
        }
        unfinished += !waits && state != FREE ? 1 : 0;
        // A free one: a thread has the ticket and has not taken the place yet, or it was dropped.
        if (state != FREE || ticket > last_seen_kernel_)
            first_pending = std::min(first_pending, ticket);
    }
    if (count != 0)
        hand_over(CW_GPU_ITEM_CHANNEL, items, count);
    first_kernel_ = first_pending;
    last_seen_kernel_ = end - 1;
    // A thread that took a ticket and stood still was passed by.
    if (is_last && end - 1 - channels_ > dropped_.load(std::memory_order_relaxed))
        dropped_.store(end - 1 - channels_, std::memory_order_relaxed);
}

int NcclProfiler::init(int version, void **context, int *mask, uint64_t comm_hash, int rank) {
    *context = nullptr;
    static constinit std::atomic<bool> is_registered = false;
    if (!is_registered.exchange(true))
        atexit(on_exit_of_process);
    if (!lock_.take(WAIT_MS)) {
        *mask = 0;
        return 0;
    }
    const auto place = std::ranges::find_if(contexts_, [](const Context &one) {
        return one.state.load(std::memory_order_acquire) == FREE;
    });
    if (place != std::end(contexts_) && mask_.add(mask, version)) {
        place->version = version;
        place->mask = mask;
        place->comm_hash = comm_hash;
        place->rank = static_cast<uint32_t>(rank);
        place->launch_ns = place->posted_ns = place->plan = 0;
        place->launch_thread = 0;
        place->is_out_of_step = 0;
        place->state.store(USED, std::memory_order_release);
        *context = &*place;
        version_.store(static_cast<uint32_t>(version), std::memory_order_relaxed);
        communicators_.fetch_add(1, std::memory_order_relaxed);
    }
    lock_.release();
    return 0;
}

int NcclProfiler::finalize(void *context_pointer) {
    auto *context = static_cast<Context *>(context_pointer);
    if (!context || !lock_.take(WAIT_MS))
        return 0;
    mask_.remove(context->mask);
    communicators_.fetch_sub(1, std::memory_order_relaxed);
    context->state.store(state_ == State::Idle ? FREE : CLOSED, std::memory_order_release);
    lock_.release();
    return 0;
}

} // namespace collwire::cupti
