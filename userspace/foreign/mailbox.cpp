// SPDX-License-Identifier: Apache-2.0
#include "userspace/foreign/mailbox.h"

#include <sched.h>

#include "base/clock.h"

namespace collwire::foreign {
namespace {

constexpr std::uint64_t CALLER_WAITS_NS = 30'000;
constexpr std::uint64_t READER_WAITS_NS = 100'000;
constexpr int LOOKS_BETWEEN_CLOCKS = 32;

// On one CPU a loop keeps the other from answering.
bool has_two_cpus() {
    static const bool answer = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        return sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) > 1;
    }();
    return answer;
}

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Looks until the state is another, for a limited time. Returns it.
std::uint32_t look_while(const std::atomic<std::uint32_t> &state, std::uint32_t same,
                         std::uint64_t most_ns) {
    std::uint32_t now = state.load(std::memory_order_acquire);
    if (!has_two_cpus())
        return now;
    const std::uint64_t end_ns = monotonic_ns() + most_ns;
    while (now == same) {
        for (int i = 0; i < LOOKS_BETWEEN_CLOCKS && now == same; ++i) {
            relax();
            now = state.load(std::memory_order_acquire);
        }
        if (monotonic_ns() >= end_ns)
            break;
    }
    return now;
}

} // namespace

bool Mailbox::ask(const ReaderRequest &request) {
    if (state_.load(std::memory_order_acquire) != Ready)
        return false;
    request_ = request;
    std::uint32_t ready = Ready;
    return state_.compare_exchange_strong(ready, Requested);
}

bool Mailbox::wait(ReaderReply &reply) {
    if (look_while(state_, Requested, CALLER_WAITS_NS) == Requested) {
        std::uint32_t requested = Requested;
        if (state_.compare_exchange_strong(requested, Waited))
            return false;
    }
    reply = reply_;
    return true;
}

void Mailbox::wake() {
    std::uint32_t ready = Ready;
    (void)state_.compare_exchange_strong(ready, Sleeping);
}

bool Mailbox::next(ReaderRequest &request) {
    const std::uint32_t state = look_while(state_, Ready, READER_WAITS_NS);
    if (state == Ready) {
        std::uint32_t ready = Ready;
        if (state_.compare_exchange_strong(ready, Sleeping) || ready == Sleeping)
            return false;
    } else if (state == Sleeping) {
        return false;
    }
    request = request_;
    return true;
}

bool Mailbox::answer(const ReaderReply &reply) {
    reply_ = reply;
    return state_.exchange(Ready) == Requested;
}

void Mailbox::get_ready() {
    state_.store(Ready, std::memory_order_release);
}

} // namespace collwire::foreign
