// SPDX-License-Identifier: Apache-2.0
// A process that has mapped NCCL and lies in its memory, or changes or dies while it is looked at:
//   hostile_target MODE LIBRARY SYMBOL_OFFSET_OF_COMMS SYMBOL_OFFSET_OF_N_COMMS MAGIC_OFFSET
//                  STATE_OFFSET RANKS_OFFSET RANK_OFFSET
// MODE: lies (lists that lead back to themselves, absurd counts), dies (some 0 to 60 ms after it is
// ready, longer with each of a row of process numbers),
// execs (itself, again and again), remaps (the memory that NCCL's list leads to, again and again).
// Offsets: of the file's addresses, and in struct ncclComm, in decimal. Says "ready" on standard
// output.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace {

constexpr std::uint64_t MAGIC = 0x0280028002800280;
constexpr std::size_t REGION_BYTES = 64U << 20U;
constexpr std::size_t PAGE_STRIDE_BYTES = 5 * 4096;
constexpr std::size_t COMM_STRIDE_BYTES = 4096;
constexpr std::size_t MOST_COMM_BYTES = 4U << 20U; // of struct ncclComm: 1 MiB and more
constexpr std::int32_t MOST = 0x7fffffff;

struct Arguments {
    std::string_view mode;
    const char *library;
    std::array<std::uint64_t, 6> offsets; // comms, n_comms, magic, state, ranks, rank
};

std::uint64_t base_of(const char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    link_map *map = nullptr;
    if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        std::fprintf(stderr, "hostile_target: %s\n", dlerror());
        std::exit(1);
    }
    return map->l_addr;
}

template <typename T> void put(std::uint64_t address, T value) {
    std::memcpy(reinterpret_cast<void *>(address), &value, sizeof(value));
}

// All of it leads into itself. Neighbours lead to different pages: these take the longest to read.
std::uint64_t make_region(const Arguments &arguments, void *at) {
    void *memory = mmap(at, REGION_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED), -1, 0);
    if (memory == MAP_FAILED)
        std::exit(1);
    auto *words = static_cast<std::uint64_t *>(memory);
    const auto begin = reinterpret_cast<std::uint64_t>(memory);
    for (std::size_t i = 0; i < REGION_BYTES / sizeof(std::uint64_t); ++i)
        words[i] = begin + i * PAGE_STRIDE_BYTES % (REGION_BYTES - MOST_COMM_BYTES);
    const auto &[comms, n_comms, magic, state, ranks, rank] = arguments.offsets;
    for (std::size_t comm = 0; comm + MOST_COMM_BYTES < REGION_BYTES; comm += COMM_STRIDE_BYTES) {
        put(begin + comm + magic, MAGIC);
        put(begin + comm + state, std::int32_t{0});
        put(begin + comm + ranks, MOST);
        put(begin + comm + rank, std::int32_t{1});
    }
    // The list of communicators: each is another place in the region.
    for (std::size_t i = 0; i < 4096; ++i)
        words[i] = begin + i % 1024 * COMM_STRIDE_BYTES;
    return begin;
}

void lie(const Arguments &arguments, std::uint64_t base, std::uint64_t region) {
    put(base + arguments.offsets[0], region);
    put(base + arguments.offsets[1], MOST);
}

void say_ready() {
    std::puts("ready");
    std::fflush(stdout);
}

void remap(const Arguments &arguments, std::uint64_t region) {
    for (;;) {
        munmap(reinterpret_cast<void *>(region), REGION_BYTES);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        make_region(arguments, reinterpret_cast<void *>(region));
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 9)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Arguments arguments{argv[1], argv[2], {}};
    for (std::size_t i = 0; i < arguments.offsets.size(); ++i)
        arguments.offsets[i] = std::strtoull(argv[3 + i], nullptr, 10);
    const std::uint64_t base = base_of(arguments.library);
    const std::uint64_t region = make_region(arguments, nullptr);
    lie(arguments, base, region);
    const bool was_here = std::getenv("HOSTILE_TARGET_AGAIN") != nullptr;
    if (!was_here)
        say_ready();
    if (arguments.mode == "dies") {
        std::this_thread::sleep_for(std::chrono::milliseconds(getpid() % 20 * 3));
        return 0;
    }
    if (arguments.mode == "execs") {
        setenv("HOSTILE_TARGET_AGAIN", "1", 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        execv("/proc/self/exe", argv);
        return 1;
    }
    if (arguments.mode == "remaps")
        remap(arguments, region);
    pause();
    return 0;
}
