// SPDX-License-Identifier: Apache-2.0
#include "guest.h"

#include "loader.h"
#include "neighbours.h"
#include "probes.h"

#include <cstdlib>
#include <cstring>

namespace collwire::cupti {

// Defined with the one instance, in injection.cpp: CUPTI's callbacks have no argument for it.
void on_request(uint8_t** buffer, size_t* bytes, size_t* max_records);
void on_completed(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t valid_bytes);
void on_exit_of_process();

namespace {

constexpr uint64_t FLUSH_NS = 1'000'000'000;
// Kernels arrive after their end: a window is handed over when they surely have.
constexpr uint64_t WINDOW_DELAY_NS = 1'500'000'000;
constexpr uint64_t DRAIN_NS = 1'000'000'000;
constexpr uint64_t RETRY_NS = 1'000'000'000;
// A tool that stopped its records may start again at once.
constexpr uint64_t NEIGHBOUR_REST_NS = 1'000'000'000;
constexpr int MAX_UNREADY = 60; // a minute
// CUPTI's own thread hands over full buffers this often: 64 of them hold 80,000 kernels, so 1.6 million a second.
constexpr uint32_t FLUSH_PERIOD_MS = 50;
constexpr int WAIT_OF_GUEST_MS = 1000, WAIT_OF_PROGRAM_MS = 200;
constexpr const char* IN_SPITE_OF_ALL = "COLLWIRE_CUPTI_FORCE"; // environment: trace where CUPTI's other users cannot be seen

void ignore(void*, int, uint32_t, const void*) {}

} // namespace

void Guest::poll() {
  const bool is_wanted_now = is_wanted();
  if (!lock_.take(WAIT_OF_GUEST_MS)) return;
  if (!is_alive()) return lock_.release();
  const uint64_t now_ns = monotonic_ns();
  cw_gpu_state_item answer = {};
  if (state_ == CW_GPU_ARMED) {
    if (!is_wanted_now) disarm(answer);
    else if (now_ns - flushed_ns_ >= FLUSH_NS) flush();
  } else if (is_draining_) {
    functions_.flush_all(0);
    if (buffers_.lent() == 0 || now_ns - disarmed_ns_ > DRAIN_NS) {
      finish(answer);
      set(CW_GPU_DISARMED, answer);
    }
  } else if (is_wanted_now && (tried_ns_ == 0 || now_ns - tried_ns_ >= RETRY_NS)) {
    tried_ns_ = now_ns;
    arm();
  } else if (!is_wanted_now) {
    tried_ns_ = 0;
  }
  lock_.release();
}

bool Guest::must_not_arm(cw_gpu_state_item& answer) {
  const bool is_forced = getenv(IN_SPITE_OF_ALL) != nullptr;
  if (has_active_neighbour() || (last_neighbour_call_ns() != 0 && monotonic_ns() - last_neighbour_call_ns() < NEIGHBOUR_REST_NS)) {
    answer.reason = CW_GPU_REASON_OTHER_ACTIVITY;
    strncpy(answer.owner, last_neighbour_function(), sizeof answer.owner - 1);
    set(CW_GPU_YIELDED, answer);
    return true;
  }
  if (!has_functions_) {
    bool is_ambiguous = false;
    is_own_libcupti_ = mapped_libcupti(is_ambiguous) == nullptr;
    if (!is_own_libcupti_ && has_unseen_caller() && !is_forced) {
      answer.reason = CW_GPU_REASON_UNSEEN_CALLER;
      set(CW_GPU_REFUSED, answer);
      return true;
    }
    has_functions_ = load_functions(functions_, api_version_, false);
  }
  if (!has_functions_ || api_version_ < FIRST_API) {
    answer.reason = has_functions_ ? CW_GPU_REASON_OLD_CUPTI : CW_GPU_REASON_NO_CUPTI;
    set(CW_GPU_REFUSED, answer);
    return true;
  }
  void* subscriber = nullptr;
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
    functions_.unsubscribe(subscriber);
    return false;
  }
  answer.result = result;
  if (result == MULTIPLE_SUBSCRIBERS) {
    if (is_forced) return false;
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
  if (must_not_arm(answer)) return;
  if (!buffers_.take() || !windows_.take()) {
    buffers_.give_back();
    answer.reason = CW_GPU_REASON_NO_MEMORY;
    return set(CW_GPU_REFUSED, answer);
  }
  kernels_.begin();
  clock_.reset();
  if (!clock_.read_pair(functions_)) return fail(INVALID_OPERATION, answer);
  if (!has_registered_) atexit(on_exit_of_process);
  is_receiving_.store(true, std::memory_order_release);
  Result result = functions_.register_callbacks(on_request, on_completed);
  has_registered_ = true;
  if (result == SUCCESS) result = functions_.flush_period(FLUSH_PERIOD_MS);
  answer.begin_ns = monotonic_ns();
  if (result == SUCCESS) result = functions_.enable(CONCURRENT_KERNEL);
  answer.end_ns = monotonic_ns();
  if (result != SUCCESS) return fail(result, answer);
  flushed_ns_ = answer.end_ns;
  set(CW_GPU_ARMED, answer);
}

void Guest::disarm(cw_gpu_state_item& answer) {
  answer.begin_ns = monotonic_ns();
  answer.result = functions_.disable(CONCURRENT_KERNEL);
  answer.end_ns = disarmed_ns_ = monotonic_ns();
  clock_.read_pair(functions_);
  functions_.flush_all(0);
  is_draining_ = true;
  state_ = CW_GPU_DISARMED;
  if (buffers_.lent() != 0) return; // kernels still run: the next polls fetch them
  finish(answer);
  set(CW_GPU_DISARMED, answer);
}

// Everything that CUPTI has, also of kernels that run on, and the memory back.
void Guest::finish(cw_gpu_state_item& answer) {
  if (buffers_.lent() != 0) functions_.flush_all(FLUSH_FORCED);
  functions_.flush_period(0);
  is_draining_ = false;
  is_receiving_.store(false, std::memory_order_release);
  windows_.hand_over_until(monotonic_ns() + Windows::WINDOW_NS);
  if (answer.end_ns == 0) answer.end_ns = disarmed_ns_;
  windows_.give_back();
  buffers_.give_back();
  if (getenv("COLLWIRE_CUPTI_FINALIZE")) answer.result = functions_.finalize();
}

void Guest::flush() {
  flushed_ns_ = monotonic_ns();
  clock_.read_pair(functions_);
  functions_.flush_all(0);
  windows_.hand_over_until(flushed_ns_ - WINDOW_DELAY_NS);
  cw_gpu_state_item answer = {};
  report(CW_GPU_RUNNING, answer);
}

void Guest::yield(const char* function) {
  if (!lock_.take(WAIT_OF_PROGRAM_MS)) return;
  if (state_ == CW_GPU_ARMED || is_draining_) {
    cw_gpu_state_item answer = {};
    if (state_ == CW_GPU_ARMED) {
      answer.begin_ns = monotonic_ns();
      functions_.disable(CONCURRENT_KERNEL);
      answer.end_ns = disarmed_ns_ = monotonic_ns();
      clock_.read_pair(functions_);
      functions_.flush_all(0);
    }
    finish(answer);
    ++yields_;
    answer.reason = CW_GPU_REASON_OTHER_ACTIVITY;
    strncpy(answer.owner, function, sizeof answer.owner - 1);
    set(CW_GPU_YIELDED, answer);
  }
  lock_.release();
}

void Guest::at_exit() {
  if (!lock_.take(WAIT_OF_PROGRAM_MS)) return;
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

void Guest::fail(Result result, cw_gpu_state_item& answer) {
  is_receiving_.store(false, std::memory_order_release);
  windows_.give_back();
  buffers_.give_back();
  answer.reason = CW_GPU_REASON_CUPTI;
  answer.result = result;
  set(CW_GPU_FAILED, answer);
}

void Guest::set(cw_gpu_state state, cw_gpu_state_item& answer) {
  state_ = state;
  report(state, answer);
}

void Guest::report(cw_gpu_state state, cw_gpu_state_item& answer) {
  answer.state = state;
  answer.cupti_version = api_version_;
  answer.dropped = dropped_.load(std::memory_order_relaxed);
  answer.buffers_lacking = buffers_.lacking();
  answer.memory_bytes = buffers_.bytes();
  answer.clock_error_ns = clock_.error_ns();
  answer.yields = yields_;
  kernels_.add_counts(answer);
  hand_over(CW_GPU_ITEM_STATE, &answer, 1);
}

void Guest::lend(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *max_records = 0;
  *buffer = is_receiving_.load(std::memory_order_acquire) ? buffers_.lend() : nullptr;
  *bytes = *buffer ? Buffers::BUFFER_BYTES : 0;
}

void Guest::take_back(uint8_t* buffer, size_t valid_bytes) {
  if (!buffer) return;
  if (valid_bytes != 0) kernels_.read(functions_, buffer, valid_bytes);
  size_t dropped = 0;
  if (functions_.get_dropped(nullptr, 0, &dropped) == SUCCESS) dropped_.fetch_add(dropped, std::memory_order_relaxed);
  buffers_.return_buffer(buffer);
}

} // namespace collwire::cupti
