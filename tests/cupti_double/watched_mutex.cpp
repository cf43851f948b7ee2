// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/watched_mutex.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace collwire::cupti_double {
namespace {

thread_local const char *running_callback = nullptr;

// The test double of the recorder counts what a client does in its callbacks, if it is there.
using Watch = void (*)(int);
Watch find_watch(const char *name) {
    return reinterpret_cast<Watch>(::dlsym(RTLD_DEFAULT, name));
}

void tell_watch(bool is_begin) {
    static const Watch watch = find_watch("collwire_watch_callback");
    if (watch != nullptr)
        watch(is_begin ? 1 : 0);
}

void pause_watch(bool is_begin) {
    static const Watch pause = find_watch("collwire_pause_watch");
    if (pause != nullptr)
        pause(is_begin ? 1 : 0);
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
    tell_watch(true);
}

InBufferCallback::~InBufferCallback() {
    tell_watch(false);
    running_callback = nullptr;
    mutex_.holder_does("CUPTI");
}

CalledInCallback::CalledInCallback() {
    pause_watch(true);
}

CalledInCallback::~CalledInCallback() {
    pause_watch(false);
}

const char *InBufferCallback::of_this_thread() {
    return running_callback;
}

} // namespace collwire::cupti_double
