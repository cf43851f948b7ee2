// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/hooks.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <bpf/bpf.h>

#include "collwire/node_records.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/take_off.h"

namespace collwire::loader {
namespace {

// Measured with empty programs; each source's document gives its own cost.
constexpr std::uint32_t fentry_cost_ns = 30;
constexpr std::uint32_t kprobe_cost_ns = 120;

// The part of struct bpf_link_info that counts the hits that a kprobe missed (Linux 6.7, commit
// 3acf8ace6823). Declared here because the uapi header of the build machine may be older.
struct KprobeLinkInfo {
    std::uint32_t type;
    std::uint32_t id;
    std::uint32_t program_id;
    std::uint32_t pad;
    std::uint32_t event_type;
    std::uint32_t pad2;
    std::uint64_t function_name;
    std::uint32_t name_length;
    std::uint32_t offset;
    std::uint64_t address;
    std::uint64_t missed;
};
constexpr std::uint32_t link_type_perf_event = 7;
constexpr std::uint32_t perf_event_kprobe = 3;
constexpr std::uint32_t perf_event_kretprobe = 4;

std::uint64_t missed_by_link(int link_fd) {
    KprobeLinkInfo info = {};
    std::uint32_t length = sizeof(info);
    if (bpf_obj_get_info_by_fd(link_fd, &info, &length) != 0 || length < sizeof(info) ||
        info.type != link_type_perf_event)
        return 0;
    const bool kprobe =
        info.event_type == perf_event_kprobe || info.event_type == perf_event_kretprobe;
    return kprobe ? info.missed : 0;
}

std::uint64_t missed_by_program(int program_fd) {
    bpf_prog_info info = {};
    std::uint32_t length = sizeof(info);
    if (bpf_obj_get_info_by_fd(program_fd, &info, &length) != 0)
        return 0;
    return info.recursion_misses; // Linux 5.12; stays 0 where the kernel does not know it
}

bpf_program *find_program(bpf_object *object, const std::string &name) {
    return name.empty() ? nullptr : bpf_object__find_program_by_name(object, name.c_str());
}

void set_autoload(bpf_object *object, const std::string &name, bool load) {
    if (auto *program = find_program(object, name); program != nullptr)
        bpf_program__set_autoload(program, load);
}

} // namespace

HookMode default_hook_mode() {
    const char *forced = std::getenv("COLLWIRE_NO_FENTRY");
    return forced != nullptr && std::strcmp(forced, "1") == 0 ? HookMode::KprobeOnly
                                                              : HookMode::FentryFirst;
}

HookSet::HookSet(std::string source, std::vector<Hook> hooks) : source_(std::move(source)) {
    for (auto &hook : hooks)
        hooks_.emplace_back().hook = std::move(hook);
}

HookSet::~HookSet() {
    detach();
}

void HookSet::select(bpf_object *object, const KernelFunctions &functions, KernelBtf &btf,
                     HookMode mode) {
    detach();
    placed_.clear();
    for (auto &selected : hooks_) {
        const auto &hook = selected.hook;
        const auto *function = functions.find(hook.function);
        selected.absent.clear();
        selected.fentry = false;
        if (!selected.given_up.empty()) {
            selected.absent = selected.given_up;
        } else if (!hook.wanted) {
            selected.absent = "turned off by an option";
        } else if (!hook.raw_tracepoint.empty()) {
            selected.module = "vmlinux";
        } else if (function == nullptr) {
            selected.absent = "the kernel has no function " + hook.function;
        } else {
            selected.module = function->module;
            const auto parameters = btf.parameters(function->module, hook.function);
            if (hook.parameters != 0 && parameters && *parameters != hook.parameters)
                selected.absent = hook.function + " takes " + std::to_string(*parameters) +
                                  " parameters in this kernel, expected " +
                                  std::to_string(hook.parameters);
            else
                selected.fentry = mode == HookMode::FentryFirst && parameters.has_value() &&
                                  function->symbols == 1 &&
                                  !(hook.fentry.empty() && hook.fexit.empty());
        }
        if (selected.absent.empty() && !selected.fentry && hook.kprobe.empty() &&
            hook.kretprobe.empty() && hook.raw_tracepoint.empty())
            selected.absent = hook.function + " cannot be traced with fentry in this kernel";
        const bool present = selected.absent.empty();
        set_autoload(object, hook.fentry, present && selected.fentry);
        set_autoload(object, hook.fexit, present && selected.fentry);
        set_autoload(object, hook.fentry_again, present && selected.fentry);
        set_autoload(object, hook.fexit_again, present && selected.fentry);
        set_autoload(object, hook.kprobe, present && !selected.fentry);
        set_autoload(object, hook.kretprobe, present && !selected.fentry);
        set_autoload(object, hook.raw_tracepoint, present);
    }
}

bool HookSet::present(std::string_view function) const {
    return std::ranges::any_of(hooks_, [&](const Selected &selected) {
        return selected.hook.function == function && selected.absent.empty();
    });
}

std::string HookSet::why_absent(std::string_view function) const {
    for (const auto &selected : hooks_)
        if (selected.hook.function == function)
            return selected.absent;
    return {};
}

bool HookSet::any_fentry() const {
    return std::ranges::any_of(hooks_, [](const Selected &s) { return s.fentry; });
}

Result<void> HookSet::attach_one(bpf_object *object, Selected &selected) {
    const auto &hook = selected.hook;
    const LibbpfLog log;
    int failed = 0;
    const auto place = [&](const std::string &name, cw_probe_kind kind, auto &&attach_program) {
        auto *program = find_program(object, name);
        if (failed != 0 || program == nullptr)
            return;
        bpf_link *link = attach_program(program);
        if (link == nullptr) {
            failed = errno != 0 ? errno : EINVAL;
            return;
        }
        placed_.push_back({name, link, bpf_program__fd(program),
                           selected.fentry && !hook.fentry_again.empty(), 0, kind});
    };
    const auto trace = [](bpf_program *p) { return bpf_program__attach_trace(p); };
    const auto kprobe = [&](bool exit) {
        return [&hook, exit](bpf_program *p) {
            return bpf_program__attach_kprobe(p, exit, hook.function.c_str());
        };
    };
    if (selected.fentry) {
        // Exit first: an entry without its exit would leave state.
        for (const auto *name : {&hook.fexit, &hook.fexit_again, &hook.fentry, &hook.fentry_again})
            place(*name, CW_PROBE_FENTRY, trace);
    } else {
        place(hook.kretprobe, CW_PROBE_KRETPROBE, kprobe(true));
        place(hook.kprobe, CW_PROBE_KPROBE, kprobe(false));
        place(hook.raw_tracepoint, CW_PROBE_TRACEPOINT, [&hook](bpf_program *p) {
            return bpf_program__attach_raw_tracepoint(p, hook.function.c_str());
        });
    }
    if (failed != 0)
        return bpf_error("cannot probe " + hook.function + " (" + selected.module + ")", failed,
                         log.text());
    selected.placed = true;
    return {};
}

Result<void> HookSet::attach(bpf_object *object) {
    for (auto &selected : hooks_) {
        if (!selected.absent.empty())
            continue;
        if (auto attached = attach_one(object, selected); !attached) {
            detach();
            // Their programs are freed with the object: do not ask them for missed calls.
            placed_.clear();
            for (auto &other : hooks_)
                other.placed = false;
            failed_ = &selected;
            return attached;
        }
    }
    return {};
}

bool HookSet::give_up(std::string why) {
    if (failed_ == nullptr || failed_->hook.without.empty())
        return false;
    failed_->given_up = std::move(why);
    failed_ = nullptr;
    return true;
}

std::string HookSet::left_out() const {
    std::string all;
    for (const auto &[hook, module, absent, given_up, fentry, placed] : hooks_)
        if (!hook.without.empty() && hook.wanted && !absent.empty())
            all += (all.empty() ? "" : "; ") + hook.without + ": " + absent;
    return all;
}

void HookSet::detach() {
    for (auto &placed : placed_) {
        if (placed.link == nullptr)
            continue;
        placed.missed_by_link = missed_by_link(bpf_link__fd(placed.link));
        bpf_link__destroy(placed.link);
        placed.link = nullptr;
    }
}

void HookSet::start_taking_off() {
    std::vector<bpf_link *> links;
    for (auto &placed : placed_) {
        if (placed.link == nullptr)
            continue;
        placed.missed_by_link = missed_by_link(bpf_link__fd(placed.link));
        links.push_back(std::exchange(placed.link, nullptr));
    }
    loader::start_taking_off(links);
    taken_off_ = true;
}

std::vector<source::ProbeProgram> HookSet::programs() const {
    std::vector<source::ProbeProgram> all;
    for (const auto &placed : placed_) {
        const bool is_kprobe = placed.kind == CW_PROBE_KPROBE || placed.kind == CW_PROBE_KRETPROBE;
        if (placed.link != nullptr)
            all.push_back({placed.program_fd, placed.kind, true,
                           is_kprobe ? kprobe_cost_ns : fentry_cost_ns});
    }
    return all;
}

std::vector<source::PlannedProbe> HookSet::probe_list() const {
    std::vector<source::PlannedProbe> probes;
    for (const auto &selected : hooks_) {
        const auto &hook = selected.hook;
        if (!selected.absent.empty())
            continue;
        const auto add = [&](cw_probe_kind kind, const std::string &program, std::uint32_t cost) {
            if (program.empty())
                return;
            source::PlannedProbe probe;
            probe.kind = kind;
            probe.source = source_;
            probe.function = hook.function;
            probe.module_or_file = selected.module;
            probe.expected_cost_ns = cost;
            probe.placed = selected.placed && !taken_off_;
            probe.taken_off = selected.placed && taken_off_;
            probes.push_back(std::move(probe));
        };
        if (selected.fentry) {
            add(CW_PROBE_FENTRY, hook.fentry, fentry_cost_ns);
            add(CW_PROBE_FENTRY, hook.fentry_again, fentry_cost_ns);
            add(CW_PROBE_FEXIT, hook.fexit, fentry_cost_ns);
            add(CW_PROBE_FEXIT, hook.fexit_again, fentry_cost_ns);
        } else {
            add(CW_PROBE_KPROBE, hook.kprobe, kprobe_cost_ns);
            add(CW_PROBE_KRETPROBE, hook.kretprobe, kprobe_cost_ns);
            add(CW_PROBE_TRACEPOINT, hook.raw_tracepoint, fentry_cost_ns);
        }
    }
    return probes;
}

std::uint64_t HookSet::missed_by(const Placed &placed) {
    const auto by_link =
        placed.link == nullptr ? placed.missed_by_link : missed_by_link(bpf_link__fd(placed.link));
    return by_link + missed_by_program(placed.program_fd);
}

std::uint64_t HookSet::missed() const {
    std::uint64_t total = 0;
    for (const auto &placed : placed_)
        if (!placed.paired)
            total += missed_by(placed);
    return total;
}

std::uint64_t HookSet::missed_by(std::string_view program) const {
    std::uint64_t total = 0;
    for (const auto &placed : placed_)
        if (placed.program == program)
            total += missed_by(placed);
    return total;
}

} // namespace collwire::loader
