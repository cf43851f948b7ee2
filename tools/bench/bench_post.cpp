// SPDX-License-Identifier: Apache-2.0
// Measures the CPU time in ns per post of a chain of work requests: untraced, with an empty uprobe,
// and with collwire's probe, in one run. Results are in docs/sources/posts.md.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "collwire/verbs.h"
#include "empty_uprobe.skel.h"
#include "tools/bench/stand_ins.h"
#include "tools/program_options/program_options.h"
#include "userspace/elf/elf_image.h"
#include "userspace/elf/probe_point.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/loader/skeleton.h"
#include "userspace/process/process_view.h"
#include "verbs_post.skel.h"

namespace collwire::bench {
namespace {

constexpr double LIMIT_NS = 600; // added to a post of one request, including the trap
constexpr int CHAIN_LENGTHS[] = {1, 4, 16};

struct Options {
    int rounds = 7;
    int milliseconds = 3; // length of each measurement, about
};

// A round measures the three variants in turn, each this many times.
constexpr int REPETITIONS = 5;

// The BPF programs read this as a libibverbs queue pair.
struct FakeQp {
    alignas(64) std::uint64_t words[64]{};
    std::uint64_t context[64]{};
    char device[128]{};
    FakeQp() {
        words[0] = reinterpret_cast<std::uint64_t>(context);
        const std::uint32_t qpn = 4711;
        std::memcpy(reinterpret_cast<char *>(words) + 52, &qpn, sizeof qpn);
        context[0] = reinterpret_cast<std::uint64_t>(device);
        std::strcpy(device + CW_IBV_DEVICE_NAME, "bench0");
    }
};

struct Chain {
    explicit Chain(int n) : requests(static_cast<std::size_t>(n)), lists(requests.size()) {
        for (std::size_t i = 0; i < requests.size(); ++i) {
            lists[i] = {0, 65536, 1};
            requests[i].sg_list = &lists[i];
            requests[i].num_sge = 1;
            requests[i].next = i + 1 < requests.size() ? &requests[i + 1] : nullptr;
        }
    }
    std::vector<WorkRequest> requests;
    std::vector<Sge> lists;
};

// CPU time of this thread only.
double cpu_time_ns() {
    return static_cast<double>(clock_ns(CLOCK_THREAD_CPUTIME_ID));
}

double measure_once_ns(PostSend function, FakeQp &qp, Chain &chain, int posts) {
    PostSend volatile call = function; // no inlining, no hoisting
    WorkRequest *bad = nullptr;
    const double begin = cpu_time_ns();
    for (int i = 0; i < posts; ++i)
        call(qp.words, chain.requests.data(), &bad);
    return (cpu_time_ns() - begin) / posts;
}

// The place of a probe, as an offset in this program's file.
struct Point {
    std::uint64_t file_offset = 0;
    std::string instruction;
    bool emulated = false;
};

Result<Point> point_of(const StandIn &site) {
    process::ProcessView self{getpid()};
    if (auto read = self.refresh(); !read)
        return std::move(read).failure();
    const auto address = reinterpret_cast<std::uint64_t>(site.function);
    const process::Mapping *mapping = self.mapping_of(address);
    if (mapping == nullptr)
        return error(ErrorKind::Failed, "this program is missing in its own memory map");
    const std::uint64_t entry_offset = address - mapping->begin + mapping->file_offset;
    auto bytes = elf::read_library_file("/proc/self/exe");
    auto image = bytes ? elf::ElfImage::parse(std::move(*bytes)) : std::move(bytes).failure();
    if (!image)
        return std::move(image).failure();
    const auto entry = image->address_of(entry_offset);
    if (!entry)
        return error(ErrorKind::Failed, "this program's code is not in its file");
    if (!site.single_stepped_offset) {
        auto chosen = choose_probe_point(image->code(), *entry, elf::ARGUMENT_1 | elf::ARGUMENT_2);
        if (!chosen)
            return std::move(chosen).failure();
        return Point{chosen->file_offset, chosen->instruction, chosen->emulated};
    }
    return Point{entry_offset + *site.single_stepped_offset,
                 *site.single_stepped_offset == 0 ? "endbr64" : "sub $0x98,%rsp", false};
}

class Attached {
public:
    Attached(bpf_program *program, const Point &point)
        : link_(bpf_program__attach_uprobe(program, false, -1, "/proc/self/exe",
                                           point.file_offset)) {}
    Attached(const Attached &) = delete;
    Attached &operator=(const Attached &) = delete;
    ~Attached() {
        if (link_ != nullptr)
            bpf_link__destroy(link_);
    }
    [[nodiscard]] bool ok() const { return link_ != nullptr; }

private:
    bpf_link *link_ = nullptr;
};

struct Costs {
    double untraced_ns = std::numeric_limits<double>::max();
    double empty_ns = std::numeric_limits<double>::max();
    double ours_ns = std::numeric_limits<double>::max();
};

// Keeps the minimum: noise only adds. A first run determines how many posts fit a measurement.
void measure(const StandIn &site, int chain_length, const Options &options, double &best_ns) {
    FakeQp qp;
    Chain chain{chain_length};
    const double each_ns = measure_once_ns(site.function, qp, chain, 100);
    const int posts =
        static_cast<int>(std::clamp(options.milliseconds * 1e6 / each_ns, 100.0, 1e7));
    for (int i = 0; i < REPETITIONS; ++i)
        best_ns = std::min(best_ns, measure_once_ns(site.function, qp, chain, posts));
}

// Measures the three in turn, so that background load affects all of them.
bool measure_round(const StandIn &site, const Point &point, int chain_length,
                   const Options &options, bpf_program *empty, bpf_program *ours, Costs &costs) {
    measure(site, chain_length, options, costs.untraced_ns);
    for (const auto &[program, best] :
         {std::pair{empty, &costs.empty_ns}, std::pair{ours, &costs.ours_ns}}) {
        const Attached probe{program, point};
        if (!probe.ok()) {
            fmt::print(stderr, "collwire-bench-post: uprobe on {}: {}\n", point.instruction,
                       std::strerror(errno));
            return false;
        }
        measure(site, chain_length, options, *best);
    }
    return true;
}

int run(const Options &options) {
    auto maps = loader::SharedMaps::create({});
    if (!maps) {
        fmt::print(stderr, "collwire-bench-post: {}\n", maps.failure().message);
        return 1;
    }
    loader::Skeleton<empty_uprobe> empty{"empty probe"};
    loader::Skeleton<verbs_post> ours{"post probes"};
    auto ready = empty.open();
    if (ready)
        ready = empty.load(**maps);
    if (ready)
        ready = ours.open();
    if (ready) {
        const bool loop =
            libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, nullptr) == 1;
        bpf_program__set_autoload(ours->progs.post_send_loop, loop);
        // Without bpf_loop one round covers the chains of 1 and 4, not those of 16.
        bpf_program__set_autoload(ours->progs.post_send_bounded, !loop);
        bpf_program__set_autoload(ours->progs.post_send_more, false);
        ready = ours.load(**maps);
    }
    if (!ready) {
        fmt::print(stderr, "collwire-bench-post: {}\n", ready.failure().message);
        return 1;
    }
    bpf_program *program = bpf_program__autoload(ours->progs.post_send_loop)
                               ? ours->progs.post_send_loop
                               : ours->progs.post_send_bounded;

    fmt::print("CPU time in ns per post, best of {} rounds; WRs: work requests per post\nempty: "
               "with a uprobe whose program is empty; ours: with collwire's probe\n\n",
               options.rounds);
    fmt::print("{:<20} {:<35} {:<16} {:<12} {:>3} {:>9} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7}\n",
               "begins with", "as in", "probe on", "", "WRs", "untraced", "empty", "ours",
               "ours-untr", "per WR", "ours-empt", "ours/em");
    Costs worst{0, 0, 0};
    for (const StandIn &site : stand_ins()) {
        const auto point = point_of(site);
        if (!point) {
            fmt::print(stderr, "collwire-bench-post: {}\n", point.failure().message);
            return 1;
        }
        if (!site.single_stepped_offset && !point->emulated) {
            fmt::print(stderr,
                       "collwire-bench-post: `{}` would be probed on `{}`, which is "
                       "single-stepped\n",
                       site.begins_with, point->instruction);
            return 1;
        }
        for (const int length : CHAIN_LENGTHS) {
            if (!point->emulated && length != 1)
                continue;
            Costs costs;
            for (int round = 0; round < options.rounds; ++round)
                if (!measure_round(site, *point, length, options, empty->progs.nothing, program,
                                   costs))
                    return 1;
            const double added_ns = costs.ours_ns - costs.untraced_ns;
            if (point->emulated && length == 1 && added_ns > worst.ours_ns - worst.untraced_ns)
                worst = costs;
            fmt::print("{:<20} {:<35} {:<16} {:<12} {:>3} {:>9.1f} {:>8.0f} {:>8.0f} {:>9.0f} "
                       "{:>9.0f} {:>9.0f} {:>7.2f}\n",
                       site.begins_with, site.seen_in, point->instruction,
                       point->emulated ? "emulated" : "single-step", length, costs.untraced_ns,
                       costs.empty_ns, costs.ours_ns, added_ns, added_ns / length,
                       costs.ours_ns - costs.empty_ns, costs.ours_ns / costs.empty_ns);
            std::fflush(stdout);
        }
    }
    const double added_ns = worst.ours_ns - worst.untraced_ns;
    fmt::print(
        "\nA post of one request, probe on an emulated instruction: {:.0f} ns added at most; "
        "the limit is {:.0f} ns: {}.\nAn empty uprobe alone adds {:.0f} ns on this kernel and "
        "machine; collwire's program {:.0f} ns on top of it.\n",
        added_ns, LIMIT_NS, added_ns <= LIMIT_NS ? "kept" : "NOT kept",
        worst.empty_ns - worst.untraced_ns, worst.ours_ns - worst.empty_ns);
    return 0;
}

} // namespace
} // namespace collwire::bench

int main(int argc, char **argv) {
    collwire::bench::Options options;
    collwire::ProgramOptions program("Measures what probes on posted work requests cost here");
    program.add("--rounds", options.rounds, "the best round counts").range(1, 1000);
    program.add("--milliseconds", options.milliseconds, "length of each measurement, about")
        .range(1, 10000);
    if (const auto status = program.parse(argc, argv))
        return *status;
    return collwire::bench::run(options);
}
