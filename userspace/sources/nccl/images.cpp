// SPDX-License-Identifier: Apache-2.0
#include "collwire/nccl_layout.h"
#include "collwire/node_records.h"
// Behind it: the skeleton names its type.
#include "nccl.skel.h"

#include "userspace/sources/nccl/images.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <utility>

#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/return_probes.h"
#include "userspace/loader/take_off.h"
#include "userspace/nccl/layout/bpf_layout.h"

namespace collwire {
namespace {

// Measured with collwire-bench-nccl.
constexpr std::uint32_t EMULATED_COST_NS = 600;
constexpr std::uint32_t RETURN_COST_NS =
    2000; // not measured: a trap at the call, one at its return

constexpr std::size_t MAX_KEPT_PROBLEMS = 32;

using Programs = decltype(::nccl::progs);

struct Site {
    std::string_view function;
    bool at_return;
    bool NcclProbes::*wanted; // null: always
    bpf_program *(*program)(const Programs &);
    std::string_view without = {}; // what the others do not tell then; empty: they need it
};

// The ends of communicators and of their creation first: what is seen of a call counts from there.
constexpr std::string_view WITHOUT_SOCKETS =
    "what its bootstrap and its proxies say to one another is not counted";
constexpr std::array SITES{
    Site{"commCleanup", false, nullptr, [](const Programs &of) { return of.comm_ends; }},
    Site{"ncclCommInitRankFunc", true, nullptr, [](const Programs &of) { return of.init_ends; }},
    Site{"ncclCommInitRankFunc", false, nullptr, [](const Programs &of) { return of.init_begins; }},
    Site{"ncclLocalOpAppend", false, nullptr,
         [](const Programs &of) { return of.ops_posted_early; },
         "launches of more than 1,000 operations of the proxy may lack some, and nothing tells"},
    Site{"ncclSocketClose", false, nullptr, [](const Programs &of) { return of.socket_closes; },
         WITHOUT_SOCKETS},
    Site{"ncclProxyStart", false, nullptr,
         [](const Programs &of) {
             return bpf_program__autoload(of.proxy_start) ? of.proxy_start : of.proxy_start_bounded;
         }},
    Site{"hostStreamPlanTask", false, &NcclProbes::local_launches,
         [](const Programs &of) {
             return bpf_program__autoload(of.plan_task) ? of.plan_task : of.plan_task_bounded;
         }},
    Site{"ncclProfilerStopProxyOpEvent", false, &NcclProbes::network_times,
         [](const Programs &of) { return of.proxy_op_ends; }},
    Site{"ncclProfilerStartProxyOpEvent", false, &NcclProbes::network_times,
         [](const Programs &of) { return of.proxy_op_begins; }},
    Site{"ncclProfilerStartSendProxyOpEvent", false, &NcclProbes::network_times,
         [](const Programs &of) { return of.proxy_op_begins; }},
    Site{"ncclProfilerStartRecvProxyOpEvent", false, &NcclProbes::network_times,
         [](const Programs &of) { return of.proxy_op_begins; }},
    Site{nccl::WARNS_WITH_FUNCTION, false, &NcclProbes::warnings,
         [](const Programs &of) { return of.warns; }},
    Site{nccl::WARNS, false, &NcclProbes::warnings, [](const Programs &of) { return of.warns; }},
    Site{"ncclEnqueueCheck", true, &NcclProbes::api_returns,
         [](const Programs &of) { return of.enqueue_returns; }},
    Site{"ncclEnqueueCheck", false, nullptr, [](const Programs &of) { return of.enqueue_check; }},
};

// Of a build of which no more than its exported functions is known. Which there are depends on the
// version.
constexpr std::array EXPORTED_SITES{
    Site{"ncclCommInitRank", true, nullptr,
         [](const Programs &of) { return of.exported_init_ends; }},
    Site{"ncclCommInitRankConfig", true, nullptr,
         [](const Programs &of) { return of.exported_init_ends; }},
    Site{"ncclCommInitRankScalable", true, nullptr,
         [](const Programs &of) { return of.exported_init_ends; }},
    Site{"ncclCommSplit", true, nullptr, [](const Programs &of) { return of.exported_init_ends; }},
    Site{"ncclCommInitRank", false, nullptr,
         [](const Programs &of) { return of.exported_init_begins; }},
    Site{"ncclCommInitRankConfig", false, nullptr,
         [](const Programs &of) { return of.exported_init_begins; }},
    Site{"ncclCommInitRankScalable", false, nullptr,
         [](const Programs &of) { return of.exported_init_begins; }},
    Site{"ncclCommSplit", false, nullptr,
         [](const Programs &of) { return of.exported_split_begins; }},
    Site{"ncclCommDestroy", false, nullptr, [](const Programs &of) { return of.comm_ends; }},
    Site{"ncclCommAbort", false, nullptr, [](const Programs &of) { return of.comm_ends; }},
    Site{"ncclBroadcast", false, nullptr, [](const Programs &of) { return of.calls_broadcast; }},
    Site{"ncclReduce", false, nullptr, [](const Programs &of) { return of.calls_reduce; }},
    Site{"ncclAllGather", false, nullptr, [](const Programs &of) { return of.calls_all_gather; }},
    Site{"ncclReduceScatter", false, nullptr,
         [](const Programs &of) { return of.calls_reduce_scatter; }},
    Site{"ncclAllReduce", false, nullptr, [](const Programs &of) { return of.calls_all_reduce; }},
    Site{"ncclSend", false, nullptr, [](const Programs &of) { return of.calls_send; }},
    Site{"ncclRecv", false, nullptr, [](const Programs &of) { return of.calls_recv; }},
    Site{"ncclAlltoAll", false, nullptr, [](const Programs &of) { return of.calls_all_to_all; }},
    Site{"ncclGather", false, nullptr, [](const Programs &of) { return of.calls_gather; }},
    Site{"ncclScatter", false, nullptr, [](const Programs &of) { return of.calls_scatter; }},
};

bool is_calls_only(const NcclImage &image) {
    return !image.plan.calls_only.empty();
}

std::span<const Site> sites_of(const NcclImage &image) {
    return is_calls_only(image) ? std::span<const Site>{EXPORTED_SITES}
                                : std::span<const Site>{SITES};
}

// Which functions tell of operations depends on the version. Ends alone tell less than samples.
bool has_times(const nccl::Plan &plan, std::string_view function) {
    return nccl::measures_times(plan) && nccl::find_probe(plan, function) != nullptr;
}

bool warns_by(const nccl::Plan &plan, std::string_view function) {
    const nccl::PlannedFunction *warning = nccl::find_warning(plan);
    return warning != nullptr && warning->function == function;
}

bool has_sockets(const NcclImage &image) {
    return image.sockets_refused.empty() && nccl::tells_of_sockets(image.plan) &&
           nccl::find_probe(image.plan, "ncclSocketClose") != nullptr;
}

// The programs of the other kind of builds are not loaded.
void choose_programs(const Skeleton<::nccl> &programs, const NcclImage &image) {
    const Programs &all = programs->progs;
    if (is_calls_only(image)) {
        bpf_program *program = nullptr;
        bpf_object__for_each_program(program, programs->obj)
            bpf_program__set_autoload(program, false);
    }
    for (const Site &site : EXPORTED_SITES)
        bpf_program__set_autoload(site.program(all), is_calls_only(image));
    bpf_program__set_autoload(all.comm_ends, true);
}

bool asked_for_bounded_walk() {
    const char *value = std::getenv("COLLWIRE_NO_BPF_LOOP");
    return value != nullptr && std::string_view{value} == "1";
}

std::vector<std::string> problems_of(const NcclImage &image) {
    std::vector<std::string> all;
    if (!image.problem.empty())
        all.push_back(fmt::format("{}: {}", image.path, image.problem));
    else if (!image.loop_refused.empty())
        all.push_back(fmt::format("{}: the kernel refused the program that walks long lists, so "
                                  "launches of more than about 1,000 operations are truncated: "
                                  "{}",
                                  image.path, image.loop_refused));
    if (image.problem.empty() && is_calls_only(image))
        all.push_back(
            fmt::format("{}: calls alone are recorded: {}", image.path, image.plan.calls_only));
    for (const std::string &missing : image.missing)
        all.push_back(fmt::format("{}: {}", image.path, missing));
    return all;
}

} // namespace

NcclImage::NcclImage() = default;
NcclImage::~NcclImage() = default;

NcclImages::~NcclImages() {
    detach();
}

void NcclImages::detach() {
    attached_ = false;
    lift();
}

Result<void> NcclImages::put_back() {
    for (const auto &image : images_)
        if (image->programs)
            if (auto placed = place_all(*image); !placed)
                return placed;
    return {};
}

void NcclImages::lift() {
    std::vector<bpf_link *> all;
    for (const auto &image : images_) {
        all.insert(all.end(), image->links.begin(), image->links.end());
        image->links.clear();
    }
    take_off(all);
}

void NcclImages::attach() {
    attached_ = true;
    for (std::size_t i = 0; i < images_.size(); ++i) {
        if (images_[i]->is_asked_for || n_probed() < max_probed_)
            place(*images_[i]);
        become_one();
    }
    refuse_the_rest();
}

NcclImage *NcclImages::find(std::uint32_t id) const {
    const auto found =
        std::ranges::find_if(images_, [id](const auto &image) { return image->id == id; });
    return found == images_.end() ? nullptr : found->get();
}

std::vector<std::string> NcclImages::problems() const {
    std::vector<std::string> all = kept_problems_;
    for (const auto &image : images_)
        for (std::string &problem : problems_of(*image))
            if (std::ranges::find(all, problem) == all.end())
                all.push_back(std::move(problem));
    return all;
}

void NcclImages::keep_problem(std::string problem) {
    if (kept_problems_.size() < MAX_KEPT_PROBLEMS &&
        std::ranges::find(kept_problems_, problem) == kept_problems_.end())
        kept_problems_.push_back(std::move(problem));
}

void NcclImages::forget(const std::function<bool(const NcclImage &)> &is_over) {
    std::erase_if(images_, [&](const auto &image) {
        if (!image->names.empty() || !is_over(*image))
            return false;
        for (std::string &problem : problems_of(*image))
            keep_problem(std::move(problem));
        return true;
    });
}

std::uint64_t NcclImages::missed() const {
    return 0; // the kernel does not tell it of uprobes
}

void NcclImages::place(NcclImage &image) {
    if (image.placed_ns != 0 || !image.problem.empty())
        return;
    auto placed = load(image);
    // Its plan was made seconds ago.
    const bool is_same = is_what_was_planned(image);
    if (placed && !is_same)
        placed = error(ErrorKind::Failed, "was written again before its probes were placed");
    if (placed)
        placed = place_all(image);
    image.met.reset();
    if (placed) {
        image.placed_ns = monotonic_ns();
        return;
    }
    image.problem = std::move(placed).failure().message;
    // Unless it is another file now, it is not looked at again.
    auto names = is_same ? std::move(image.names) : std::set<FileIdentity>{};
    give_up(image);
    image.names = std::move(names);
}

Result<void> NcclImages::load(NcclImage &image) {
    auto loaded = load_any_walk(image);
    if (!loaded && has_sockets(image)) {
        image.sockets_refused = std::move(loaded).failure().message;
        loaded = load_any_walk(image);
    }
    return loaded;
}

Result<void> NcclImages::load_any_walk(NcclImage &image) {
    const bool has_loop =
        !asked_for_bounded_walk() &&
        libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, nullptr) == 1;
    auto loaded = load(image, has_loop);
    if (!loaded && has_loop) {
        image.loop_refused = std::move(loaded).failure().message;
        loaded = load(image, false);
    }
    return loaded;
}

Result<void> NcclImages::load(NcclImage &image, bool loop) {
    const auto layout = nccl::layout_of_plan(image.plan, image.id);
    if (!layout)
        return layout.failure();
    auto programs = std::make_unique<Skeleton<::nccl>>("NCCL probes");
    if (auto opened = programs->open(); !opened)
        return opened;
    bpf_program__set_autoload((*programs)->progs.proxy_start, loop);
    bpf_program__set_autoload((*programs)->progs.proxy_start_bounded, !loop);
    bpf_program__set_autoload((*programs)->progs.plan_task, loop && wanted_.local_launches);
    bpf_program__set_autoload((*programs)->progs.plan_task_bounded,
                              !loop && wanted_.local_launches);
    (*programs)->rodata->layout = *layout;
    bpf_program__set_autoload((*programs)->progs.enqueue_returns, wanted_.api_returns);
    bpf_program__set_autoload((*programs)->progs.proxy_op_begins, wanted_.network_times);
    bpf_program__set_autoload((*programs)->progs.proxy_op_ends, wanted_.network_times);
    bpf_program__set_autoload((*programs)->progs.warns,
                              wanted_.warnings && nccl::find_warning(image.plan) != nullptr);
    bpf_program__set_autoload((*programs)->progs.socket_closes, has_sockets(image));
    choose_programs(*programs, image);
    (*programs)->rodata->filter_by_tgid = !wanted_.pids.empty();
    (*programs)->rodata->watch_returns = wanted_.api_returns;
    if (auto loaded = programs->load(maps_); !loaded)
        return loaded;
    image.programs = std::move(programs);
    return {};
}

void NcclImages::plan_probes(NcclImage &image) const {
    for (const Site &site : sites_of(image)) {
        if (is_calls_only(image) && nccl::find_probe(image.plan, site.function) == nullptr)
            continue;
        if (site.wanted != nullptr && !(wanted_.*site.wanted))
            continue;
        if (site.wanted == &NcclProbes::local_launches && nccl::sees_all_launches(image.plan))
            continue;
        if (site.at_return && may_refuse_return_probes())
            continue;
        if (site.wanted == &NcclProbes::network_times && !has_times(image.plan, site.function))
            continue;
        if (site.wanted == &NcclProbes::warnings && !warns_by(image.plan, site.function))
            continue;
        if (site.function == "ncclSocketClose" && !has_sockets(image))
            continue;
        const nccl::PlannedFunction *planned = nccl::find_probe(image.plan, site.function);
        PlannedProbe probe;
        probe.kind = site.at_return ? CW_PROBE_URETPROBE : CW_PROBE_UPROBE;
        probe.source = "nccl";
        probe.function = site.function;
        probe.module_or_file = image.path;
        probe.emulated = false;
        if (planned != nullptr) {
            // Behind the first push a return address is no longer where the kernel looks for it.
            const std::uint64_t into = site.at_return ? planned->address - planned->entry : 0;
            probe.offset_bytes = planned->file_offset - into;
            probe.instruction = into == 0 ? planned->instruction : std::string{};
            probe.emulated = into == 0 && planned->emulated;
        }
        probe.expected_cost_ns = site.at_return ? RETURN_COST_NS : EMULATED_COST_NS;
        image.probes.push_back(std::move(probe));
    }
}

Result<void> NcclImages::place_one(NcclImage &image, PlannedProbe &probe, bpf_program *program) {
    if (nccl::find_probe(image.plan, probe.function) == nullptr)
        return error(ErrorKind::Unsupported, fmt::format("{} is not in it", probe.function));
    const LibbpfLog log;
    errno = 0;
    bpf_link *link = bpf_program__attach_uprobe(program, probe.kind == CW_PROBE_URETPROBE, -1,
                                                image.file.own_path().c_str(), probe.offset_bytes);
    if (link == nullptr)
        return bpf_error(fmt::format("uprobe on {}", probe.function), errno, log.text());
    image.links.push_back(link);
    probe.placed = true;
    return {};
}

Result<void> NcclImages::place_all(NcclImage &image) const {
    const auto &programs = (*image.programs)->progs;
    image.missing.clear();
    if (may_refuse_return_probes())
        image.missing.emplace_back(
            "no probe at the end of a function, since a seccomp filter could end the process for "
            "it: a communicator is met at its first call, and --api-returns tells nothing. Fix: "
            "Linux 6.14, 6.13.3 or 6.12.14");
    if (!is_calls_only(image) && wanted_.network_times && !nccl::measures_times(image.plan))
        image.missing.emplace_back(
            "nothing in it tells when an operation begins and ends on a connection, as NCCL does "
            "from 2.23 on: ends are sampled, --network-times adds nothing");
    if (wanted_.warnings && nccl::find_warning(image.plan) == nullptr)
        image.missing.emplace_back("what its warnings go through is not a function in it: "
                                   "--warnings adds nothing, the last one is read once an "
                                   "interval");
    if (!image.sockets_refused.empty())
        image.missing.push_back(fmt::format("{}: {}", image.sockets_refused, WITHOUT_SOCKETS));
    for (PlannedProbe &probe : image.probes) {
        const bool at_return = probe.kind == CW_PROBE_URETPROBE;
        const std::span<const Site> sites = sites_of(image);
        const auto site = std::ranges::find_if(sites, [&](const Site &one) {
            return one.function == probe.function && one.at_return == at_return;
        });
        auto placed = place_one(image, probe, site->program(programs));
        if (placed)
            continue;
        if (site->wanted == nullptr && site->without.empty())
            return placed;
        image.missing.push_back(std::move(placed).failure().message);
        if (!site->without.empty())
            image.missing.back() += fmt::format(": {}", site->without);
    }
    return {};
}

} // namespace collwire
