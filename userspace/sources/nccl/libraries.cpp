// SPDX-License-Identifier: Apache-2.0
#include "collwire/nccl_layout.h"
#include "collwire/node_records.h"
// After it: the skeleton names its type.
#include "nccl.skel.h"

#include "userspace/sources/nccl/libraries.h"

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
#include "userspace/process/silent_users.h"
#include "userspace/sources/nccl/read_names.h"

namespace collwire::sources {
namespace {

// Measured with collwire-bench-nccl.
constexpr std::uint32_t EMULATED_COST_NS = 600;
constexpr std::uint32_t RETURN_COST_NS =
    2000; // not measured: a trap at the call, one at its return

constexpr std::size_t MAX_PAST_PROBLEMS = 32;

using Programs = decltype(::nccl::progs);

struct Site {
    std::string_view function;
    bool at_return;
    bool NcclProbes::*wanted; // null: always
    bpf_program *(*program)(const Programs &);
    std::string_view without = {}; // what is lost without this site; empty: it is required
};

// The ends of communicators and of their creation come first: calls count from their probe on.
constexpr std::string_view WITHOUT_SOCKETS =
    "the bytes of bootstrap and proxy sockets are not counted";
constexpr std::array SITES{
    Site{"commCleanup", false, nullptr, [](const Programs &of) { return of.comm_ends; }},
    Site{"ncclCommInitRankFunc", true, nullptr, [](const Programs &of) { return of.init_ends; }},
    Site{"ncclCommInitRankFunc", false, nullptr, [](const Programs &of) { return of.init_begins; }},
    Site{"ncclLocalOpAppend", false, nullptr,
         [](const Programs &of) { return of.ops_posted_early; },
         "launches of more than 1,000 proxy operations may lack some, without a sign of it"},
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

// API-only: the exported functions. Which of them exist depends on the version.
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

bool is_calls_only(const NcclLibrary &library) {
    return !library.layout.calls_only.empty();
}

std::span<const Site> sites_of(const NcclLibrary &library) {
    return is_calls_only(library) ? std::span<const Site>{EXPORTED_SITES}
                                  : std::span<const Site>{SITES};
}

const Site *site_of(const NcclLibrary &library, const source::PlannedProbe &probe) {
    const bool at_return = probe.kind == CW_PROBE_URETPROBE;
    return &*std::ranges::find_if(sites_of(library), [&](const Site &one) {
        return one.function == probe.function && one.at_return == at_return;
    });
}

NcclProbeGroup group_of(const Site &site) {
    if (site.wanted == &NcclProbes::network_times)
        return NcclProbeGroup::Times;
    if (site.wanted == &NcclProbes::warnings)
        return NcclProbeGroup::Warnings;
    const bool is_control = site.function == "commCleanup" || site.function == "ncclSocketClose" ||
                            site.function.starts_with("ncclComm");
    return is_control ? NcclProbeGroup::Control : NcclProbeGroup::Operations;
}

// Which of these functions exist depends on the version. Completions without starts say less than
// samples.
bool has_times(const nccl::LibraryLayout &layout, std::string_view function) {
    return nccl::measures_times(layout) && nccl::find_probe(layout, function) != nullptr;
}

bool warns_by(const nccl::LibraryLayout &layout, std::string_view function) {
    const nccl::ProbedFunction *warning = nccl::find_warning(layout);
    return warning != nullptr && warning->function == function;
}

bool has_sockets(const NcclLibrary &library) {
    return library.sockets_refused.empty() && nccl::has_socket_fields(library.layout) &&
           nccl::find_probe(library.layout, "ncclSocketClose") != nullptr;
}

// Loads either the API-only programs or the others.
void choose_programs(const loader::Skeleton<::nccl> &programs, const NcclLibrary &library) {
    const Programs &all = programs->progs;
    if (is_calls_only(library)) {
        bpf_program *program = nullptr;
        bpf_object__for_each_program(program, programs->obj)
            bpf_program__set_autoload(program, false);
    }
    for (const Site &site : EXPORTED_SITES)
        bpf_program__set_autoload(site.program(all), is_calls_only(library));
    bpf_program__set_autoload(all.comm_ends, true);
}

bool asked_for_bounded_walk() {
    const char *value = std::getenv("COLLWIRE_NO_BPF_LOOP");
    return value != nullptr && std::string_view{value} == "1";
}

constexpr std::uint64_t MOST_PLACING_NS = 2'000'000'000;
constexpr std::uint64_t MOST_PLACING_IN_TICK_NS = 300'000'000;

std::vector<std::string> problems_of(const NcclLibrary &library) {
    std::vector<std::string> all;
    if (!library.problem.empty())
        all.push_back(fmt::format("{}: {}", library.path, library.problem));
    else if (!library.loop_refused.empty())
        all.push_back(fmt::format("{}: the kernel refused the program that walks long lists, so "
                                  "launches of more than about 1,000 operations are truncated: "
                                  "{}",
                                  library.path, library.loop_refused));
    if (!library.waits_for.empty())
        all.push_back(fmt::format("{}: gets no probes while the kernel would wait for {}: NCCL in "
                                  "it is not recorded until then. Fix: end that process",
                                  library.path, process::text_of_silent(library.waits_for)));
    else if (library.is_waiting)
        all.push_back(fmt::format(
            "{}: gets its probes later: placing those of other files with NCCL took long",
            library.path));
    if (library.problem.empty() && is_calls_only(library))
        all.push_back(fmt::format("{}: API-only: {}", library.path, library.layout.calls_only));
    for (const std::string &missing : library.missing)
        all.push_back(fmt::format("{}: {}", library.path, missing));
    return all;
}

} // namespace

NcclLibrary::NcclLibrary() = default;
NcclLibrary::~NcclLibrary() = default;

NcclLibraries::~NcclLibraries() {
    detach();
}

void NcclLibraries::detach() {
    attached_ = false;
    detach_probes();
}

Result<void> NcclLibraries::reattach_probes() {
    for (const auto &library : libraries_)
        if (library->programs)
            if (auto placed = place_all(*library); !placed)
                return placed;
    return {};
}

void NcclLibraries::detach_probes() {
    const auto held_by = silent_users_of_probed();
    std::vector<bpf_link *> all;
    for (const auto &library : libraries_) {
        const auto links = links_of(*library);
        all.insert(all.end(), links.begin(), links.end());
        library->links.clear();
    }
    loader::take_off(all, held_by);
}

void NcclLibraries::attach() {
    attached_ = true;
    const std::uint64_t end_ns = monotonic_ns() + MOST_PLACING_NS;
    for (std::size_t i = 0; i < libraries_.size(); ++i) {
        NcclLibrary &library = *libraries_[i];
        const bool has_room = library.is_requested || n_probed() + n_waiting() < max_probed_;
        if (has_room && i != 0 && monotonic_ns() >= end_ns && !library.is_requested)
            library.is_waiting = library.placed_ns == 0 && library.problem.empty();
        else if (has_room)
            place(library);
        merge_copies();
    }
    refuse_the_rest();
}

std::optional<std::uint32_t> NcclLibraries::place_waiting() {
    const std::uint64_t end_ns = monotonic_ns() + MOST_PLACING_IN_TICK_NS;
    std::optional<std::uint32_t> before;
    for (std::size_t i = 0; i < libraries_.size(); ++i) {
        NcclLibrary &library = *libraries_[i];
        if (!attached_ || !library.is_waiting)
            continue;
        place(library);
        if (library.placed_ns != 0 && !before)
            before = library.id - 1;
        merge_copies();
        if (monotonic_ns() >= end_ns)
            break;
    }
    return before;
}

std::vector<pid_t> NcclLibraries::silent_users_of_probed() const {
    process::ProbedFile probed;
    for (const auto &library : libraries_) {
        if (library->links.empty())
            continue;
        probed.paths.insert(library->path);
        for (const process::FileIdentity &name : library->names)
            probed.inodes.insert(name.inode);
    }
    return probed.paths.empty() ? std::vector<pid_t>{} : process::silent_users(probed);
}

NcclLibrary *NcclLibraries::find(std::uint32_t id) const {
    const auto found =
        std::ranges::find_if(libraries_, [id](const auto &library) { return library->id == id; });
    return found == libraries_.end() ? nullptr : found->get();
}

std::vector<std::string> NcclLibraries::problems() const {
    std::vector<std::string> all = past_problems_;
    if (n_unread_ != 0)
        all.push_back(fmt::format("{} file(s) with NCCL are still to be read, most used first: "
                                  "their processes are recorded from then on",
                                  n_unread_));
    for (const auto &library : libraries_)
        for (std::string &problem : problems_of(*library))
            if (std::ranges::find(all, problem) == all.end())
                all.push_back(std::move(problem));
    return all;
}

void NcclLibraries::add_problem(std::string problem) {
    if (past_problems_.size() < MAX_PAST_PROBLEMS &&
        std::ranges::find(past_problems_, problem) == past_problems_.end())
        past_problems_.push_back(std::move(problem));
}

void NcclLibraries::forget(const std::function<bool(const NcclLibrary &)> &is_over) {
    std::erase_if(libraries_, [&](const auto &library) {
        if (!library->names.empty() || !is_over(*library))
            return false;
        for (std::string &problem : problems_of(*library))
            add_problem(std::move(problem));
        return true;
    });
}

std::uint64_t NcclLibraries::missed() const {
    return 0; // the kernel does not count them for uprobes
}

void NcclLibraries::place(NcclLibrary &library) {
    if (library.placed_ns != 0 || !library.problem.empty())
        return;
    process::ProbedFile probed{{}, {library.path}};
    for (const process::FileIdentity &name : library.names)
        probed.inodes.insert(name.inode);
    library.waits_for = process::silent_users(probed);
    library.is_waiting = !library.waits_for.empty();
    if (library.is_waiting)
        return;
    auto placed = load(library);
    // The file may have changed since its layout was made.
    const bool is_same = matches_its_layout(library);
    if (placed && !is_same)
        placed = error(ErrorKind::Failed, "was written again before its probes were placed");
    if (placed)
        placed = place_all(library);
    library.found_in.reset();
    if (placed) {
        library.placed_ns = monotonic_ns();
        return;
    }
    library.problem = std::move(placed).failure().message;
    // The same file is not tried again; a changed one is.
    auto names = is_same ? std::move(library.names) : std::set<process::FileIdentity>{};
    release(library);
    library.names = std::move(names);
}

Result<void> NcclLibraries::load(NcclLibrary &library) {
    auto loaded = load_any_walk(library);
    if (!loaded && has_sockets(library)) {
        library.sockets_refused = std::move(loaded).failure().message;
        loaded = load_any_walk(library);
    }
    return loaded;
}

Result<void> NcclLibraries::load_any_walk(NcclLibrary &library) {
    const bool has_loop =
        !asked_for_bounded_walk() &&
        libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, nullptr) == 1;
    auto loaded = load(library, has_loop);
    if (!loaded && has_loop) {
        library.loop_refused = std::move(loaded).failure().message;
        loaded = load(library, false);
    }
    return loaded;
}

Result<void> NcclLibraries::load(NcclLibrary &library, bool loop) {
    const auto bpf_layout = nccl::bpf_layout_of(library.layout, library.id);
    if (!bpf_layout)
        return bpf_layout.failure();
    auto programs = std::make_unique<loader::Skeleton<::nccl>>("NCCL probes");
    if (auto opened = programs->open(); !opened)
        return opened;
    bpf_program__set_autoload((*programs)->progs.proxy_start, loop);
    bpf_program__set_autoload((*programs)->progs.proxy_start_bounded, !loop);
    bpf_program__set_autoload((*programs)->progs.plan_task, loop && wanted_.local_launches);
    bpf_program__set_autoload((*programs)->progs.plan_task_bounded,
                              !loop && wanted_.local_launches);
    (*programs)->rodata->layout = *bpf_layout;
    bpf_program__set_autoload((*programs)->progs.enqueue_returns, wanted_.api_returns);
    bpf_program__set_autoload((*programs)->progs.proxy_op_begins, wanted_.network_times);
    bpf_program__set_autoload((*programs)->progs.proxy_op_ends, wanted_.network_times);
    bpf_program__set_autoload((*programs)->progs.warns,
                              wanted_.warnings && nccl::find_warning(library.layout) != nullptr);
    bpf_program__set_autoload((*programs)->progs.socket_closes, has_sockets(library));
    choose_programs(*programs, library);
    (*programs)->rodata->filter_by_tgid = !wanted_.pids.empty();
    (*programs)->rodata->watch_returns = wanted_.api_returns;
    const ReadFault fault = wanted_read_fault();
    (*programs)->rodata->fail_read = fault.read;
    (*programs)->rodata->fail_times = fault.times;
    if (auto loaded = programs->load(maps_); !loaded)
        return loaded;
    library.programs = std::move(programs);
    return {};
}

void NcclLibraries::list_probes(NcclLibrary &library) const {
    for (const Site &site : sites_of(library)) {
        if (is_calls_only(library) && nccl::find_probe(library.layout, site.function) == nullptr)
            continue;
        if (site.wanted != nullptr && !(wanted_.*site.wanted))
            continue;
        if (site.wanted == &NcclProbes::local_launches && nccl::sees_all_launches(library.layout))
            continue;
        if (site.at_return && loader::may_refuse_return_probes())
            continue;
        if (site.wanted == &NcclProbes::network_times && !has_times(library.layout, site.function))
            continue;
        if (site.wanted == &NcclProbes::warnings && !warns_by(library.layout, site.function))
            continue;
        if (site.function == "ncclSocketClose" && !has_sockets(library))
            continue;
        const nccl::ProbedFunction *planned = nccl::find_probe(library.layout, site.function);
        source::PlannedProbe probe;
        probe.kind = site.at_return ? CW_PROBE_URETPROBE : CW_PROBE_UPROBE;
        probe.source = "nccl";
        probe.function = site.function;
        probe.module_or_file = library.path;
        probe.emulated = false;
        if (planned != nullptr) {
            // After the first push the return address is no longer where the kernel expects it.
            const std::uint64_t into = site.at_return ? planned->address - planned->entry : 0;
            probe.offset_bytes = planned->file_offset - into;
            probe.instruction = into == 0 ? planned->instruction : std::string{};
            probe.emulated = into == 0 && planned->emulated;
        }
        probe.expected_cost_ns = site.at_return ? RETURN_COST_NS : EMULATED_COST_NS;
        library.probes.push_back(std::move(probe));
    }
}

Result<void> NcclLibraries::place_one(NcclLibrary &library, source::PlannedProbe &probe,
                                      bpf_program *program, NcclProbeGroup group) {
    if (nccl::find_probe(library.layout, probe.function) == nullptr)
        return error(ErrorKind::Unsupported, fmt::format("{} is not in it", probe.function));
    const loader::LibbpfLog log;
    errno = 0;
    bpf_link *link =
        bpf_program__attach_uprobe(program, probe.kind == CW_PROBE_URETPROBE, -1,
                                   library.file.own_path().c_str(), probe.offset_bytes);
    if (link == nullptr)
        return loader::bpf_error(fmt::format("uprobe on {}", probe.function), errno, log.text());
    const auto index = static_cast<std::size_t>(&probe - library.probes.data());
    library.links.push_back({link, group, index, bpf_program__fd(program)});
    probe.placed = true;
    return {};
}

Result<void> NcclLibraries::place_all(NcclLibrary &library) const {
    const auto &programs = (*library.programs)->progs;
    library.missing.clear();
    if (loader::may_refuse_return_probes())
        library.missing.emplace_back("no probes at the ends of functions, since a seccomp filter "
                                     "could kill the process: communicators are discovered at "
                                     "their first call, and --api-returns has no effect. Fix: "
                                     "Linux 6.14, 6.13.3 or 6.12.14");
    if (!is_calls_only(library) && wanted_.network_times && !nccl::measures_times(library.layout))
        library.missing.emplace_back(
            "it has no functions that run when an operation starts and completes on a connection "
            "(NCCL 2.23 and later has): completions are sampled, and --network-times adds nothing");
    if (wanted_.warnings && nccl::find_warning(library.layout) == nullptr)
        library.missing.emplace_back("its warnings do not go through one function: --warnings adds "
                                     "nothing, and the last warning is read once per interval");
    if (!library.sockets_refused.empty())
        library.missing.push_back(fmt::format("{}: {}", library.sockets_refused, WITHOUT_SOCKETS));
    for (source::PlannedProbe &probe : library.probes) {
        const Site *site = site_of(library, probe);
        if (taken_off_.contains(group_of(*site)))
            continue;
        auto placed = place_one(library, probe, site->program(programs), group_of(*site));
        if (placed)
            continue;
        if (site->wanted == nullptr && site->without.empty())
            return placed;
        library.missing.push_back(std::move(placed).failure().message);
        if (!site->without.empty())
            library.missing.back() += fmt::format(": {}", site->without);
    }
    return {};
}

} // namespace collwire::sources
