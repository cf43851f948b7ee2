// SPDX-License-Identifier: Apache-2.0
// Part of the test double of the recorder: counts what a client of CUPTI does in CUPTI's buffer
// callbacks, where it must neither allocate nor wait. The double of CUPTI tells when a callback
// runs, and the double of the recorder when its own code does.
#include "callback_watch.h"

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {
// The C library's own. NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void __libc_free(void *memory);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
}

namespace {

std::atomic<uint64_t> allocations = 0, locks = 0, system_calls = 0, callbacks = 0;
thread_local int depth = 0, paused = 0;

void count(std::atomic<uint64_t> &what) {
    if (depth != 0 && paused == 0)
        what.fetch_add(1, std::memory_order_relaxed);
}

template <class Function> Function next(const char *name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

} // namespace

CallbackCounts callback_counts() {
    return {callbacks, allocations, locks, system_calls};
}

PauseOfWatch::PauseOfWatch() {
    ++paused;
}
PauseOfWatch::~PauseOfWatch() {
    --paused;
}

EXPORT void collwire_watch_callback(int is_begin) {
    depth += is_begin ? 1 : -1;
    if (is_begin)
        callbacks.fetch_add(1, std::memory_order_relaxed);
}

// A function of CUPTI's double that the callback calls.
EXPORT void collwire_pause_watch(int is_begin) {
    paused += is_begin ? 1 : -1;
}

EXPORT void *malloc(size_t bytes) noexcept {
    count(allocations);
    return __libc_malloc(bytes);
}

EXPORT void *calloc(size_t number, size_t bytes) noexcept {
    count(allocations);
    return __libc_calloc(number, bytes);
}

EXPORT void *realloc(void *memory, size_t bytes) noexcept {
    count(allocations);
    return __libc_realloc(memory, bytes);
}

EXPORT void free(void *memory) noexcept {
    if (memory)
        count(allocations);
    __libc_free(memory);
}

EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex) noexcept {
    static const auto theirs = next<int (*)(pthread_mutex_t *)>("pthread_mutex_lock");
    count(locks);
    return theirs(mutex);
}

// How the guest's own lock waits.
EXPORT long syscall(long number, ...) noexcept {
    using Function = long (*)(long, long, long, long, long, long, long);
    static const auto theirs = next<Function>("syscall");
    count(system_calls);
    va_list list;
    va_start(list, number);
    long words[6];
    for (long &word : words)
        word = va_arg(list, long);
    va_end(list);
    return theirs(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
