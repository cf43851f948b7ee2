// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "userspace/doctor/checks.h"
#include "userspace/inventory/counters.h"
#include "userspace/inventory/files.h"
#include "userspace/inventory/module_origin.h"

namespace collwire::doctor {
namespace {

// The counters that mlx5 can keep for each queue pair (Linux 6.15).
constexpr std::array<std::string_view, 4> per_qp_counters = {"rdma_tx_bytes", "rdma_rx_bytes",
                                                             "rdma_tx_packets", "rdma_rx_packets"};

std::string port_name(const inventory::RdmaDevice &device, const inventory::RdmaPort &port) {
    return device.name + "/" + std::to_string(port.record.port);
}

void append(std::string &list, const std::string &item, std::string_view separator = ", ") {
    if (!list.empty())
        list += separator;
    list += item;
}

Check check_subsystem(const std::string &root) {
    if (inventory::exists(root + "/sys/class/infiniband"))
        return ok("RDMA subsystem", "loaded");
    return {"RDMA subsystem",
            CheckState::Missing,
            "no /sys/class/infiniband",
            "no queue pairs and no RDMA ports on this machine",
            "sudo modprobe ib_uverbs (a kernel with CONFIG_INFINIBAND)",
            false,
            Code::NoRdmaSubsystem};
}

Check check_devices(const DoctorReport &report) {
    if (report.devices.empty())
        return {"RDMA devices",
                CheckState::Missing,
                "none",
                "no RDMA traffic to record here; NCCL over sockets, report, topology, diagnose and "
                "doctor still work",
                "load the NIC driver (sudo modprobe mlx5_ib), or create a software device: sudo "
                "modprobe rdma_rxe; sudo rdma link add rxe0 type rxe netdev eth0",
                false,
                Code::NoRdmaDevice};
    std::string found;
    std::string without_index;
    for (const inventory::RdmaDevice &device : report.devices) {
        append(found,
               device.name + " (" +
                   (device.record.driver[0] != '\0' ? device.record.driver : "unknown driver") +
                   ")");
        if (!device.indexed)
            append(without_index, device.name);
    }
    if (without_index.empty())
        return ok("RDMA devices", found);
    return {"RDMA devices",
            CheckState::Limited,
            found,
            "no device index from RDMA netlink for " + without_index +
                ": its queue pairs cannot be matched to it",
            "run collwire in the network namespace of the host",
            false,
            Code::RdmaDeviceOfOtherNamespace};
}

Check check_ports(const DoctorReport &report) {
    std::string active;
    std::string inactive;
    for (const inventory::RdmaDevice &device : report.devices) {
        for (const inventory::RdmaPort &port : device.ports) {
            const bool works = port.record.state == 4 && port.record.carrier != 0;
            std::string text = port_name(device, port);
            if (port.record.netdev[0] != '\0')
                text += " on " + std::string(port.record.netdev);
            append(works ? active : inactive, text);
        }
    }
    if (inactive.empty())
        return ok("RDMA ports", "active: " + active);
    return {"RDMA ports",
            CheckState::Limited,
            (active.empty() ? "none active" : "active: " + active) + "; not active: " + inactive,
            "ports that are down carry no traffic",
            "check the cable and the switch port (ibstat, ip link)",
            false,
            Code::RdmaPortDown};
}

Check check_software_devices(const DoctorReport &report) {
    std::string software;
    for (const inventory::RdmaDevice &device : report.devices) {
        if ((device.record.flags & CW_DEVICE_SOFTWARE) != 0)
            append(software, device.name);
    }
    return ok("software devices", software.empty()
                                      ? "none"
                                      : software + ": every packet of a queue pair can be counted");
}

Check check_modules(const std::string &root, DoctorReport &report) {
    std::string described;
    std::string refused;
    for (const std::string &module : inventory::foreign_rdma_modules(root)) {
        const inventory::ModuleOrigin origin = inventory::module_origin(root, module);
        append(origin.described() ? described : refused, module + " (" + origin.reason + ")", "; ");
        if (!origin.described())
            report.unknown_modules.push_back(module);
    }
    if (!refused.empty()) {
        const bool core =
            std::ranges::find(report.unknown_modules, "ib_core") != report.unknown_modules.end();
        return {
            "kernel modules",
            CheckState::Limited,
            "out-of-tree (OFED, DKMS) and without BTF: " + refused,
            core ? "their struct layouts are unknown: queue pairs are read from libibverbs in the "
                   "programs (source verbs), not those of the kernel, of static programs, or of "
                   "DEVX; no packet counts of rdma_rxe; no port events but carrier changes"
                 : "their struct layouts are unknown. rdma_rxe: no packet counts; mlx5: no "
                   "queue pairs created through DEVX. All else works",
            "load the in-tree modules, or build these with BTF (vmlinux in the build tree)",
            false,
            core ? Code::RdmaCoreUnknown : Code::RdmaModuleUnknown};
    }
    if (!described.empty())
        return ok("kernel modules", "out-of-tree, with BTF: " + described);
    return ok("kernel modules", "all in-tree");
}

bool has_counter(const OptionalCounters &port, std::string_view name, bool enabled) {
    return std::any_of(port.counters.begin(), port.counters.end(),
                       [&](const netlink::OptionalCounter &counter) {
                           return counter.name == name && (!enabled || counter.enabled);
                       });
}

// `rdma statistic set` replaces the list: what is enabled already has to be named again.
std::string enable_command(const OptionalCounters &port) {
    std::string list;
    for (const netlink::OptionalCounter &counter : port.counters) {
        const bool wanted = std::find(per_qp_counters.begin(), per_qp_counters.end(),
                                      counter.name) != per_qp_counters.end();
        if (wanted || counter.enabled)
            append(list, counter.name, ",");
    }
    const std::string link = port.device + "/" + std::to_string(port.port);
    return "sudo rdma statistic set link " + link + " optional-counters " + list +
           "; then for each queue pair: sudo rdma statistic qp bind link " + link + " lqpn N";
}

void read_optional_counters(const DoctorOptions &options, DoctorReport &report) {
    if (!options.optional_counters)
        return;
    for (const inventory::RdmaDevice &device : report.devices) {
        for (const inventory::RdmaPort &port : device.ports) {
            if (!device.indexed)
                continue;
            auto counters = options.optional_counters(device.record.dev_index, port.record.port);
            if (counters && !counters->empty())
                report.optional_counters.push_back(
                    {device.name, port.record.port, std::move(counters).value()});
        }
    }
}

Check check_per_qp_counters(const DoctorReport &report) {
    const std::string name = "mlx5 per-QP counters";
    const bool any_mlx5 = std::any_of(
        report.devices.begin(), report.devices.end(), [](const inventory::RdmaDevice &device) {
            return std::string_view(device.record.driver) == "mlx5_core";
        });
    if (!any_mlx5)
        return ok(name, "no mlx5 device");
    std::string supported;
    std::string enabled;
    std::string fix;
    for (const OptionalCounters &port : report.optional_counters) {
        if (!has_counter(port, "rdma_tx_bytes", false))
            continue;
        const std::string link = port.device + "/" + std::to_string(port.port);
        append(supported, link);
        if (has_counter(port, "rdma_tx_bytes", true) && has_counter(port, "rdma_rx_bytes", true))
            append(enabled, link);
        else
            append(fix, enable_command(port), "; ");
    }
    const std::string effect = "no wire bytes per queue pair from the NIC; posted bytes are used "
                               "instead, unless --posts=off";
    if (supported.empty())
        return {name,
                CheckState::Limited,
                "not supported by this kernel or device",
                effect,
                "Linux 6.15 or later, and a physical function with flow tables for counters",
                false,
                Code::QpCountersUnsupported};
    if (fix.empty())
        return ok(name, "enabled on " + enabled);
    return {name,
            CheckState::Limited,
            "supported on " + supported + ", enabled on " +
                (enabled.empty() ? std::string("none") : enabled),
            effect,
            fix,
            false,
            Code::QpCountersOff};
}

Check check_port_counters(const std::string &root, const DoctorReport &report) {
    std::string with;
    std::string without;
    std::uint32_t next_id = 1;
    for (const inventory::RdmaDevice &device : report.devices) {
        for (const inventory::RdmaPort &port : device.ports) {
            std::string sources;
            for (const inventory::CounterGroup &group :
                 inventory::open_port_counters(root, device.name, device.record.dev_index,
                                               port.record.port, port.record.netdev, next_id)) {
                for (const cw_counter_def &counter : group.definitions()) {
                    const std::string_view counter_name(counter.name);
                    if (counter_name == "port_xmit_data" || counter_name == "tx_bytes")
                        append(sources, counter.source == CW_COUNTER_PORT ? "port" : "netdev", "+");
                }
            }
            const std::string text = port_name(device, port);
            append(sources.empty() ? without : with,
                   sources.empty() ? text : inventory::concatenated(text, " (", sources, ")"));
        }
    }
    if (without.empty())
        return ok("port counters", with);
    return {"port counters",
            CheckState::Limited,
            (with.empty() ? "" : with + "; ") + "no byte counter: " + without,
            "the report cannot compare the bytes of these ports with a counter",
            "",
            false,
            Code::NoPortCounter};
}

} // namespace

std::vector<Check> check_rdma(const DoctorOptions &options, DoctorReport &report) {
    std::vector<Check> checks = {check_subsystem(options.root)};
    report.devices = scan_rdma_devices(options.root, options.netlink());
    checks.push_back(check_devices(report));
    checks.push_back(check_modules(options.root, report));
    if (report.devices.empty())
        return checks;
    read_optional_counters(options, report);
    checks.push_back(check_ports(report));
    checks.push_back(check_software_devices(report));
    checks.push_back(check_port_counters(options.root, report));
    checks.push_back(check_per_qp_counters(report));
    return checks;
}

} // namespace collwire::doctor
