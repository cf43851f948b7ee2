// SPDX-License-Identifier: Apache-2.0
// A simple client of CUPTI, for tests of the double. It writes each kernel record as a JSON line.
// It reads records by offset, not by the double's own types. Unlike a real one it allocates and
// writes in CUPTI's callbacks. Built twice:
// - libcupti_client.so: CUDA_INJECTION64_PATH loads it, and it loads libcupti by name when it
// starts;
// - libcupti_profiler.so: is linked with libcupti, as PyTorch's profiler, and starts by itself
// where
//   it is loaded or preloaded. It does not touch the timestamp callback.
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>

namespace {

#ifdef COLLWIRE_CUPTI_PROFILER
#define COLLWIRE_VARIABLE(name) "COLLWIRE_CUPTI_PROFILER_" name
#else
#define COLLWIRE_VARIABLE(name) "COLLWIRE_CUPTI_CLIENT_" name
#endif

constexpr std::uint32_t CONCURRENT_KERNEL = 10;
constexpr std::uint32_t FORCED = 1;

struct Functions {
    int (*register_callbacks)(void *, void *);
    int (*register_timestamp)(void *);
    int (*enable)(std::uint32_t);
    int (*disable)(std::uint32_t);
    int (*flush_all)(std::uint32_t);
    int (*flush_period)(std::uint32_t);
    int (*next_record)(std::uint8_t *, std::size_t, std::uint8_t **);
    int (*dropped)(void *, std::uint32_t, std::size_t *);
    int (*version)(std::uint32_t *);
    int (*finalize)();
};
Functions cupti;
std::FILE *out = nullptr;
std::size_t buffer_bytes = 0;
bool is_armed = false;

const char *text_of(const char *variable, const char *otherwise) {
    const char *value = std::getenv(variable);
    return value != nullptr ? value : otherwise;
}

std::uint64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

template <class T> T at(const std::uint8_t *record, std::size_t offset_bytes) {
    T value;
    std::memcpy(&value, record + offset_bytes, sizeof value);
    return value;
}

void write_record(const std::uint8_t *record) {
    using U32 = std::uint32_t;
    using U64 = std::uint64_t;
    fmt::print(out,
               R"({{"event":"record","kind":{},"name":"{}","start":{},"end":{},"completed":{},)"
               R"("device":{},"context":{},"stream":{},"grid":[{},{},{}],"block":[{},{},{}],)"
               R"("correlation":{},"graph_node":{},"graph":{},"channel":{},"cluster":[{},{},{}]}})"
               "\n",
               at<U32>(record, 0), at<const char *>(record, 104), at<U64>(record, 16),
               at<U64>(record, 24), at<U64>(record, 32), at<U32>(record, 40), at<U32>(record, 44),
               at<U32>(record, 48), at<U32>(record, 52), at<U32>(record, 56), at<U32>(record, 60),
               at<U32>(record, 64), at<U32>(record, 68), at<U32>(record, 72), at<U32>(record, 92),
               at<U64>(record, 144), at<U32>(record, 156), at<U32>(record, 168),
               at<U32>(record, 176), at<U32>(record, 180), at<U32>(record, 184));
}

void request(std::uint8_t **buffer, std::size_t *bytes, std::size_t *most_records) {
    *buffer = static_cast<std::uint8_t *>(std::aligned_alloc(8, buffer_bytes));
    *bytes = buffer_bytes;
    *most_records = 0;
}

void complete(void *, std::uint32_t, std::uint8_t *buffer, std::size_t, std::size_t valid_bytes) {
    std::uint8_t *record = nullptr;
    while (cupti.next_record(buffer, valid_bytes, &record) == 0)
        write_record(record);
    std::size_t dropped = 0;
    cupti.dropped(nullptr, 0, &dropped);
    fmt::print(out, "{{\"event\":\"buffer\",\"valid_bytes\":{},\"dropped\":{}}}\n", valid_bytes,
               dropped);
    std::fflush(out);
    std::free(buffer);
}

void call(const char *name, int result) {
    fmt::print(out, "{{\"event\":\"{}\",\"result\":{},\"at_ns\":{}}}\n", name, result,
               monotonic_ns());
    std::fflush(out);
}

void arm() {
    call("armed", cupti.enable(CONCURRENT_KERNEL));
    is_armed = true;
}

void disarm() {
    is_armed = false;
    call("disarmed", cupti.disable(CONCURRENT_KERNEL));
    call("flushed", cupti.flush_all(0));
}

void flush_at_exit() {
    call("exit", cupti.flush_all(FORCED));
}

// A session of the profiler registers its callbacks anew.
void start_session() {
    call("registered", cupti.register_callbacks(reinterpret_cast<void *>(&request),
                                                reinterpret_cast<void *>(&complete)));
}

// Armed while the file is there.
[[noreturn]] void follow_file(const std::string &path) {
    for (;;) {
        const bool is_asked = ::access(path.c_str(), F_OK) == 0;
        if (is_asked && !is_armed) {
            start_session();
            arm();
        } else if (!is_asked && is_armed) {
            disarm();
            if (*text_of(COLLWIRE_VARIABLE("FINALIZE"), "") != '\0')
                call("finalized", cupti.finalize());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

#ifdef COLLWIRE_CUPTI_PROFILER
} // namespace

// NOLINTBEGIN(readability-identifier-naming): CUPTI's names.
extern "C" {
int cuptiActivityRegisterCallbacks(void *, void *);
int cuptiActivityRegisterTimestampCallback(void *);
int cuptiActivityEnable(std::uint32_t);
int cuptiActivityDisable(std::uint32_t);
int cuptiActivityFlushAll(std::uint32_t);
int cuptiActivityFlushPeriod(std::uint32_t);
int cuptiActivityGetNextRecord(std::uint8_t *, std::size_t, std::uint8_t **);
int cuptiActivityGetNumDroppedRecords(void *, std::uint32_t, std::size_t *);
int cuptiGetVersion(std::uint32_t *);
int cuptiFinalize();
}
// NOLINTEND(readability-identifier-naming)

namespace {

bool load() {
    // Not pointers, which an importer would see but once: each call goes through the import.
    cupti.register_callbacks = [](void *request_function, void *complete_function) {
        return cuptiActivityRegisterCallbacks(request_function, complete_function);
    };
    cupti.register_timestamp = nullptr;
    cupti.enable = [](std::uint32_t kind) { return cuptiActivityEnable(kind); };
    cupti.disable = [](std::uint32_t kind) { return cuptiActivityDisable(kind); };
    cupti.flush_all = [](std::uint32_t flags) { return cuptiActivityFlushAll(flags); };
    cupti.flush_period = cuptiActivityFlushPeriod;
    cupti.next_record = cuptiActivityGetNextRecord;
    cupti.dropped = cuptiActivityGetNumDroppedRecords;
    cupti.version = cuptiGetVersion;
    cupti.finalize = [] { return cuptiFinalize(); };
    return true;
}
#else
bool load() {
    void *library = nullptr;
    for (const char *name : {"libcupti.so.13", "libcupti.so.12"}) {
        library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library != nullptr)
            break;
    }
    if (library == nullptr)
        return false;
    const auto take = [library](auto &function, const char *name) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
        return function != nullptr;
    };
    return take(cupti.register_callbacks, "cuptiActivityRegisterCallbacks") &&
           take(cupti.register_timestamp, "cuptiActivityRegisterTimestampCallback") &&
           take(cupti.enable, "cuptiActivityEnable") &&
           take(cupti.disable, "cuptiActivityDisable") &&
           take(cupti.flush_all, "cuptiActivityFlushAll") &&
           take(cupti.flush_period, "cuptiActivityFlushPeriod") &&
           take(cupti.next_record, "cuptiActivityGetNextRecord") &&
           take(cupti.dropped, "cuptiActivityGetNumDroppedRecords") &&
           take(cupti.version, "cuptiGetVersion") && take(cupti.finalize, "cuptiFinalize");
}
#endif

void start() {
    std::uint32_t version = 0;
    cupti.version(&version);
    fmt::print(out, "{{\"event\":\"cupti\",\"version\":{}}}\n", version);
    const std::string clock = text_of(COLLWIRE_VARIABLE("CLOCK"), "monotonic");
    if (clock == "monotonic" && cupti.register_timestamp != nullptr)
        call("clock", cupti.register_timestamp(reinterpret_cast<void *>(&monotonic_ns)));
    start_session();
    const char *period_ms = text_of(COLLWIRE_VARIABLE("PERIOD_MS"), "0");
    cupti.flush_period(static_cast<std::uint32_t>(std::strtoul(period_ms, nullptr, 10)));
    std::atexit(flush_at_exit);
    arm();
}

// As InitializeInjection returns: 0 is an error.
int begin() {
    const std::string path = text_of(COLLWIRE_VARIABLE("OUT"), "");
    if (path.empty())
        return 0;
    out = std::fopen(fmt::format("{}.{}", path, ::getpid()).c_str(), "w");
    if (out == nullptr)
        return 0;
    buffer_bytes = std::strtoul(text_of(COLLWIRE_VARIABLE("BUFFER"), "65536"), nullptr, 10);
    const std::string file = text_of(COLLWIRE_VARIABLE("ARM_FILE"), "");
    if (file.empty()) {
        if (!load())
            return 0;
        start();
        return 1;
    }
    // Loads CUPTI when it is wanted, and not before.
    std::thread([file] {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
        while (::access(file.c_str(), F_OK) != 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (!load())
            return;
        start();
        follow_file(file);
    }).detach();
    return 1;
}

#ifdef COLLWIRE_CUPTI_PROFILER
__attribute__((constructor)) void start_by_itself() {
    begin();
}
#endif

} // namespace

#ifndef COLLWIRE_CUPTI_PROFILER
// The name that CUDA's driver calls. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
    return begin();
}
#endif
