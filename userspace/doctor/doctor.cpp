// SPDX-License-Identifier: Apache-2.0
#include "userspace/doctor/doctor.h"

#include <algorithm>

#include <sys/utsname.h>

#include "base/exit_status.h"
#include "userspace/doctor/checks.h"
#include "userspace/netlink/rdma_netlink.h"

namespace collwire::doctor {
namespace {

struct Need {
    std::string_view check;
    bool required; // without it the source cannot work at all; otherwise it works with a limit
};

SourceOutlook outlook(const DoctorReport &report, std::string name, std::string what,
                      std::initializer_list<Need> needs) {
    SourceOutlook source{std::move(name), std::move(what), CheckState::Ok, {}};
    for (const Need &need : needs) {
        const Check *check = find_check(report, need.check);
        if (check == nullptr || check->state == CheckState::Ok)
            continue;
        source.because.emplace_back(need.check);
        const CheckState state = need.required && check->state == CheckState::Missing
                                     ? CheckState::Missing
                                     : CheckState::Limited;
        source.state = std::max(source.state, state);
    }
    return source;
}

// fentry or kprobes: one of them is enough.
void need_kernel_probes(const DoctorReport &report, SourceOutlook &source) {
    const Check *kprobes = find_check(report, "kprobes");
    const Check *fentry = find_check(report, "fentry");
    const bool any = kprobes != nullptr && fentry != nullptr &&
                     (kprobes->state == CheckState::Ok || fentry->state == CheckState::Ok);
    if (any)
        return;
    source.state = CheckState::Missing;
    source.because.insert(source.because.end(), {"kprobes", "fentry"});
}

// The state of the source if one of these modules is foreign and has no BTF.
void need_modules(const DoctorReport &report, SourceOutlook &source,
                  std::initializer_list<std::string_view> modules, CheckState otherwise) {
    const bool unknown = std::ranges::any_of(modules, [&](std::string_view module) {
        return std::ranges::find(report.unknown_modules, module) != report.unknown_modules.end();
    });
    if (!unknown)
        return;
    source.state = std::max(source.state, otherwise);
    source.because.emplace_back("kernel modules");
}

// A source with uprobes in the libraries of programs that use RDMA.
SourceOutlook probed_in_programs(const DoctorReport &report, const char *name, const char *what) {
    SourceOutlook source = outlook(report, name, what,
                                   {{"capabilities", true},
                                    {"pid namespace", true},
                                    {"lockdown", true},
                                    {"kernel BTF", true},
                                    {"ring buffer", true},
                                    {"uprobes", true},
                                    {"RDMA subsystem", true},
                                    {"RDMA devices", true}});
    const Check *uprobes = find_check(report, "uprobes");
    if (uprobes != nullptr && uprobes->state != CheckState::Ok)
        source.state = CheckState::Missing;
    return source;
}

std::vector<SourceOutlook> outlooks(const DoctorReport &report) {
    SourceOutlook qp = outlook(report, "qp", "queue pairs: states, addresses, owners",
                               {{"capabilities", true},
                                {"pid namespace", true},
                                {"lockdown", true},
                                {"kernel BTF", true},
                                {"ring buffer", true},
                                {"RDMA subsystem", true},
                                {"RDMA devices", true}});
    need_kernel_probes(report, qp);
    SourceOutlook events = qp;
    events.name = "ports";
    events.what = "port and device events, carrier changes";
    need_modules(report, events, {"ib_core"}, CheckState::Limited);
    SourceOutlook mlx5 = qp;
    mlx5.name = "mlx5";
    mlx5.what = "queue pairs created through DEVX, without bytes";
    need_modules(report, mlx5, {"mlx5_core", "mlx5_ib", "ib_uverbs", "ib_core"},
                 CheckState::Missing);
    SourceOutlook wire = qp;
    wire.name = "rxe_wire";
    wire.what = "wire bytes per queue pair of rdma_rxe (soft-RoCE)";
    need_modules(report, qp, {"ib_core"}, CheckState::Missing);
    SourceOutlook verbs = probed_in_programs(
        report, "verbs", "queue pairs from libibverbs, where ib_core cannot be read");
    // Then it takes over.
    if (qp.state == CheckState::Missing && verbs.state != CheckState::Missing)
        qp.state = CheckState::Limited;
    need_modules(report, wire, {"ib_core", "rdma_rxe"}, CheckState::Missing);
    // The layout of rdma_rxe's own structs is in its BTF and nowhere else.
    const Check *module_btf = find_check(report, "module BTF");
    if (module_btf != nullptr && module_btf->state != CheckState::Ok) {
        wire.state = std::max(wire.state, CheckState::Limited);
        wire.because.emplace_back("module BTF");
    }
    const bool any_rxe = std::any_of(
        report.devices.begin(), report.devices.end(),
        [](const inventory::RdmaDevice &device) { return device.module == "rdma_rxe"; });
    if (!any_rxe && wire.state != CheckState::Missing) {
        wire.state = CheckState::Missing;
        wire.because = {"software devices"};
    }
    SourceOutlook posts = probed_in_programs(report, "posts", "posted bytes per queue pair");
    const Check *uprobes = find_check(report, "uprobes");
    SourceOutlook counters =
        outlook(report, "counters", "port counters and states, sampled once a second",
                {{"RDMA subsystem", true}, {"RDMA devices", true}, {"port counters", false}});
    SourceOutlook inventory = outlook(report, "inventory", "devices, ports, addresses, processes",
                                      {{"RDMA devices", false}, {"/proc", false}});
    SourceOutlook nccl = outlook(report, "nccl", "NCCL operations",
                                 {{"capabilities", true},
                                  {"pid namespace", true},
                                  {"lockdown", true},
                                  {"kernel BTF", true},
                                  {"ring buffer", true},
                                  {"uprobes", true},
                                  {"NCCL in use", false}});
    if (uprobes != nullptr && uprobes->state != CheckState::Ok)
        nccl.state = CheckState::Missing;
    SourceOutlook sockets = nccl;
    sockets.name = "sockets";
    sockets.what = "bytes of NCCL's sockets";
    const Check *tracepoints = find_check(report, "tracepoints");
    if (tracepoints != nullptr && tracepoints->state != CheckState::Ok) {
        sockets.state = std::max(sockets.state, CheckState::Limited);
        sockets.because.emplace_back("tracepoints");
    }
    std::vector<SourceOutlook> all{nccl,  sockets, qp,       verbs,    wire,
                                   posts, events,  counters, inventory};
    if (std::ranges::any_of(report.devices, [](const inventory::RdmaDevice &device) {
            return device.module == "mlx5_ib" || device.module == "mlx5_core";
        }))
        all.push_back(std::move(mlx5));
    return all;
}

// Status 3 before 4: missing permissions come first, since other results are certain only with
// them.
int exit_status(const DoctorReport &report) {
    bool unsupported = false;
    for (const SourceOutlook &source : report.sources) {
        // A machine without rdma_rxe is complete: hardware counts its wire bytes.
        // NCCL over sockets alone is no answer of this status: it is about RDMA.
        if (source.state != CheckState::Missing || source.name == "rxe_wire" ||
            source.name == "nccl" || source.name == "sockets")
            continue;
        for (const std::string &name : source.because) {
            const Check *check = find_check(report, name);
            if (check != nullptr && check->permission)
                return EXIT_NOT_PERMITTED;
        }
        unsupported = true;
    }
    return unsupported ? EXIT_UNSUPPORTED : EXIT_DONE;
}

} // namespace

std::string_view state_name(CheckState state) {
    switch (state) {
    case CheckState::Ok:
        return "ok";
    case CheckState::Limited:
        return "limited";
    case CheckState::Missing:
        break;
    }
    return "missing";
}

const Check *find_check(const DoctorReport &report, std::string_view name) {
    const auto found = std::find_if(report.checks.begin(), report.checks.end(),
                                    [&](const Check &check) { return check.name == name; });
    return found == report.checks.end() ? nullptr : &*found;
}

DoctorReport run_doctor(DoctorOptions options) {
    if (!options.optional_counters) {
        options.optional_counters =
            [](std::uint32_t dev_index,
               std::uint32_t port) -> Result<std::vector<netlink::OptionalCounter>> {
            auto netlink = netlink::RdmaNetlink::open();
            if (!netlink)
                return std::move(netlink).failure();
            return netlink->optional_counters(dev_index, port);
        };
    }
    DoctorReport report;
    utsname name{};
    if (uname(&name) == 0) {
        report.host = name.nodename;
        report.kernel = name.release;
    }
    const auto append = [&](std::vector<Check> checks) {
        std::move(checks.begin(), checks.end(), std::back_inserter(report.checks));
    };
    append(check_privileges(options));
    append(check_kernel(options));
    append(check_rdma(options, report));
    append(check_user_space(options.root));
    append(check_nccl(options));
    append(check_gpu(options));
    append(check_nvlink(options));
    report.sources = outlooks(report);
    report.exit_status = exit_status(report);
    return report;
}

} // namespace collwire::doctor
