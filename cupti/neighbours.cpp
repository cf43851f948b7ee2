// SPDX-License-Identifier: Apache-2.0
#include "neighbours.h"

#include "clock.h"
#include "control_lock.h"
#include "imports.h"
#include "loader.h"

#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

namespace collwire::cupti {
namespace {

// A tool that stopped its records may start again at once.
constexpr uint64_t REST_NS = 1'000'000'000;
// A tool that has not fetched its records will do so when it has time.
constexpr uint64_t FETCH_NS = 10'000'000'000;
constexpr size_t RECEIVERS = 16;
constexpr int WAIT_OF_LOADING_MS = 1000;

struct State {
    Functions functions = {};
    ControlLock loading;
    std::atomic<bool> has_functions = false;
    std::atomic<bool> has_looked_up = false;
    // CUPTI was mapped before the guest came, and by no import: its functions may have been found
    // by name.
    bool was_found_unseen = false;
    pid_t process = 0;
    unsigned long long loads = 0;
    size_t imports = 0;
    std::atomic<Yield> yield = nullptr;
    std::atomic<bool> is_enabled[MAX_KINDS] = {};
    std::atomic<int> enabled = 0;
    std::atomic<bool> is_presumed = false, is_subscribed = false, is_unfetched = false;
    std::atomic<uint64_t> last_call_ns = 0;
    std::atomic<const char *> last_function = nullptr;
    std::atomic<uint32_t> flush_period_ms = 0;
    // Read in CUPTI's callbacks, without a lock: a new one never takes the place of that which is
    // read.
    Receiver receivers[RECEIVERS] = {};
    std::atomic<const Receiver *> receiver = nullptr;
    std::atomic<size_t> registrations = 0;
};

constinit State state;

// A child of a fork has the guest's state, but not its thread: there the guest does nothing.
bool is_own_process() {
    return getpid() == state.process;
}

void note(const char *function) {
    state.last_function.store(function, std::memory_order_relaxed);
    state.last_call_ns.store(monotonic_ns(), std::memory_order_release);
}

// Before a call that the guest must not be in the way of.
void before_request(const char *function) {
    if (!is_own_process())
        return;
    note(function);
    if (Yield yield = state.yield.load(std::memory_order_acquire))
        yield(function);
}

void after_request(const char *function) {
    if (is_own_process())
        note(function);
}

void set_enabled(Kind kind, bool is_on) {
    if (kind < 0 || kind >= MAX_KINDS || !is_own_process())
        return;
    if (state.is_enabled[kind].exchange(is_on, std::memory_order_acq_rel) != is_on)
        state.enabled.fetch_add(is_on ? 1 : -1, std::memory_order_acq_rel);
}

// CUPTI is asked with the kind noted already: the guest comes not between.
template <class Ask> Result enable_with(const char *function, Kind kind, Ask ask) {
    before_request(function);
    const bool was_on = has_neighbour_enabled(kind);
    set_enabled(kind, true);
    const Result result = ask();
    if (result != SUCCESS && !was_on)
        set_enabled(kind, false);
    after_request(function);
    return result;
}

template <class Ask> Result disable_with(const char *function, Kind kind, Ask ask) {
    // Kinds are the process's: the guest's own would end unseen.
    if (kind == CONCURRENT_KERNEL)
        before_request(function);
    const bool was_on = has_neighbour_enabled(kind) || state.is_presumed;
    const Result result = ask();
    set_enabled(kind, false);
    if (!is_own_process())
        return result;
    if (was_on)
        state.is_unfetched.store(true, std::memory_order_release);
    state.is_presumed.store(false, std::memory_order_release);
    note(function);
    return result;
}

Result on_register(RequestBuffer request, BufferCompleted completed) {
    before_request("cuptiActivityRegisterCallbacks");
    const Result result = state.functions.register_callbacks(request, completed);
    if (result == SUCCESS && is_own_process()) {
        Receiver &receiver =
            state
                .receivers[state.registrations.fetch_add(1, std::memory_order_relaxed) % RECEIVERS];
        receiver = {request, completed};
        state.receiver.store(&receiver, std::memory_order_release);
    }
    after_request("cuptiActivityRegisterCallbacks");
    return result;
}

// CUPTI wants no kind to be enabled then.
Result on_register_time(TimestampFunction function) {
    before_request("cuptiActivityRegisterTimestampCallback");
    const Result result = state.functions.register_timestamp_callback(function);
    after_request("cuptiActivityRegisterTimestampCallback");
    return result;
}

Result on_enable(Kind kind) {
    return enable_with("cuptiActivityEnable", kind, [=] { return state.functions.enable(kind); });
}

Result on_disable(Kind kind) {
    return disable_with("cuptiActivityDisable", kind,
                        [=] { return state.functions.disable(kind); });
}

Result on_enable_context(void *context, Kind kind) {
    return enable_with("cuptiActivityEnableContext", kind,
                       [=] { return state.functions.enable_context(context, kind); });
}

Result on_disable_context(void *context, Kind kind) {
    return disable_with("cuptiActivityDisableContext", kind,
                        [=] { return state.functions.disable_context(context, kind); });
}

Result on_flush(uint32_t flags) {
    const Result result = state.functions.flush_all(flags);
    if (is_own_process() && state.is_unfetched.exchange(false, std::memory_order_acq_rel))
        note("cuptiActivityFlushAll");
    return result;
}

Result on_flush_period(uint32_t period_ms) {
    before_request("cuptiActivityFlushPeriod");
    const Result result = state.functions.flush_period(period_ms);
    if (result == SUCCESS && is_own_process())
        state.flush_period_ms.store(period_ms, std::memory_order_release);
    after_request("cuptiActivityFlushPeriod");
    return result;
}

// The guest tries the subscriber's slot before it arms: not at the same time.
template <class Ask> Result subscribe_with(const char *function, Ask ask) {
    before_request(function);
    const Result result = ask();
    if (result == SUCCESS && is_own_process())
        state.is_subscribed.store(true, std::memory_order_release);
    after_request(function);
    return result;
}

Result on_subscribe(void **subscriber, CallbackFunction callback, void *user_data) {
    return subscribe_with("cuptiSubscribe", [=] {
        return state.functions.subscribe(subscriber, callback, user_data);
    });
}

Result on_subscribe_v2(void **subscriber, CallbackFunction callback, void *user_data,
                       SubscriberParams *params) {
    return subscribe_with("cuptiSubscribe_v2", [=] {
        return state.functions.subscribe_v2(subscriber, callback, user_data, params);
    });
}

Result on_unsubscribe(void *subscriber) {
    const Result result = state.functions.unsubscribe(subscriber);
    if (result == SUCCESS && is_own_process())
        state.is_subscribed.store(false, std::memory_order_release);
    after_request("cuptiUnsubscribe");
    return result;
}

// CUPTI forgets everything: so must the guest, before.
Result on_finalize() {
    before_request("cuptiFinalize");
    const Result result = state.functions.finalize();
    if (is_own_process()) {
        for (Kind kind = 0; kind < MAX_KINDS; ++kind)
            set_enabled(kind, false);
        state.is_presumed.store(false, std::memory_order_release);
        state.is_subscribed.store(false, std::memory_order_release);
        state.is_unfetched.store(false, std::memory_order_release);
        state.receiver.store(nullptr, std::memory_order_release);
        state.flush_period_ms.store(0, std::memory_order_release);
    }
    after_request("cuptiFinalize");
    return result;
}

constexpr size_t ENABLE = 0;

Replacement replacements[] = {
    {"cuptiActivityEnable", reinterpret_cast<void *>(on_enable), nullptr},
    {"cuptiActivityDisable", reinterpret_cast<void *>(on_disable), nullptr},
    {"cuptiActivityEnableContext", reinterpret_cast<void *>(on_enable_context), nullptr},
    {"cuptiActivityDisableContext", reinterpret_cast<void *>(on_disable_context), nullptr},
    {"cuptiActivityRegisterCallbacks", reinterpret_cast<void *>(on_register), nullptr},
    {"cuptiActivityRegisterTimestampCallback", reinterpret_cast<void *>(on_register_time), nullptr},
    {"cuptiActivityFlushAll", reinterpret_cast<void *>(on_flush), nullptr},
    {"cuptiActivityFlushPeriod", reinterpret_cast<void *>(on_flush_period), nullptr},
    {"cuptiSubscribe", reinterpret_cast<void *>(on_subscribe), nullptr},
    {"cuptiUnsubscribe", reinterpret_cast<void *>(on_unsubscribe), nullptr},
    {"cuptiFinalize", reinterpret_cast<void *>(on_finalize), nullptr},
    {"cuptiSubscribe_v2", reinterpret_cast<void *>(on_subscribe_v2), nullptr}, // not in 12.x
};

// In the order of the replacements.
void set_real_functions(const Functions &functions) {
    void *const theirs[] = {
        reinterpret_cast<void *>(functions.enable),
        reinterpret_cast<void *>(functions.disable),
        reinterpret_cast<void *>(functions.enable_context),
        reinterpret_cast<void *>(functions.disable_context),
        reinterpret_cast<void *>(functions.register_callbacks),
        reinterpret_cast<void *>(functions.register_timestamp_callback),
        reinterpret_cast<void *>(functions.flush_all),
        reinterpret_cast<void *>(functions.flush_period),
        reinterpret_cast<void *>(functions.subscribe),
        reinterpret_cast<void *>(functions.unsubscribe),
        reinterpret_cast<void *>(functions.finalize),
        reinterpret_cast<void *>(functions.subscribe_v2),
    };
    constexpr size_t COUNT = sizeof theirs / sizeof theirs[0];
    static_assert(COUNT == sizeof replacements / sizeof replacements[0]);
    for (size_t i = 0; i < COUNT; ++i)
        replacements[i].theirs = theirs[i];
}

// The functions of the libcupti that is mapped, if one is. On any thread.
bool find_functions() {
    if (state.has_functions.load(std::memory_order_acquire))
        return true;
    if (!state.loading.take(WAIT_OF_LOADING_MS))
        return false;
    uint32_t api_version = 0;
    if (!state.has_functions.load(std::memory_order_relaxed) &&
        load_functions(state.functions, api_version, true)) {
        set_real_functions(state.functions);
        state.has_functions.store(true, std::memory_order_release);
    }
    state.loading.release();
    return state.has_functions.load(std::memory_order_acquire);
}

using Lookup = void *(*)(void *handle, const char *name);
constinit Lookup their_lookup = nullptr;

void *lookup_of_cupti(void *handle, const char *name) {
    void *found = their_lookup(handle, name);
    if (!found || !is_own_process() || !find_functions())
        return found;
    for (const Replacement &replacement : replacements)
        if (replacement.theirs == found && strcmp(replacement.name, name) == 0) {
            state.has_looked_up.store(true, std::memory_order_release);
            return replacement.ours;
        }
    return found;
}

// In the place of dlsym. The C library looks at the address of its caller: for all names but
// CUPTI's it is entered by a jump, as if the program had called it.
void *on_lookup(void *handle, const char *name) {
    if (handle != RTLD_NEXT && name && name[0] == 'c' && strncmp(name, "cupti", 5) == 0)
        return lookup_of_cupti(handle, name);
    return their_lookup(handle, name);
}

Replacement lookups[] = {{"dlsym", reinterpret_cast<void *>(on_lookup), nullptr}};

void watch_lookups() {
    // The first one of the process, as the loader binds it.
    if (!their_lookup)
        their_lookup = reinterpret_cast<Lookup>(find_symbol(RTLD_DEFAULT, "dlsym"));
    if (their_lookup)
        replace_imports(lookups, 1);
}

} // namespace

void watch_neighbours(Yield yield) {
    const bool is_first = state.process == 0;
    state.process = getpid();
    state.yield.store(yield, std::memory_order_release);
    const unsigned long long loads = loads_so_far();
    if (loads == state.loads)
        return;
    watch_lookups();
    // Of two copies of CUPTI the guest serves none: a file's calls must reach the copy that it is
    // linked with.
    bool is_ambiguous = false;
    mapped_libcupti(is_ambiguous);
    state.loads = loads;
    if (is_ambiguous || !find_functions())
        return;
    const size_t count = sizeof replacements / sizeof replacements[0];
    state.imports = replace_imports(replacements, state.functions.subscribe_v2 ? count : count - 1);
    state.was_found_unseen |= is_first && state.imports == 0;
    // It called before the guest saw it, and may be recording.
    if (replacements[ENABLE].was_called) {
        replacements[ENABLE].was_called = false;
        state.is_presumed.store(true, std::memory_order_release);
        before_request(replacements[ENABLE].name);
    }
}

Receiver neighbours_receiver() {
    const Receiver *receiver = state.receiver.load(std::memory_order_acquire);
    return receiver ? *receiver : Receiver{};
}

uint32_t neighbours_flush_period_ms() {
    return state.flush_period_ms.load(std::memory_order_acquire);
}

bool has_active_neighbour() {
    return state.enabled.load(std::memory_order_acquire) > 0 ||
           state.is_presumed.load(std::memory_order_acquire);
}

bool is_neighbour_resting() {
    const uint64_t last_ns = last_neighbour_call_ns();
    const uint64_t rest_ns =
        state.is_unfetched.load(std::memory_order_acquire) ? FETCH_NS : REST_NS;
    return last_ns != 0 && monotonic_ns() - last_ns < rest_ns;
}

uint64_t last_neighbour_call_ns() {
    return state.last_call_ns.load(std::memory_order_acquire);
}

bool has_neighbour_enabled(Kind kind) {
    return kind >= 0 && kind < MAX_KINDS && state.is_enabled[kind].load(std::memory_order_acquire);
}

bool has_known_neighbour() {
    return state.last_call_ns.load(std::memory_order_acquire) != 0 ||
           state.is_presumed.load(std::memory_order_acquire);
}

bool has_subscribed_neighbour() {
    return state.is_subscribed.load(std::memory_order_acquire);
}

bool has_unseen_caller() {
    bool is_ambiguous = false;
    if (!mapped_libcupti(is_ambiguous))
        return false;
    return is_ambiguous || state.was_found_unseen || (state.imports == 0 && !state.has_looked_up);
}

const char *last_neighbour_function() {
    const char *function = state.last_function.load(std::memory_order_relaxed);
    return function ? function : "";
}

} // namespace collwire::cupti
