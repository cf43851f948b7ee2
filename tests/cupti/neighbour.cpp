// SPDX-License-Identifier: Apache-2.0
// A test double of another tool in the process that takes activity records from CUPTI: it makes the
// calls of PyTorch's profiler, in its order. Preloaded. COLLWIRE_NEIGHBOUR_CONTROL=FILE: commands,
// a line each, which a test appends; COLLWIRE_NEIGHBOUR_OUT=FILE: a JSON line for each call and
// each kernel. COLLWIRE_NEIGHBOUR_CLOCK=ticks: it registers a clock of its own. Compiled with
// COLLWIRE_NEIGHBOUR_BY_NAME it finds CUPTI with dlopen and dlsym, as JAX does; without, it is
// linked with it. COLLWIRE_NEIGHBOUR_EARLY: it does so when it is loaded.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using RequestBuffer = void (*)(uint8_t **, size_t *, size_t *);
using CompleteBuffer = void (*)(void *, uint32_t, uint8_t *, size_t, size_t);
using ReadTimestamp = uint64_t (*)();
using Callback = void (*)(void *, int, uint32_t, const void *);

// NOLINTBEGIN(readability-identifier-naming): CUPTI's names.
#define CUPTI_FUNCTIONS(X)                                                                         \
    X(cuptiActivityRegisterCallbacks, (RequestBuffer, CompleteBuffer))                             \
    X(cuptiActivityRegisterTimestampCallback, (ReadTimestamp))                                     \
    X(cuptiActivityEnable, (uint32_t))                                                             \
    X(cuptiActivityDisable, (uint32_t))                                                            \
    X(cuptiActivityFlushAll, (uint32_t))                                                           \
    X(cuptiActivityFlushPeriod, (uint32_t))                                                        \
    X(cuptiActivityGetNextRecord, (uint8_t *, size_t, uint8_t **))                                 \
    X(cuptiSubscribe, (void **, Callback, void *))                                                 \
    X(cuptiUnsubscribe, (void *))                                                                  \
    X(cuptiFinalize, ())

#ifdef COLLWIRE_NEIGHBOUR_BY_NAME
// Names and lists of arguments take no parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define POINTER(name, arguments) static int(*name) arguments;
CUPTI_FUNCTIONS(POINTER)

static bool load_cupti() {
    if (cuptiFinalize)
        return true;
    const char *chosen = getenv("COLLWIRE_NEIGHBOUR_CUPTI");
    void *library = dlopen(chosen ? chosen : "libcupti.so.13", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return false;
    bool has_all = true;
#define FIND(name, arguments)                                                                      \
    name = reinterpret_cast<int(*) arguments>(dlsym(library, #name));                              \
    has_all = has_all && name;
    CUPTI_FUNCTIONS(FIND)
    return has_all;
}
// NOLINTEND(bugprone-macro-parentheses)
#else
extern "C" {
#define DECLARE(name, arguments) int name arguments;
CUPTI_FUNCTIONS(DECLARE)
}

static bool load_cupti() {
    return true;
}
#endif
// NOLINTEND(readability-identifier-naming)

namespace {

constexpr size_t BUFFER_BYTES = size_t{256} * 1024;
constexpr uint32_t FORCED = 1;
// Copies, sets, kernels, external correlation, calls of the runtime and the driver, overhead,
// synchronisation.
constexpr uint32_t KINDS[] = {1, 2, 10, 39, 5, 4, 17, 38};
constexpr uint64_t TICKS_PER_NS = 3;
constexpr auto PAUSE = std::chrono::milliseconds(2);

FILE *out = nullptr;
std::mutex out_lock;
bool has_clock = false;
void *subscriber = nullptr;

uint64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t ticks() {
    return monotonic_ns() * TICKS_PER_NS;
}

template <class T> T at(const uint8_t *record, size_t offset) {
    T value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

void request(uint8_t **buffer, size_t *bytes, size_t *most_records) {
    *buffer = static_cast<uint8_t *>(aligned_alloc(8, BUFFER_BYTES));
    *bytes = BUFFER_BYTES;
    *most_records = 0;
}

void complete(void *, uint32_t, uint8_t *buffer, size_t bytes, size_t valid_bytes) {
    uint8_t *record = nullptr;
    const std::scoped_lock held(out_lock);
    fprintf(out, "{\"item\":\"buffer\",\"bytes\":%zu,\"valid_bytes\":%zu,\"at_ns\":%lu}\n", bytes,
            valid_bytes, monotonic_ns());
    while (valid_bytes != 0 && cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == 0)
        fprintf(out,
                "{\"item\":\"kernel\",\"correlation\":%u,\"node\":%lu,\"start\":%lu,\"end\":%lu,"
                "\"name\":\"%s\"}\n",
                at<uint32_t>(record, 92), at<uint64_t>(record, 144), at<uint64_t>(record, 16),
                at<uint64_t>(record, 24), at<const char *>(record, 104));
    fflush(out);
    free(buffer);
}

template <class Call> int call(const char *name, long argument, Call make) {
    const uint64_t begin_ns = monotonic_ns();
    const int result = make();
    const uint64_t end_ns = monotonic_ns();
    const std::scoped_lock held(out_lock);
    fprintf(out,
            "{\"item\":\"call\",\"function\":\"%s\",\"argument\":%ld,\"result\":%d,\"begin_ns\":%"
            "lu,\"end_ns\":%lu}\n",
            name, argument, result, begin_ns, end_ns);
    fflush(out);
    return result;
}

void register_clock() {
    const char *clock = getenv("COLLWIRE_NEIGHBOUR_CLOCK");
    if (has_clock || !clock || strcmp(clock, "ticks") != 0)
        return;
    has_clock = true;
    call("clock", 0, [] { return cuptiActivityRegisterTimestampCallback(ticks); });
}

void register_callbacks() {
    register_clock();
    call("register", 0, [] { return cuptiActivityRegisterCallbacks(request, complete); });
}

void enable() {
    for (const uint32_t kind : KINDS)
        call("enable", kind, [&] { return cuptiActivityEnable(kind); });
}

void disable() {
    for (const uint32_t kind : KINDS)
        call("disable", kind, [&] { return cuptiActivityDisable(kind); });
}

void flush(uint32_t flags) {
    call("flush", flags, [&] { return cuptiActivityFlushAll(flags); });
}

// Ends of the process and copies of it. False: another command.
bool obey_end(const std::string &command) {
    if (command == "exit") {
        exit(0);
    } else if (command == "_exit") {
        _exit(0);
    } else if (command == "fork") {
        // The child ends by exit(), with the guest's handler.
        call("fork", 0, [] {
            const pid_t child = fork();
            int status = -1;
            if (child == 0)
                exit(0);
            waitpid(child, &status, 0);
            return status;
        });
    } else if (command == "exec") {
        call("exec", 0, [] {
            const pid_t child = fork();
            int status = -1;
            if (child == 0) {
                execle("/bin/true", "true", nullptr, nullptr);
                _exit(1);
            }
            waitpid(child, &status, 0);
            return status;
        });
    } else {
        return false;
    }
    return true;
}

void obey(const std::string &command) {
    if (obey_end(command))
        return;
    static const bool has_cupti = load_cupti();
    if (!has_cupti)
        abort();
    if (command == "load") {
        // done
    } else if (command == "start") {
        register_callbacks();
        enable();
    } else if (command == "stop") {
        disable();
        flush(FORCED); // reads the trace
        flush(0);      // clears what is left
    } else if (command == "register") {
        register_callbacks();
    } else if (command == "enable") {
        enable();
    } else if (command == "disable") {
        disable();
    } else if (command == "flush") {
        flush(FORCED);
    } else if (command == "stray") {
        call("disable", 10, [] { return cuptiActivityDisable(10); });
    } else if (command == "subscribe") {
        call("subscribe", 0, [] {
            return cuptiSubscribe(
                &subscriber, [](auto...) {}, nullptr);
        });
    } else if (command == "unsubscribe") {
        call("unsubscribe", 0, [] { return cuptiUnsubscribe(subscriber); });
    } else if (command == "finalize") {
        call("finalize", 0, [] { return cuptiFinalize(); });
        has_clock = false;
    } else if (command.starts_with("period ")) {
        const auto period_ms = static_cast<uint32_t>(strtoul(command.c_str() + 7, nullptr, 10));
        call("period", period_ms, [&] { return cuptiActivityFlushPeriod(period_ms); });
    } else {
        fprintf(stderr, "neighbour: no command: %s. Fix: one of obey()\n", command.c_str());
        abort();
    }
}

// Reads with an offset of its own: a child of a fork that ends by exit() sets that of a stream
// back.
[[noreturn]] void follow(const std::string &path) {
    pthread_setname_np(pthread_self(), "neighbour");
    std::string line;
    int commands = -1;
    off_t offset = 0;
    for (;;) {
        if (commands < 0)
            commands = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        for (char c = 0; commands >= 0 && pread(commands, &c, 1, offset) == 1;) {
            ++offset;
            if (c != '\n') {
                line += c;
                continue;
            }
            obey(line);
            call("done", 0, [] { return 0; });
            line.clear();
        }
        std::this_thread::sleep_for(PAUSE);
    }
}

__attribute__((constructor)) void start() {
    const char *path = getenv("COLLWIRE_NEIGHBOUR_CONTROL");
    const char *to = getenv("COLLWIRE_NEIGHBOUR_OUT");
    if (!path || !to)
        return;
    out = fopen((std::string(to) + "." + std::to_string(getpid())).c_str(), "we");
    if (!out)
        return;
    if (getenv("COLLWIRE_NEIGHBOUR_EARLY"))
        load_cupti();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(follow, std::string(path)).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

} // namespace
