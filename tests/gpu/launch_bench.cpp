// SPDX-License-Identifier: Apache-2.0
// What a launch costs: an empty kernel in a row, and as nodes of a graph, in turns. In every second
// turn the guest library of this process is armed (its semaphore is set by hand, as a recorder's
// probe sets it). Needs libcuda.so.1 alone.
//
// launch_bench TURNS TURN_MS [nccl] [graph NODES]: a JSON line for each turn: {"turn", "is_armed",
// "launch_ns", "node_ns", "launches"}. nccl: the kernel has the name of one of NCCL's, so that each
// launch becomes a record. COLLWIRE_BENCH_SETTLE_MS: not measured after a switch.
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <link.h>
#include <string>

namespace {

constexpr int LAUNCHES = 500;
using Handle = void *;

template <class Function> Function find(const char *name) {
    static void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    auto function = cuda ? reinterpret_cast<Function>(dlsym(cuda, name)) : nullptr;
    if (!function) {
        fprintf(
            stderr,
            "launch_bench: libcuda.so.1: no %s. Fix: run it where NVIDIA's driver is installed\n",
            name);
        exit(1);
    }
    return function;
}

void check(int result, const char *what) {
    if (result == 0)
        return;
    fprintf(stderr, "launch_bench: %s: CUDA error %d\n", what, result);
    exit(1);
}

#define CALL(name, types, ...) check(find<int(*) types>(#name)(__VA_ARGS__), #name)

int number_of(const char *text) {
    char *end = nullptr;
    const long number = strtol(text, &end, 10);
    if (end != text && *end == 0 && number >= 0 && number <= INT_MAX)
        return static_cast<int>(number);
    fprintf(stderr, "launch_bench: %s is no number\n", text);
    exit(2);
}

uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int find_guest(dl_phdr_info *object, size_t, void *data) {
    if (!object->dlpi_name || !strstr(object->dlpi_name, "libcollwire_cupti.so"))
        return 0;
    *static_cast<std::string *>(data) = object->dlpi_name;
    return 1;
}

volatile unsigned short *semaphore() {
    std::string path;
    // A preloaded receiver's takes the place of the guest's.
    if (void *of_receiver = dlsym(RTLD_DEFAULT, "collwire_gpu_arm_semaphore"))
        return static_cast<volatile unsigned short *>(of_receiver);
    dl_iterate_phdr(find_guest, &path);
    void *guest = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW);
    return guest
               ? static_cast<volatile unsigned short *>(dlsym(guest, "collwire_gpu_arm_semaphore"))
               : nullptr;
}

struct Bench {
    Handle stream = nullptr, function = nullptr, graph = nullptr;
    int nodes = 50;

    void launch() {
        static auto launch_kernel =
            find<int (*)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, Handle, void **, void **)>("cuLaunchKernel");
        check(launch_kernel(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr),
              "cuLaunchKernel");
    }

    void wait() {
        static auto synchronize = find<int (*)(Handle)>("cuStreamSynchronize");
        check(synchronize(stream), "cuStreamSynchronize");
    }

    void begin(bool is_nccl) {
        const std::string name = is_nccl ? "ncclDevKernel_Bench" : "bench_empty";
        const std::string code = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry " +
                                 name + "()\n{\n ret;\n}\n";
        int device = 0;
        Handle context = nullptr, module = nullptr;
        CALL(cuInit, (unsigned), 0);
        CALL(cuDeviceGet, (int *, int), &device, 0);
        CALL(cuDevicePrimaryCtxRetain, (Handle *, int), &context, device);
        CALL(cuCtxSetCurrent, (Handle), context);
        CALL(cuModuleLoadData, (Handle *, const void *), &module, code.c_str());
        CALL(cuModuleGetFunction, (Handle *, Handle, const char *), &function, module,
             name.c_str());
        CALL(cuStreamCreate, (Handle *, unsigned), &stream, 1);
        Handle captured = nullptr;
        CALL(cuStreamBeginCapture_v2, (Handle, int), stream, 1);
        for (int i = 0; i < nodes; ++i)
            launch();
        CALL(cuStreamEndCapture, (Handle, Handle *), stream, &captured);
        CALL(cuGraphInstantiateWithFlags, (Handle *, Handle, unsigned long long), &graph, captured,
             0);
    }

    // CPU nanoseconds a launch, and wall-clock nanoseconds a node of a graph, over `turn_ms` each.
    void turn(int number, bool is_armed, int turn_ms) {
        static auto graph_launch = find<int (*)(Handle, Handle)>("cuGraphLaunch");
        uint64_t launches = 0, cpu_ns = 0, node_launches = 0;
        const uint64_t half_ns = static_cast<uint64_t>(turn_ms) * 500'000, begin_ns = now_ns();
        while (now_ns() - begin_ns < half_ns) {
            const uint64_t before = now_ns();
            for (int i = 0; i < LAUNCHES; ++i)
                launch();
            cpu_ns += now_ns() - before;
            launches += LAUNCHES;
            wait();
        }
        const uint64_t graph_begin_ns = now_ns();
        while (now_ns() - graph_begin_ns < half_ns) {
            for (int i = 0; i < 10; ++i)
                check(graph_launch(graph, stream), "cuGraphLaunch");
            node_launches += 10 * static_cast<uint64_t>(nodes);
            wait();
        }
        const uint64_t graph_ns = now_ns() - graph_begin_ns;
        printf("{\"turn\":%d,\"is_armed\":%s,\"launch_ns\":%.1f,\"node_ns\":%.1f,\"launches\":%lu,"
               "\"nodes\":%lu,\"at_ns\":%lu}\n",
               number, is_armed ? "true" : "false",
               static_cast<double>(cpu_ns) / static_cast<double>(launches),
               static_cast<double>(graph_ns) / static_cast<double>(node_launches), launches,
               node_launches, now_ns());
        fflush(stdout);
    }

    void settle(int ms) {
        const uint64_t begin_ns = now_ns();
        while (now_ns() - begin_ns < static_cast<uint64_t>(ms) * 1'000'000) {
            for (int i = 0; i < LAUNCHES; ++i)
                launch();
            wait();
        }
    }
};

} // namespace

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "launch_bench TURNS TURN_MS [nccl] [graph NODES] [armed]\n");
        return 2;
    }
    Bench bench;
    bool is_nccl = false, is_always_armed = false;
    for (int i = 3; i < argc; ++i) {
        if (strcmp(argv[i], "nccl") == 0)
            is_nccl = true;
        if (strcmp(argv[i], "armed") == 0)
            is_always_armed = true;
        if (strcmp(argv[i], "graph") == 0 && i + 1 < argc)
            bench.nodes = number_of(argv[i + 1]);
    }
    const char *settle = getenv("COLLWIRE_BENCH_SETTLE_MS");
    const int settle_ms = settle ? number_of(settle) : 700;
    bench.begin(is_nccl);
    volatile unsigned short *armed = semaphore();
    bench.settle(500);
    for (int number = 0; number < number_of(argv[1]); ++number) {
        const bool is_armed = armed && (is_always_armed || number % 2 == 1);
        if (armed && *armed != is_armed) {
            *armed = is_armed;
            bench.settle(settle_ms);
        }
        bench.turn(number, is_armed, number_of(argv[2]));
    }
    if (armed)
        *armed = 0;
    bench.settle(settle_ms);
    return 0;
}
