// SPDX-License-Identifier: Apache-2.0
#include "guest.h"

#include "loader.h"
#include "neighbours.h"
#include "probes.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace collwire::cupti {

// Defined with the one instance, in injection.cpp: CUPTI's callbacks have no argument for it.
void on_request(uint8_t **buffer, size_t *bytes, size_t *max_records);
void on_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
                  size_t valid_bytes);
void on_exit_of_process();

namespace {

constexpr uint64_t FLUSH_NS = 1'000'000'000;
// Kernels arrive after their end: a window is handed over when they surely have.
constexpr uint64_t WINDOW_DELAY_NS = 1'500'000'000;
constexpr uint64_t DRAIN_NS = 1'000'000'000;
constexpr uint64_t RETRY_NS = 1'000'000'000;
constexpr int MAX_UNREADY = 60; // a minute
// CUPTI's own thread hands over full buffers this often: 64 of them hold 160,000 kernels, so 3.2
// million a second.
constexpr uint32_t FLUSH_PERIOD_MS = 50;
constexpr int WAIT_OF_GUEST_MS = 1000, WAIT_OF_NEIGHBOUR_MS = 1000, WAIT_OF_EXIT_MS = 200;
constexpr const char *IN_SPITE_OF_ALL =
    "COLLWIRE_CUPTI_FORCE"; // environment: trace where CUPTI's other users cannot be seen

static_assert(Buffers::BUFFER_BYTES * Buffers::COUNT == CW_GPU_BUFFER_BYTES);

void ignore(void *, int, uint32_t, const void *) {}

} // namespace

void Guest::poll() {
    const unsigned recorders = wanting_recorders();
    const bool is_wanted_now = recorders != 0;
    if (!lock_.take(WAIT_OF_GUEST_MS))
        return;
    if (!is_alive())
        return lock_.release();
    const uint64_t now_ns = monotonic_ns();
    cw_gpu_state_item answer = {};
    if (recorders > std::exchange(recorders_, recorders))
        restate();
    if (state_ != CW_GPU_ARMED && !is_draining_)
        give_back_memory(); // what CUPTI still held the last time
    if (state_ == CW_GPU_ARMED) {
        if (!is_wanted_now)
            disarm(answer);
        else if (now_ns - flushed_ns_ >= FLUSH_NS)
            flush(answer);
    } else if (is_draining_) {
        keep_error(functions_.flush_all(0));
        if (error_ != SUCCESS || buffers_.lent() == 0 || now_ns - disarmed_ns_ > DRAIN_NS)
            finish(CW_GPU_DISARMED, answer);
    } else if (is_wanted_now && (tried_ns_ == 0 || now_ns - tried_ns_ >= RETRY_NS)) {
        tried_ns_ = now_ns;
        arm();
    } else if (!is_wanted_now) {
        tried_ns_ = 0;
    }
    // It did not wait any longer for the lock.
    if (is_neighbour_unserved_.exchange(false, std::memory_order_acq_rel))
        step_aside(last_neighbour_function(), true);
    lock_.release();
}

bool Guest::must_not_arm(cw_gpu_state_item &answer) {
    const bool is_forced = getenv(IN_SPITE_OF_ALL) != nullptr;
    if (has_active_neighbour() || is_neighbour_resting()) {
        answer.reason = CW_GPU_REASON_OTHER_ACTIVITY;
        strncpy(answer.owner, last_neighbour_function(), sizeof answer.owner - 1);
        set(CW_GPU_YIELDED, answer);
        return true;
    }
    bool is_ambiguous = false;
    const bool is_mapped = mapped_libcupti(is_ambiguous) != nullptr;
    if (!has_functions_)
        is_own_libcupti_ = !is_mapped;
    if ((is_ambiguous || (!is_own_libcupti_ && has_unseen_caller())) && !is_forced) {
        answer.reason = CW_GPU_REASON_UNSEEN_CALLER;
        set(CW_GPU_REFUSED, answer);
        return true;
    }
    if (!has_functions_)
        has_functions_ = load_(functions_, api_version_, false);
    if (!has_functions_ || api_version_ < FIRST_API) {
        answer.reason = has_functions_ ? CW_GPU_REASON_OLD_CUPTI : CW_GPU_REASON_NO_CUPTI;
        set(CW_GPU_REFUSED, answer);
        return true;
    }
    // PyTorch's profiler keeps the slot after its first profile. Its calls are seen, and records
    // need no subscription.
    if (has_subscribed_neighbour())
        return false;
    void *subscriber = nullptr;
    SubscriberParams params = {};
    params.struct_bytes = offsetof(SubscriberParams, allow_others);
    params.name = "collwire";
    params.owner = answer.owner;
    params.owner_bytes = sizeof answer.owner;
    const Result result = functions_.subscribe_v2 && api_version_ >= NAMED_SUBSCRIBERS_API
                              ? functions_.subscribe_v2(&subscriber, ignore, nullptr, &params)
                              : functions_.subscribe(&subscriber, ignore, nullptr);
    if (result == SUCCESS) {
        // Only asked: a subscription costs each launch something.
        const Result left = functions_.unsubscribe(subscriber);
        if (left != SUCCESS)
            fail(left, answer);
        return left != SUCCESS;
    }
    answer.result = result;
    // CUPTI answers the same before CUDA is there.
    if (result == MULTIPLE_SUBSCRIBERS && is_cuda_ready()) {
        if (is_forced)
            return false;
        answer.reason = CW_GPU_REASON_SUBSCRIBED;
        set(CW_GPU_YIELDED, answer);
        return true;
    }
    // CUPTI is not ready before CUDA is.
    if (++unready_ < MAX_UNREADY) {
        answer.reason = CW_GPU_REASON_CUPTI;
        set(CW_GPU_NO_CUDA, answer);
    } else {
        fail(result, answer);
    }
    return true;
}

void Guest::arm() {
    cw_gpu_state_item answer = {};
    if (must_not_arm(answer))
        return;
    if (!buffers_.take() || !windows_.take()) {
        give_back_memory();
        answer.reason = CW_GPU_REASON_NO_MEMORY;
        return set(CW_GPU_REFUSED, answer);
    }
    kernels_.begin();
    clock_.reset();
    error_ = SUCCESS;
    if (!clock_.read_pair(functions_))
        return fail(INVALID_OPERATION, answer);
    if (!has_registered_)
        atexit(on_exit_of_process);
    // Buffers that a neighbour left with CUPTI go back to it, before they would take the guest's
    // records.
    if (neighbours_receiver().request)
        functions_.flush_all(0);
    is_receiving_.store(true, std::memory_order_release);
    Result result = functions_.register_callbacks(on_request, on_completed);
    has_registered_ = true;
    if (result == SUCCESS)
        result = functions_.flush_period(FLUSH_PERIOD_MS);
    answer.begin_ns = monotonic_ns();
    if (result == SUCCESS)
        result = functions_.enable(CONCURRENT_KERNEL);
    answer.end_ns = monotonic_ns();
    if (result != SUCCESS)
        return fail(result, answer);
    flushed_ns_ = answer.end_ns;
    set(CW_GPU_ARMED, answer);
}

void Guest::disarm(cw_gpu_state_item &answer) {
    stop();
    is_draining_ = true;
    state_ = CW_GPU_DISARMED;
    if (error_ == SUCCESS && buffers_.lent() != 0)
        return; // kernels still run: the next polls fetch them
    finish(CW_GPU_DISARMED, answer);
}

void Guest::keep_error(Result result) {
    if (error_ == SUCCESS)
        error_ = result;
}

void Guest::stop() {
    disarming_ns_ = monotonic_ns();
    // A neighbour that did not wait for the guest has it enabled now.
    if (!has_neighbour_enabled(CONCURRENT_KERNEL))
        keep_error(functions_.disable(CONCURRENT_KERNEL));
    disarmed_ns_ = monotonic_ns();
    clock_.read_pair(functions_);
    keep_error(functions_.flush_all(0));
}

// Everything that CUPTI has, also of kernels that run on, and the memory back.
void Guest::finish(cw_gpu_state state, cw_gpu_state_item &answer) {
    const bool has_unfinished = buffers_.lent() != 0;
    if (has_unfinished)
        keep_error(functions_.flush_all(FLUSH_FORCED));
    keep_error(kernels_.error());
    is_draining_ = false;
    stand_back();
    windows_.hand_over_until(monotonic_ns() + Windows::WINDOW_NS);
    answer.begin_ns = disarming_ns_;
    answer.end_ns = disarmed_ns_;
    give_back_memory();
    // Without it each node of a graph goes on to cost more. It would take CUPTI from a neighbour,
    // and may wait for the GPU: not where a kernel hangs.
    if (state == CW_GPU_DISARMED && api_version_ >= FINALIZE_API && !has_unfinished &&
        error_ == SUCCESS && !has_known_neighbour())
        keep_error(functions_.finalize());
    if (error_ != SUCCESS)
        return fail(error_, answer);
    set(state, answer);
}

// CUPTI is as the neighbour left it.
void Guest::stand_back() {
    is_receiving_.store(false, std::memory_order_release);
    functions_.flush_period(neighbours_flush_period_ms());
    const Receiver theirs = neighbours_receiver();
    // While CUPTI holds buffers of the guest they must not go to the neighbour.
    if (theirs.request && buffers_.lent() == 0)
        functions_.register_callbacks(theirs.request, theirs.completed);
}

// A callback that still reads a buffer adds to the windows: they go when all buffers are back.
void Guest::give_back_memory() {
    if (buffers_.give_back())
        windows_.give_back();
}

void Guest::flush(cw_gpu_state_item &answer) {
    flushed_ns_ = monotonic_ns();
    bool is_ambiguous = false;
    mapped_libcupti(is_ambiguous);
    if (is_ambiguous && !getenv(IN_SPITE_OF_ALL)) {
        stop();
        answer.reason = CW_GPU_REASON_UNSEEN_CALLER;
        return finish(CW_GPU_REFUSED, answer);
    }
    if (!clock_.read_pair(functions_))
        keep_error(INVALID_OPERATION);
    keep_error(functions_.flush_all(0));
    keep_error(kernels_.error());
    if (error_ != SUCCESS) {
        stop();
        return finish(CW_GPU_FAILED, answer);
    }
    windows_.hand_over_until(flushed_ns_ - WINDOW_DELAY_NS);
    report(CW_GPU_RUNNING, answer);
}

void Guest::yield(const char *function) {
    if (!lock_.take(WAIT_OF_NEIGHBOUR_MS))
        return is_neighbour_unserved_.store(true, std::memory_order_release);
    step_aside(function, false);
    lock_.release();
}

void Guest::step_aside(const char *function, bool is_late) {
    if (state_ != CW_GPU_ARMED && !is_draining_)
        return;
    if (is_late && neighbours_receiver().request) {
        // The neighbour may have registered in the meantime: the guest's buffers come to the guest,
        // and on_request() and on_completed() pass on what is the neighbour's.
        is_receiving_.store(false, std::memory_order_release);
        functions_.register_callbacks(on_request, on_completed);
    }
    if (state_ == CW_GPU_ARMED)
        stop();
    ++yields_;
    cw_gpu_state_item answer = {};
    answer.reason = CW_GPU_REASON_OTHER_ACTIVITY;
    strncpy(answer.owner, function, sizeof answer.owner - 1);
    finish(CW_GPU_YIELDED, answer);
}

void Guest::at_exit() {
    is_exiting_.store(true, std::memory_order_release);
    if (!lock_.take(WAIT_OF_EXIT_MS))
        return;
    cw_gpu_state_item answer = {};
    if (state_ == CW_GPU_ARMED || is_draining_) {
        clock_.read_pair(functions_);
        functions_.flush_all(FLUSH_FORCED);
        windows_.hand_over_until(monotonic_ns() + Windows::WINDOW_NS);
        set(CW_GPU_EXITING, answer);
    }
    state_ = CW_GPU_EXITING;
    lock_.release();
}

void Guest::fail(Result result, cw_gpu_state_item &answer) {
    if (has_registered_)
        stand_back();
    give_back_memory();
    answer.reason = CW_GPU_REASON_CUPTI;
    answer.result = result;
    set(CW_GPU_FAILED, answer);
}

// One more recorder: it knows neither the names of this trace nor why there is none.
void Guest::restate() {
    stated_ = {};
    if (state_ == CW_GPU_ARMED)
        kernels_.hand_over_names();
}

// What was stated before is not repeated: the guest tries again each second.
void Guest::set(cw_gpu_state state, cw_gpu_state_item &answer) {
    state_ = state;
    if (stated_.state == state && stated_.reason == answer.reason &&
        stated_.result == answer.result &&
        strncmp(stated_.owner, answer.owner, sizeof answer.owner) == 0)
        return;
    report(state, answer);
}

void Guest::report(cw_gpu_state state, cw_gpu_state_item &answer) {
    answer.state = state;
    answer.cupti_version = api_version_;
    answer.dropped = dropped_.load(std::memory_order_relaxed);
    answer.buffers_lacking = buffers_.lacking();
    answer.memory_bytes = buffers_.bytes();
    answer.clock_error_ns = clock_.error_ns();
    answer.yields = yields_;
    answer.not_summed = windows_.not_summed();
    kernels_.add_counts(answer);
    hand_over(CW_GPU_ITEM_STATE, &answer, 1);
    stated_ = answer;
}

void Guest::lend(uint8_t **buffer, size_t *bytes, size_t *max_records) {
    *max_records = 0;
    *buffer = is_receiving() ? buffers_.lend() : nullptr;
    *bytes = *buffer ? Buffers::BUFFER_BYTES : 0;
    // An old CUPTI crashes without a buffer.
    if (!*buffer && api_version_ < NULL_BUFFER_API) {
        *buffer = buffers_.lend_waste();
        *bytes = Buffers::WASTE_BYTES;
    }
}

void Guest::take_back(uint8_t *buffer, size_t valid_bytes) {
    if (!buffer || buffers_.is_waste(buffer))
        return;
    if (valid_bytes != 0)
        kernels_.read(functions_, buffer, valid_bytes);
    size_t dropped = 0;
    if (functions_.get_dropped(nullptr, 0, &dropped) == SUCCESS)
        dropped_.fetch_add(dropped, std::memory_order_relaxed);
    buffers_.return_buffer(buffer);
}

} // namespace collwire::cupti
