// SPDX-License-Identifier: Apache-2.0
// ns per post of a work request chain: untraced, with an empty uprobe, with collwire's, in one run.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <bpf/bpf.h>
#include <fmt/format.h>

#include "collwire/verbs.h"
#include "empty_uprobe.skel.h"
#include "tools/bench/stand_ins.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/loader/skeleton.h"
#include "userspace/providers/process_view.h"
#include "verbs_post.skel.h"

namespace collwire::bench {
namespace {

constexpr double LIMIT_NS = 600; // added to a post of one request, the trap included
constexpr int CHAIN_LENGTHS[] = {1, 4, 16};

struct Options {
    int repetitions = 15;
    int milliseconds = 10; // of each measurement, about
};

// Looks to the programs like a queue pair of libibverbs.
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

// Of this thread: what other programs take of the machine is not in it.
double cpu_time_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double measure_once_ns(PostSend function, FakeQp &qp, Chain &chain, int posts) {
    PostSend volatile call = function; // no inlining, no hoisting
    WorkRequest *bad = nullptr;
    const double begin = cpu_time_ns();
    for (int i = 0; i < posts; ++i)
        call(qp.words, chain.requests.data(), &bad);
    return (cpu_time_ns() - begin) / posts;
}

// The best of the repetitions: noise only ever adds. How many posts fit into one is found out
// first.
double measure_ns(const StandIn &site, int chain_length, const Options &options) {
    FakeQp qp;
    Chain chain{chain_length};
    int posts = 100;
    double each_ns = measure_once_ns(site.function, qp, chain, posts);
    posts = static_cast<int>(std::clamp(options.milliseconds * 1e6 / each_ns, 100.0, 1e7));
    double best_ns = std::numeric_limits<double>::max();
    for (int i = 0; i < options.repetitions; ++i)
        best_ns = std::min(best_ns, measure_once_ns(site.function, qp, chain, posts));
    return best_ns;
}

class Attached {
public:
    Attached(bpf_program *program, const StandIn &site) {
        ProcessView self{getpid()};
        const auto address = reinterpret_cast<std::uint64_t>(site.function);
        if (!self.refresh())
            return;
        const Mapping *mapping = self.mapping_of(address);
        if (mapping == nullptr)
            return;
        link_ = bpf_program__attach_uprobe(program, false, -1, "/proc/self/exe",
                                           address - mapping->begin + mapping->file_offset +
                                               site.probe_offset);
    }
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

int run(const Options &options) {
    auto maps = SharedMaps::create({});
    if (!maps) {
        fmt::print(stderr, "collwire-bench-post: {}\n", maps.failure().message);
        return 1;
    }
    Skeleton<empty_uprobe> empty{"empty probe"};
    Skeleton<verbs_post> ours{"post probes"};
    auto ready = empty.open();
    if (ready)
        ready = empty.load(**maps);
    if (ready)
        ready = ours.open();
    if (ready) {
        const bool loop =
            libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, nullptr) == 1;
        bpf_program__set_autoload(ours->progs.post_send_loop, loop);
        bpf_program__set_autoload(ours->progs.post_send_bounded, !loop);
        ready = ours.load(**maps);
    }
    if (!ready) {
        fmt::print(stderr, "collwire-bench-post: {}\n", ready.failure().message);
        return 1;
    }
    bpf_program *program = bpf_program__autoload(ours->progs.post_send_loop)
                               ? ours->progs.post_send_loop
                               : ours->progs.post_send_bounded;

    fmt::print("ns of CPU time per post, best of {} repetitions of about {} ms\n\n",
               options.repetitions, options.milliseconds);
    fmt::print("{:<20} {:<35} {:<15} {:<12} {:>3} {:>9} {:>9} {:>9} {:>8} {:>9} {:>7}\n",
               "begins with", "as in", "probe on", "", "WRs", "untraced", "empty", "ours",
               "ours - u", "per WR", "ours/e");
    double worst_ns = 0;
    for (const StandIn &site : stand_ins()) {
        for (const int length : CHAIN_LENGTHS) {
            const double untraced = measure_ns(site, length, options);
            double with_empty = 0;
            double with_ours = 0;
            {
                const Attached probe{empty->progs.nothing, site};
                if (!probe.ok()) {
                    fmt::print(stderr, "collwire-bench-post: uprobe on {}: {}\n", site.probed,
                               std::strerror(errno));
                    return 1;
                }
                with_empty = measure_ns(site, length, options);
            }
            {
                const Attached probe{program, site};
                if (!probe.ok())
                    return 1;
                with_ours = measure_ns(site, length, options);
            }
            const double added = with_ours - untraced;
            if (site.emulated && length == 1)
                worst_ns = std::max(worst_ns, added);
            fmt::print("{:<20} {:<35} {:<15} {:<12} {:>3} {:>9.1f} {:>9.1f} {:>9.1f} {:>8.0f} "
                       "{:>9.1f} {:>7.2f}\n",
                       site.begins_with, site.seen_in, site.probed,
                       site.emulated ? "emulated" : "single-step", length, untraced, with_empty,
                       with_ours, added, added / length, with_ours / with_empty);
        }
    }
    fmt::print("\nOne request on an emulated instruction: at most {:.0f} ns added; the limit is "
               "{:.0f} ns: {}\n",
               worst_ns, LIMIT_NS, worst_ns <= LIMIT_NS ? "kept" : "NOT kept");
    return 0;
}

} // namespace
} // namespace collwire::bench

int main(int argc, char **argv) {
    collwire::bench::Options options;
    CLI::App app{"What probes on posted work requests cost on this machine"};
    app.add_option("--repetitions", options.repetitions)->check(CLI::Range(1, 1000));
    app.add_option("--milliseconds", options.milliseconds, "of each measurement, about")
        ->check(CLI::Range(1, 10000));
    CLI11_PARSE(app, argc, argv);
    return collwire::bench::run(options);
}
