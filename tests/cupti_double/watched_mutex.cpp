// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/watched_mutex.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace collwire::cupti_double {
namespace {

thread_local const char *running_callback = nullptr;

// The test double of the recorder counts what a client does in its callbacks, if it is there.
void tell_watch(int begins) {
    using Watch = void (*)(int);
    static const auto watch =
        reinterpret_cast<Watch>(::dlsym(RTLD_DEFAULT, "collwire_watch_callback"));
    if (watch != nullptr)
        watch(begins);
}

} // namespace

void WatchedMutex::lock() {
    if (!mutex_.try_lock_for(patience_)) {
        log_.misuse(fmt::format(
            "thread {} waits for CUPTI's lock since {} ms; thread {} holds it in {}: a deadlock, "
            "if that waits for the first",
            this_thread(), patience_.count(), holder_.load(), doing_.load()));
        mutex_.lock();
    }
    holder_ = this_thread();
    doing_ = "CUPTI";
}

void WatchedMutex::unlock() {
    holder_ = 0;
    mutex_.unlock();
}

InBufferCallback::InBufferCallback(WatchedMutex &mutex, const char *which) : mutex_(mutex) {
    running_callback = which;
    mutex_.holder_does(which);
    tell_watch(1);
}

InBufferCallback::~InBufferCallback() {
    tell_watch(0);
    running_callback = nullptr;
    mutex_.holder_does("CUPTI");
}

const char *InBufferCallback::of_this_thread() {
    return running_callback;
}

} // namespace collwire::cupti_double
