// SPDX-License-Identifier: Apache-2.0
// A load for tests of the cost of probes, and what a trap costs here, measured without collwire:
//   steady_calls LIBRARY CALLS_PER_S SECONDS
// AllReduces of a communicator of one rank, at a steady rate, from a line on standard input on;
// under the preloaded test double of CUDA.
//   steady_calls --trap
// Prints the ns that a uprobe on `push` adds to a call.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" void trapped();
asm(".text\n.p2align 4\n.type trapped,@function\n.globl trapped\n"
    "trapped:\n push %rbx\n pop %rbx\n ret\n.size trapped, . - trapped\n");

namespace {

constexpr std::int64_t NS_PER_S = 1'000'000'000;
constexpr std::int64_t STEP_NS = 1'000'000;
constexpr int FLOAT32 = 7, SUM = 0;
constexpr std::size_t ELEMENTS = 256;

[[noreturn]] void fail(const char *what) {
    std::perror(what);
    std::exit(1);
}

std::int64_t now_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

// In this program's file.
std::uint64_t offset_of(std::uint64_t address) {
    std::FILE *maps = std::fopen("/proc/self/maps", "re");
    unsigned long begin = 0, end = 0, offset = 0;
    char line[512];
    while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr)
        if (std::sscanf(line, "%lx-%lx %*s %lx", &begin, &end, &offset) == 3 && begin <= address &&
            address < end) {
            std::fclose(maps);
            return address - begin + offset;
        }
    fail("/proc/self/maps");
}

// A counter that never counts: its breakpoint is in place, and nobody listens.
int place_uprobe() {
    std::FILE *file = std::fopen("/sys/bus/event_source/devices/uprobe/type", "re");
    unsigned type = 0;
    if (file == nullptr || std::fscanf(file, "%u", &type) != 1)
        fail("uprobe");
    std::fclose(file);
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = type;
    attributes.disabled = 1;
    attributes.config1 = reinterpret_cast<std::uint64_t>("/proc/self/exe");
    attributes.config2 = offset_of(reinterpret_cast<std::uint64_t>(&trapped));
    const auto fd = static_cast<int>(
        syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC));
    if (fd < 0)
        fail("perf_event_open");
    return fd;
}

double best_call_ns() {
    constexpr int ROUNDS = 40, CALLS = 5000;
    double best_ns = 1e9;
    for (int round = 0; round < ROUNDS; ++round) {
        const std::int64_t begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < CALLS; ++i)
            trapped();
        best_ns = std::min(best_ns,
                           static_cast<double>(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / CALLS);
    }
    return best_ns;
}

int print_trap() {
    const double bare_ns = best_call_ns();
    const int fd = place_uprobe();
    const double trapped_ns = best_call_ns();
    close(fd);
    std::printf("%.1f\n", trapped_ns - bare_ns);
    return 0;
}

template <typename Function> Function *symbol(void *from, const char *name) {
    void *found = dlsym(from, name);
    if (found == nullptr) {
        std::fprintf(stderr, "steady_calls: no %s\n", name);
        std::exit(1);
    }
    return reinterpret_cast<Function *>(found);
}

void check(int result, const char *what) {
    if (result == 0)
        return;
    std::fprintf(stderr, "steady_calls: %s: %d\n", what, result);
    std::exit(1);
}

int load(const char *library, std::int64_t calls_per_s, std::int64_t seconds) {
    void *nccl = dlopen(library, RTLD_NOW);
    if (nccl == nullptr)
        fail(dlerror());
    void *stream = nullptr, *data = nullptr, *comm = nullptr;
    check(symbol<int(void **, unsigned)>(RTLD_DEFAULT, "cudaStreamCreateWithFlags")(&stream, 1),
          "cudaStreamCreateWithFlags");
    check(symbol<int(void **, std::size_t)>(RTLD_DEFAULT, "cudaMalloc")(&data,
                                                                        ELEMENTS * sizeof(float)),
          "cudaMalloc");
    check(symbol<int(void **, int, const int *)>(nccl, "ncclCommInitAll")(&comm, 1, nullptr),
          "ncclCommInitAll");
    const auto all_reduce =
        symbol<int(const void *, void *, std::size_t, int, int, void *, void *)>(nccl,
                                                                                 "ncclAllReduce");
    std::puts("running");
    std::fflush(stdout);
    (void)std::getchar();
    const std::int64_t begin_ns = now_ns(CLOCK_MONOTONIC);
    std::int64_t calls = 0;
    for (std::int64_t at_ns = begin_ns; at_ns < begin_ns + seconds * NS_PER_S; at_ns += STEP_NS) {
        for (; calls * NS_PER_S < (at_ns - begin_ns) * calls_per_s; ++calls)
            check(all_reduce(data, data, ELEMENTS, FLOAT32, SUM, comm, stream), "ncclAllReduce");
        const timespec until{at_ns / NS_PER_S, at_ns % NS_PER_S};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    }
    const double taken_s =
        static_cast<double>(now_ns(CLOCK_MONOTONIC) - begin_ns) / static_cast<double>(NS_PER_S);
    std::printf("%lld calls in %.3f s\n", static_cast<long long>(calls), taken_s);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && std::strcmp(argv[1], "--trap") == 0)
        return print_trap();
    if (argc == 4)
        return load(argv[1], std::atoll(argv[2]), std::atoll(argv[3]));
    std::fprintf(stderr, "steady_calls LIBRARY CALLS_PER_S SECONDS | --trap\n");
    return 2;
}
