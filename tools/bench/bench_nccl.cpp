// SPDX-License-Identifier: Apache-2.0
// Measures the CPU time in ns that probes add to an NCCL launch in the launching thread: untraced,
// with empty uprobes in the same places, and with collwire's probes, in one run. Results are in
// docs/sources/nccl.md. The official library runs on the CUDA test double (tests/cuda_double): two
// devices in this process, connected by NET/Socket.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/encoder.h"
#include "empty_uprobe.skel.h"
#include "tools/program_options/program_options.h"
#include "userspace/loader/event_ring.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/loader/skeleton.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::bench {
namespace {

constexpr double LIMIT_LAUNCH_NS = 1000; // more than an empty uprobe
constexpr double LIMIT_OP_NS = 100;      // more for each proxy operation
constexpr double LIMIT_CAPTURE_BYTES = 100;
constexpr int LAUNCHES_A_GROUP = 2; // one per device

struct Options {
    std::string nccl;
    std::string double_directory;
    std::vector<int> channels = {1, 8, 32};
    int rounds = 40;
    int groups = 25; // per round, for each of the three variants
    int child_channels = 0;
};

[[noreturn]] void fail(const std::string &why) {
    fmt::print(stderr, "collwire-bench-nccl: {}\n", why);
    std::exit(1);
}

// The functions of NCCL and of the double that this program calls, by their ABI.
struct Nccl {
    using Comm = void *;
    using Stream = void *;
    int (*comm_init_all)(Comm *, int, const int *) = nullptr;
    int (*group_start)() = nullptr;
    int (*group_end)() = nullptr;
    int (*all_reduce)(const void *, void *, std::size_t, int, int, Comm, Stream) = nullptr;
    int (*comm_destroy)(Comm) = nullptr;
    int (*set_device)(int) = nullptr;
    int (*malloc_device)(void **, std::size_t) = nullptr;
    int (*stream_create)(Stream *, unsigned) = nullptr;
    int (*stream_synchronize)(Stream) = nullptr;

    explicit Nccl(const std::string &path) {
        void *library = dlopen(path.c_str(), RTLD_NOW);
        if (library == nullptr)
            fail(dlerror());
        find(library, "ncclCommInitAll", comm_init_all);
        find(library, "ncclGroupStart", group_start);
        find(library, "ncclGroupEnd", group_end);
        find(library, "ncclAllReduce", all_reduce);
        find(library, "ncclCommDestroy", comm_destroy);
        find(RTLD_DEFAULT, "cudaSetDevice", set_device);
        find(RTLD_DEFAULT, "cudaMalloc", malloc_device);
        find(RTLD_DEFAULT, "cudaStreamCreateWithFlags", stream_create);
        find(RTLD_DEFAULT, "cudaStreamSynchronize", stream_synchronize);
    }

    template <typename Function>
    static void find(void *library, const char *name, Function &function) {
        function = reinterpret_cast<Function>(dlsym(library, name));
        if (function == nullptr)
            fail(fmt::format("{} is missing: is libcuda_double.so preloaded?", name));
    }
};

void check(int result, const char *what) {
    if (result != 0)
        fail(fmt::format("{}: {}", what, result));
}

class Job {
public:
    // `count_` is large enough for NCCL to use every channel.
    explicit Job(const std::string &library, int channels)
        : nccl_(library), count_(static_cast<std::size_t>(channels) * 8192) {
        const std::array<int, 2> devices{0, 1};
        check(nccl_.comm_init_all(comms_.data(), 2, devices.data()), "ncclCommInitAll");
        for (std::size_t i = 0; i < comms_.size(); ++i) {
            check(nccl_.set_device(static_cast<int>(i)), "cudaSetDevice");
            check(nccl_.malloc_device(&buffers_[i], count_ * sizeof(float)), "cudaMalloc");
            check(nccl_.stream_create(&streams_[i], 1), "cudaStreamCreate");
        }
        for (int i = 0; i < 20; ++i)
            static_cast<void>(group_ns());
    }

    // CPU time of this thread, in ns, for a group with one launch on each device.
    double group_ns() {
        const auto begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        check(nccl_.group_start(), "ncclGroupStart");
        for (std::size_t i = 0; i < comms_.size(); ++i)
            check(nccl_.all_reduce(buffers_[i], buffers_[i], count_, 7, 0, comms_[i], streams_[i]),
                  "ncclAllReduce");
        check(nccl_.group_end(), "ncclGroupEnd");
        const auto end = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        for (void *stream : streams_)
            check(nccl_.stream_synchronize(stream), "cudaStreamSynchronize");
        return static_cast<double>(end - begin);
    }

    void end() {
        for (void *comm : comms_)
            check(nccl_.comm_destroy(comm), "ncclCommDestroy");
    }

private:
    Nccl nccl_;
    std::size_t count_;
    std::array<void *, 2> comms_{}, buffers_{}, streams_{};
};

// Empty programs on the instructions that collwire probes.
class EmptyProbes {
public:
    EmptyProbes(bpf_program *program, const nccl::LibraryLayout &layout) {
        for (const char *function : {"ncclEnqueueCheck", "ncclProxyStart"}) {
            const auto *planned = nccl::find_probe(layout, function);
            bpf_link *link = planned == nullptr ? nullptr
                                                : bpf_program__attach_uprobe(program, false, -1,
                                                                             layout.file.c_str(),
                                                                             planned->file_offset);
            if (link == nullptr)
                fail(fmt::format("an empty uprobe on {}", function));
            links_.push_back(link);
        }
    }
    EmptyProbes(const EmptyProbes &) = delete;
    EmptyProbes &operator=(const EmptyProbes &) = delete;
    ~EmptyProbes() {
        for (bpf_link *link : links_)
            bpf_link__destroy(link);
    }

private:
    std::vector<bpf_link *> links_;
};

// Counts the records of this process and their size in a capture. One block per round, as a
// recorder that flushes once a second writes it for a job with that many launches per second.
class Seen {
public:
    std::uint64_t calls = 0, launches = 0, ops = 0, ring_bytes = 0, capture_bytes = 0;

    void take(const cw_header &header) {
        cw_nccl_call call{};
        cw_nccl_launch launch{};
        if (header.kind == CW_KIND_NCCL_CALL)
            std::memcpy(&call, &header, sizeof(call));
        else if (header.kind == CW_KIND_NCCL_LAUNCH)
            std::memcpy(&launch, &header, sizeof(launch));
        // Other processes may use this library file, too.
        const auto tgid = std::max(call.tgid, launch.tgid);
        if (tgid != 0 && tgid != self_)
            return;
        calls += call.tgid != 0;
        launches += launch.tgid != 0;
        ops += launch.n_ops;
        ring_bytes += header.length_bytes;
        if (const auto added = block_.add(header); !added)
            fail(added.failure().message);
    }

    void end_block() {
        if (block_.empty())
            return;
        const auto block = block_.encode(n_blocks_++);
        if (!block)
            fail(block.failure().message);
        capture_bytes += block->size();
        block_.clear();
    }

private:
    std::uint32_t self_ = static_cast<std::uint32_t>(getpid());
    std::uint32_t n_blocks_ = 0;
    capture::BlockEncoder block_;
};

constexpr double MEDIAN = 0.5, QUIET = 0.1;

double quantile(std::vector<double> values, double part) {
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size()))];
}

// A median and its 95 % confidence interval for any distribution: order statistics, by the normal
// approximation of the binomial distribution.
struct Median {
    double value = 0, low = 0, high = 0;
};

Median median_of(std::vector<double> values) {
    std::ranges::sort(values);
    const auto n = static_cast<double>(values.size());
    const auto at = [&](double rank) {
        return values[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))];
    };
    const double half_width = 1.96 * std::sqrt(n) / 2;
    return {.value = at(n / 2),
            .low = at(std::floor(n / 2 - half_width)),
            .high = at(std::ceil(n / 2 + half_width))};
}

// Prefix of the program names with and without bpf_loop(), as long as the kernel stores them.
constexpr std::string_view LAUNCH = "proxy_start";

// Turns on the kernel's run-time statistics of BPF programs while it exists.
class ProgramTimes {
public:
    ProgramTimes() : stats_(bpf_enable_stats(BPF_STATS_RUN_TIME)) {
        if (stats_ < 0)
            fail("the kernel does not measure run times of BPF programs");
    }
    ProgramTimes(const ProgramTimes &) = delete;
    ProgramTimes &operator=(const ProgramTimes &) = delete;
    ~ProgramTimes() { close(stats_); }

    static std::uint32_t last_program() {
        std::uint32_t id = 0;
        while (bpf_prog_get_next_id(id, &id) == 0) {
        }
        return id;
    }

    struct Runs {
        double ns = 0, n = 0;
        Runs operator-(const Runs &other) const { return {ns - other.ns, n - other.n}; }
        [[nodiscard]] double mean_ns() const { return n == 0 ? 0 : ns / n; }
    };

    // Sum over the programs with ids in (begin, end] whose names start with `name`.
    static Runs runs(std::uint32_t begin, std::uint32_t end, std::string_view name = {}) {
        Runs sum;
        for (std::uint32_t id = begin; bpf_prog_get_next_id(id, &id) == 0 && id <= end;) {
            const int program = bpf_prog_get_fd_by_id(id);
            bpf_prog_info info{};
            std::uint32_t size = sizeof(info);
            if (program < 0)
                continue; // unloaded meanwhile
            if (bpf_obj_get_info_by_fd(program, &info, &size) == 0 &&
                std::string_view{info.name}.starts_with(name)) {
                sum.ns += static_cast<double>(info.run_time_ns);
                sum.n += static_cast<double>(info.run_cnt);
            }
            close(program);
        }
        return sum;
    }

private:
    int stats_;
};

// Gives the launching thread a CPU that no other thread of this process uses. Otherwise the proxies
// and the emulated kernels share its CPU and evict its caches, more so the longer a launch takes.
void keep_others_off_this_cpu() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2)
        return;
    cpu_set_t own, others = allowed;
    CPU_ZERO(&own);
    for (int cpu = 0; CPU_COUNT(&own) == 0; ++cpu)
        if (CPU_ISSET(cpu, &allowed))
            CPU_SET(cpu, &own);
    CPU_XOR(&others, &allowed, &own);
    for (const auto &entry : std::filesystem::directory_iterator{"/proc/self/task"}) {
        const int tid = std::stoi(entry.path().filename());
        // Fails for a thread that exited meanwhile, which is fine.
        static_cast<void>(sched_setaffinity(tid, sizeof(own), tid == gettid() ? &own : &others));
    }
}

int measure(const Options &options) {
    const auto layout = nccl::layout_of_file(options.nccl);
    if (!layout)
        fail(layout.failure().message);
    auto maps = loader::SharedMaps::create({});
    if (!maps)
        fail(maps.failure().message);
    Seen seen;
    auto ring =
        loader::EventRing::create(**maps, [&seen](const cw_header &header) { seen.take(header); });
    const auto first_program = ProgramTimes::last_program();
    loader::Skeleton<empty_uprobe> empty{"empty probe"};
    auto ready = ring ? empty.open() : Result<void>{ring.failure()};
    if (ready)
        ready = empty.load(**maps);
    if (!ready)
        fail(ready.failure().message);
    const auto last_empty = ProgramTimes::last_program();

    Job job{options.nccl, options.child_channels};
    keep_others_off_this_cpu();
    sources::NcclLibraries ours{**maps, {}};
    ours.attach();
    ours.scan({getpid()});
    if (!ours.problems().empty())
        fail(ours.problems().front());
    ours.detach_probes();
    const auto last_program = ProgramTimes::last_program();
    std::vector<double> untraced, with_empty, with_ours, differences, programs, launch_programs;
    // Returns the undisturbed time of a launch in this round.
    const auto repeat = [&](std::vector<double> &times) {
        static_cast<void>(job.group_ns()); // warm-up: the probed code has just changed
        std::vector<double> round;
        round.reserve(static_cast<std::size_t>(options.groups));
        for (int i = 0; i < options.groups; ++i)
            round.push_back(job.group_ns() / LAUNCHES_A_GROUP);
        times.insert(times.end(), round.begin(), round.end());
        return quantile(std::move(round), QUIET);
    };
    const auto launch = [&] {
        for (int i = 0; i < options.groups; ++i)
            static_cast<void>(job.group_ns());
    };
    // Measures launches of a shape already emitted: the first launch under the probes emits it.
    for (int round = 0; round < options.rounds; ++round) {
        static_cast<void>(repeat(untraced));
        double empty_ns = 0;
        {
            const EmptyProbes probes{empty->progs.nothing, *layout};
            empty_ns = repeat(with_empty);
        }
        if (auto placed = ours.reattach_probes(); !placed)
            fail(placed.failure().message);
        differences.push_back(repeat(with_ours) - empty_ns);
        ours.detach_probes();
        {
            const ProgramTimes times;
            const auto empty_before = ProgramTimes::runs(first_program, last_empty);
            {
                const EmptyProbes probes{empty->progs.nothing, *layout};
                launch();
            }
            const auto nothing = ProgramTimes::runs(first_program, last_empty) - empty_before;
            const auto launch_before = ProgramTimes::runs(last_empty, last_program, LAUNCH);
            const auto before = ProgramTimes::runs(last_empty, last_program);
            if (auto placed = ours.reattach_probes(); !placed)
                fail(placed.failure().message);
            launch();
            ours.detach_probes();
            const auto launched =
                ProgramTimes::runs(last_empty, last_program, LAUNCH) - launch_before;
            if (launched.n == 0 || nothing.n == 0)
                fail("no launch ran the programs");
            launch_programs.push_back(launched.mean_ns() - nothing.mean_ns());
            programs.push_back(
                ((ProgramTimes::runs(last_empty, last_program) - before).ns - nothing.ns) /
                (LAUNCHES_A_GROUP * options.groups));
        }
        static_cast<void>((*ring)->consume());
        seen.end_block();
    }
    job.end();
    for (const source::LossCount &loss : (*maps)->losses())
        fmt::print(stderr, "lost: {} of class {}\n", loss.records,
                   static_cast<int>(loss.loss_class));
    const double base = quantile(untraced, MEDIAN), floor = quantile(with_empty, MEDIAN),
                 traced = quantile(with_ours, MEDIAN);
    const auto added = median_of(differences), counted = median_of(programs),
               launch_alone = median_of(launch_programs);
    const auto n_launches = static_cast<double>(std::max<std::uint64_t>(seen.launches, 1));
    const auto n_calls = static_cast<double>(std::max<std::uint64_t>(seen.calls, 1));
    const double ops = static_cast<double>(seen.ops) / n_launches;
    const double limit = LIMIT_LAUNCH_NS + LIMIT_OP_NS * ops;
    const double capture_bytes = static_cast<double>(seen.capture_bytes) / n_calls;
    const auto verdict = [limit](const Median &median) {
        return median.low > limit ? "NOT kept" : median.high <= limit ? "kept" : "undecided";
    };
    const bool broken = counted.low > limit || capture_bytes > LIMIT_CAPTURE_BYTES;
    fmt::print(
        "{:>8} {:>5.0f} {:>7.2f} {:>9.0f} {:>9.0f} {:>9.0f} {:>9.0f} {:>9.0f} {:>7.0f} "
        "{:>15} {:>8.0f} {:>12} {:>8.0f} {:>12} {:>7.0f} {:>7.3f} {:>6.0f} {:>7.1f}  {}, with its "
        "call {}\n",
        options.child_channels, ops, static_cast<double>(seen.calls + seen.launches) / n_calls,
        base, floor, traced, floor - base, traced - floor, added.value,
        fmt::format("{:.0f} to {:.0f}", added.low, added.high), launch_alone.value,
        fmt::format("{:.0f} to {:.0f}", launch_alone.low, launch_alone.high), counted.value,
        fmt::format("{:.0f} to {:.0f}", counted.low, counted.high), limit, traced / base,
        static_cast<double>(seen.ring_bytes) / n_calls, capture_bytes, verdict(launch_alone),
        verdict(counted));
    return broken ? 1 : 0;
}

// NCCL reads its environment once, so each number of channels needs its own process.
int run(const Options &options, const char *program) {
    fmt::print(
        "CPU time in ns per launch in the launching thread, medians of {} launches each\nempty: "
        "uprobes with empty programs in the same places; ours: collwire's probes\nadds: ours minus "
        "empty in the same round, at the 10th percentile of each (no disturbance);\nmedian of {} "
        "rounds and its 95 % confidence interval\nlaunch: run time of our launch program minus "
        "that of an empty one, from kernel statistics;\nmedian of the same rounds, compared with "
        "the limit; withcall: the same for the programs of\na call and its launch together, which "
        "sets the exit status\nring, capture: bytes per call and launch in the ring buffer and in "
        "the capture (limit {})\n\n{:>8} {:>5} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>15} "
        "{:>8} {:>12} {:>8} {:>12} {:>7} {:>7} {:>6} {:>7}\n",
        options.rounds * options.groups, options.rounds, LIMIT_CAPTURE_BYTES, "channels", "ops",
        "traps", "untraced", "empty", "ours", "empty-un", "ours-emp", "adds", "(95 %)", "launch",
        "(95 %)", "withcall", "(95 %)", "limit", "ours/un", "ring", "capture");
    std::fflush(stdout);
    int worst = 0;
    for (const int channels : options.channels) {
        const pid_t pid = fork();
        if (pid == 0) {
            const std::string n = std::to_string(channels);
            const std::string preload = options.double_directory + "/libcuda_double.so";
            for (const auto &[name, value] :
                 {std::pair{"NCCL_MIN_NCHANNELS", n.c_str()},
                  std::pair{"NCCL_MAX_NCHANNELS", n.c_str()}, std::pair{"NCCL_P2P_DISABLE", "1"},
                  std::pair{"NCCL_SHM_DISABLE", "1"}, std::pair{"NCCL_IB_DISABLE", "1"},
                  std::pair{"NCCL_SOCKET_IFNAME", "lo"}, std::pair{"NCCL_NET_PLUGIN", "none"},
                  std::pair{"NCCL_ALGO", "Ring"}, std::pair{"NCCL_PROTO", "Simple"},
                  std::pair{"NCCL_RAS_ENABLE", "0"}, std::pair{"COLLWIRE_CUDA_DEVICES", "2"},
                  std::pair{"LD_PRELOAD", preload.c_str()},
                  std::pair{"LD_LIBRARY_PATH", options.double_directory.c_str()}})
                setenv(name, value, 1);
            const std::string rounds = std::to_string(options.rounds);
            const std::string groups = std::to_string(options.groups);
            execl(program, program, options.nccl.c_str(), options.double_directory.c_str(),
                  "--child-channels", n.c_str(), "--rounds", rounds.c_str(), "--groups",
                  groups.c_str(), static_cast<char *>(nullptr));
            fail(std::strerror(errno));
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
            fail("a measurement process failed");
        worst = std::max(worst, WEXITSTATUS(status));
    }
    return worst;
}

} // namespace
} // namespace collwire::bench

int main(int argc, char **argv) {
    collwire::bench::Options options;
    collwire::ProgramOptions program(
        "Measures what collwire's probes add to an NCCL launch on this machine");
    program.add("nccl", options.nccl, "an official libnccl.so.2").required();
    program
        .add("double", options.double_directory,
             "directory with libcuda_double.so, libnvidia-ml.so.1 and layouts/")
        .required();
    program.add("--channels", options.channels).show_default();
    program.add("--rounds", options.rounds).range(1, 1000).show_default();
    program.add("--groups", options.groups, "in each round").range(1, 10000).show_default();
    program.add("--child-channels", options.child_channels).hide();
    if (const auto status = program.parse(argc, argv))
        return *status;
    return options.child_channels != 0 ? collwire::bench::measure(options)
                                       : collwire::bench::run(options, "/proc/self/exe");
}
