// SPDX-License-Identifier: Apache-2.0
#include "nccl_profiler_mask.h"

#include "nccl_profiler_abi.h"

namespace collwire::cupti {
namespace {

// A group that is open for longer ended with an error, and NCCL did not tell.
constexpr uint64_t LOST_GROUP_NS = 10'000'000'000;

uintptr_t thread_id() {
    return reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
}

} // namespace

int ProfilerMask::watching(int version) {
    return version >= nccl::FIRST_WITH_API_EVENTS ? nccl::GROUP_API : nccl::GROUP;
}

int ProfilerMask::all(int version) {
    return static_cast<int>(nccl::KERNEL_CHANNEL) | watching(version) |
           (version >= nccl::FIRST_WITH_API_EVENTS ? static_cast<int>(nccl::KERNEL_LAUNCH) : 0);
}

void ProfilerMask::set(const Library &library, int mask) {
    if (int *place = library.mask.load(std::memory_order_acquire))
        __atomic_store_n(place, mask, __ATOMIC_RELEASE);
}

bool ProfilerMask::add(int *mask, int version) {
    Library *free = nullptr;
    for (Library &library : libraries_) {
        if (library.mask.load(std::memory_order_relaxed) == mask) {
            ++library.communicators;
            return true;
        }
        if (!free && !library.mask.load(std::memory_order_relaxed))
            free = &library;
    }
    if (!free) {
        __atomic_store_n(mask, 0, __ATOMIC_RELEASE);
        return false;
    }
    free->version = version;
    free->communicators = 1;
    free->mask.store(mask, std::memory_order_release);
    // The first communicator has no operation yet.
    const bool is_on = is_wanted_.load(std::memory_order_relaxed);
    free->is_on.store(is_on, std::memory_order_relaxed);
    set(*free, is_on ? all(version) : 0);
    return true;
}

void ProfilerMask::remove(int *mask) {
    for (Library &library : libraries_) {
        if (library.mask.load(std::memory_order_relaxed) != mask || --library.communicators != 0)
            continue;
        set(library, 0);
        library.is_on.store(false, std::memory_order_relaxed);
        library.is_late.store(false, std::memory_order_relaxed);
        library.mask.store(nullptr, std::memory_order_release);
    }
}

void ProfilerMask::want(bool is_on, uint64_t now_ns) {
    is_wanted_.store(is_on, std::memory_order_relaxed);
    is_refused_.store(false, std::memory_order_relaxed);
    event_ns_.store(now_ns, std::memory_order_relaxed);
    wanted_ns_.store(now_ns, std::memory_order_relaxed);
    for (Library &library : libraries_) {
        if (!is_on || library.is_on.load(std::memory_order_relaxed) ||
            !library.mask.load(std::memory_order_relaxed))
            continue;
        if (library.version >= nccl::FIRST_FROM_START_ALONE)
            library.is_late.store(true, std::memory_order_relaxed);
        else
            set(library, watching(library.version));
    }
}

bool ProfilerMask::is_settled() const {
    const bool wanted = is_wanted_.load(std::memory_order_relaxed);
    for (const Library &library : libraries_)
        if (library.mask.load(std::memory_order_acquire) &&
            !(wanted && library.is_late.load(std::memory_order_relaxed)) &&
            library.is_on.load(std::memory_order_relaxed) != wanted)
            return false;
    return true;
}

bool ProfilerMask::is_on() const {
    bool one = false;
    for (const Library &library : libraries_)
        one = one || library.is_on.load(std::memory_order_acquire);
    return one && is_settled();
}

bool ProfilerMask::is_late() const {
    for (const Library &library : libraries_)
        if (library.is_late.load(std::memory_order_relaxed))
            return true;
    return false;
}

bool ProfilerMask::is_off() const {
    for (const Library &library : libraries_)
        if (library.is_on.load(std::memory_order_acquire))
            return false;
    return true;
}

bool ProfilerMask::has_open_group(uint64_t now_ns) const {
    for (const Thread &thread : threads_) {
        const uint64_t opened_ns = thread.opened_ns.load(std::memory_order_acquire);
        if (opened_ns != 0 && (opened_ns > now_ns || now_ns - opened_ns < LOST_GROUP_NS))
            return true;
    }
    return is_full_.load(std::memory_order_relaxed);
}

void ProfilerMask::change(uint64_t now_ns) {
    const bool wanted = is_wanted_.load(std::memory_order_relaxed);
    for (Library &library : libraries_) {
        if (!library.mask.load(std::memory_order_acquire) ||
            (wanted && library.is_late.load(std::memory_order_relaxed)))
            continue;
        set(library, wanted ? all(library.version) : 0);
        if (library.is_on.exchange(wanted, std::memory_order_acq_rel) != wanted)
            changed_ns_.store(now_ns, std::memory_order_relaxed);
    }
}

void ProfilerMask::poll(uint64_t now_ns) {
    if (!is_wanted_.load(std::memory_order_relaxed) && is_off())
        return change(now_ns); // where events of groups were asked for, and no more
    const uint64_t event_ns = event_ns_.load(std::memory_order_acquire);
    if (!is_settled() && now_ns > event_ns && now_ns - event_ns >= QUIET_NS &&
        !has_open_group(now_ns))
        change(now_ns);
}

ProfilerMask::Thread *ProfilerMask::own_thread() {
    const uintptr_t id = thread_id();
    for (size_t step = 0; step < THREADS; ++step) {
        Thread &thread = threads_[(id / 4096 + step) % THREADS];
        uintptr_t owner = thread.id.load(std::memory_order_relaxed);
        if (owner == 0 && thread.id.compare_exchange_strong(owner, id)) {
            n_threads_.fetch_add(1, std::memory_order_relaxed);
            return &thread;
        }
        if (owner == id)
            return &thread;
    }
    is_full_.store(true, std::memory_order_relaxed);
    return nullptr;
}

// NCCL tells the start of a group again where a group has many operations.
void ProfilerMask::group_opened(uint64_t now_ns) {
    event_ns_.store(now_ns, std::memory_order_relaxed);
    if (Thread *thread = own_thread())
        thread->opened_ns.store(now_ns, std::memory_order_release);
}

bool ProfilerMask::group_closed(uint64_t now_ns) {
    event_ns_.store(now_ns, std::memory_order_relaxed);
    if (Thread *thread = own_thread())
        thread->opened_ns.store(0, std::memory_order_release);
    if (is_settled() || has_open_group(now_ns))
        return false;
    // A group that was open before its events were asked for is known at its next operation.
    const uint64_t wanted_ns = wanted_ns_.load(std::memory_order_relaxed);
    return !is_wanted_.load(std::memory_order_relaxed) ||
           (now_ns > wanted_ns && now_ns - wanted_ns >= FIRST_EVENTS_NS);
}

// All operations of the group that is launched have their mask. Of other threads nothing is known.
bool ProfilerMask::plan_started(uint64_t now_ns) {
    event_ns_.store(now_ns, std::memory_order_relaxed);
    own_thread();
    if (is_settled())
        return false;
    if (n_threads_.load(std::memory_order_relaxed) == 1)
        return true;
    is_refused_.store(true, std::memory_order_relaxed);
    return false;
}

} // namespace collwire::cupti
