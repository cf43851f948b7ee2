// SPDX-License-Identifier: Apache-2.0
// Findings: configuration and usage problems worth a look, by severity.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "correlate/capture/kinds.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/far_nics.h"
#include "correlate/nccl/network_plugins.h"
#include "correlate/nccl/never_started.h"
#include "correlate/nccl/param_text.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

using model::add_saturating;
using model::Model;
using model::Qp;

namespace {

constexpr std::uint32_t PORT_ACTIVE = 4; // enum ib_port_state
constexpr std::size_t NAMES_SHOWN = 4;
// From this version on the receiver of a connection takes the sender's traffic class.
constexpr std::uint32_t FIRST_WITH_SENDERS_CLASS = 22707;
constexpr std::int64_t NOT_SET = -1; // of an NCCL parameter

// "a, b and 7 more"
std::string list_of(const std::set<std::string> &names) {
    std::string list;
    std::size_t shown = 0;
    for (const std::string &name : names) {
        if (shown == NAMES_SHOWN)
            return list + fmt::format(" and {} more", names.size() - shown);
        list += (shown++ == 0 ? "" : ", ") + name;
    }
    return list;
}

class FindingCollector {
public:
    explicit FindingCollector(Model &model) : model_(model), nccl_(model.nccl) {}

    void run() {
        if (nccl_.links.empty() && nccl_.communicators.empty())
            return;
        index_devices();
        calls_that_differ();
        refused_calls();
        calls_that_were_not_started();
        tcp_with_rdma();
        unused_nics();
        far_nics();
        cross_rail();
        different_ends();
        different_parameters();
        without_gpu_direct();
        different_bytes();
        different_posts();
    }

private:
    // Equal problems, summed up.
    struct Sum {
        std::uint64_t count = 0;
        std::uint64_t payload_bytes = 0;
        std::set<Index> communicators;
        std::set<std::string> hosts;
        std::set<std::string> names;
    };

    // Adds nothing if the count is 0.
    void add(std::string kind, std::string what, const Sum &sum, std::string_view counted) {
        if (sum.count == 0)
            return;
        Finding finding;
        finding.kind = std::move(kind);
        finding.what = std::move(what);
        finding.communicators.assign(sum.communicators.begin(), sum.communicators.end());
        finding.hosts.assign(sum.hosts.begin(), sum.hosts.end());
        finding.evidence[std::string(counted)] = sum.count;
        if (sum.payload_bytes != 0)
            finding.evidence["payload_bytes"] = sum.payload_bytes;
        nccl_.findings.push_back(std::move(finding));
    }

    void note(Sum &sum, const Link &link) const {
        ++sum.count;
        sum.payload_bytes = add_saturating(sum.payload_bytes, link.source == ByteSource::None
                                                                  ? link.attributed_bytes
                                                                  : link.measured_bytes);
        sum.hosts.insert(host_of(link).name);
        if (const Index comm = only_communicator(nccl_, link); comm != NONE)
            sum.communicators.insert(comm);
    }

    // All flows for which `is_one(link, names)` is true; it may add to the names.
    template <typename IsOne> [[nodiscard]] Sum links_that(IsOne is_one) const {
        Sum sum;
        for (const Link &link : nccl_.links)
            if (is_one(link, sum.names))
                note(sum, link);
        return sum;
    }

    void note(Sum &sum, const Instance &instance) const {
        sum.hosts.insert(model_.hosts[instance.host].name);
        if (instance.comm != NONE)
            sum.communicators.insert(instance.comm);
    }

    [[nodiscard]] const model::Host &host_of(const Link &link) const {
        return model_.hosts[model_.sessions[link.session].host];
    }

    void index_devices() {
        for (const model::Port &port : model_.ports)
            if (port.state == PORT_ACTIVE)
                active_[model_.devices[port.device].host].insert(port.device);
        for (const Link &link : nccl_.links)
            for (const Index qp : link.qps)
                if (const Index device = model_.qps[qp].device; device != NONE)
                    used_[model_.qps[qp].host].insert(device);
    }

    void calls_that_differ() {
        Sum sum;
        std::uint64_t first = 0;
        for (const Operation &operation : nccl_.collectives) {
            if (!operation.has(OPERATION_DIFFERS))
                continue;
            if (sum.count++ == 0)
                first = operation.seq;
            sum.communicators.insert(operation.comm);
        }
        if (sum.count != 0)
            add("calls_differ",
                fmt::format("ranks made different calls for {} collective(s), from seq {} of "
                            "communicator {} on. Fix: pass the same arguments on all ranks",
                            sum.count, first, *sum.communicators.begin()),
                sum, "collectives");
    }

    void refused_calls() {
        Sum sum;
        for (const Instance &instance : nccl_.instances) {
            if (instance.failed_calls == 0)
                continue;
            sum.count += instance.failed_calls;
            note(sum, instance);
            const auto &calls = nccl_.gathered.streams[instance.stream].calls;
            for (std::uint32_t i = 0; i < instance.n_calls; ++i)
                if (const Call &call = calls[instance.first_call + i]; is_failed(call))
                    sum.names.insert(fmt::format("{} ({})", capture::nccl_func_name(call.func),
                                                 (call.flags & CW_NCCL_CALL_RETURNED) == 0
                                                     ? "bad arguments"
                                                     : result_text(call.result)));
        }
        add("calls_refused",
            fmt::format("NCCL rejected {} call(s); excluded from all totals: {}", sum.count,
                        list_of(sum.names)),
            sum, "calls");
    }

    // `seq` is wrong then from an unknown one of them on.
    void calls_that_were_not_started() {
        Sum sum;
        for (const Instance &instance : nccl_.instances)
            if (const std::uint64_t n = never_started(nccl_, instance); n != 0) {
                sum.count += n;
                note(sum, instance);
            }
        add("calls_not_started",
            fmt::format("NCCL started {} collective(s) fewer than were called: they were rejected, "
                        "or captured with no network part. seq counts them too. Which were "
                        "rejected: `collwire record --api-returns`",
                        sum.count),
            sum, "collectives");
    }

    void tcp_with_rdma() {
        const Sum sum = links_that([this](const Link &link, auto &) {
            return link.transport == CW_NCCL_TRANSPORT_SOCKET && link.is_send() &&
                   active_.contains(model_.sessions[link.session].host);
        });
        add("tcp_with_rdma",
            fmt::format("{} connection(s) use TCP sockets on {}, although RDMA devices there have "
                        "an active port. Check NCCL_NET, NCCL_IB_DISABLE and NCCL_IB_HCA",
                        sum.count, list_of(sum.hosts)),
            sum, "connections");
    }

    void unused_nics() {
        Sum sum;
        for (const auto &[host, used] : used_) {
            const auto active = active_.find(host);
            if (active == active_.end())
                continue;
            for (const Index device : active->second)
                if (!used.contains(device)) {
                    ++sum.count;
                    sum.hosts.insert(model_.hosts[host].name);
                    sum.names.insert(model_.hosts[host].name + " " + model_.devices[device].name);
                }
        }
        add("unused_nic",
            fmt::format("{} device(s) with an active port carry no NCCL connection, although other "
                        "devices of their host do: {}. Check NCCL_IB_HCA",
                        sum.count, list_of(sum.names)),
            sum, "devices");
    }

    void far_nics() {
        const FarNics far(model_, active_);
        const Sum by_gpu = links_that(
            [&far](const Link &link, auto &names) { return far.is_far_by_gpu(link, names); });
        add("far_nic",
            fmt::format("{} connection(s) use a device that is further from their GPU on PCI than "
                        "another one with an active port: {}. Check NCCL_IB_HCA",
                        by_gpu.count, list_of(by_gpu.names)),
            by_gpu, "connections");
        const Sum by_cpus = links_that(
            [&far](const Link &link, auto &names) { return far.is_far_by_cpus(link, names); });
        add("far_nic",
            fmt::format("{} connection(s) use a device on another NUMA node than their process, "
                        "although that node has one: {}. By the CPUs that the process may run on: "
                        "the place of its GPU is not known",
                        by_cpus.count, list_of(by_cpus.names)),
            by_cpus, "connections");
    }

    void cross_rail() {
        const Sum sum = links_that([this](const Link &link, auto &) {
            return link.is_send() && std::ranges::any_of(link.qps, [this](Index index) {
                       return crosses_rails(model_.qps[index]);
                   });
        });
        add("cross_rail",
            fmt::format("{} connection(s) go from one rail to another. Check NCCL_CROSS_NIC",
                        sum.count),
            sum, "connections");
    }

    [[nodiscard]] bool crosses_rails(const Qp &qp) const {
        if (qp.port == NONE || qp.remote_port == NONE)
            return false;
        const auto &own = model_.ports[qp.port].rail;
        const auto &other = model_.ports[qp.remote_port].rail;
        return own && other && *own != *other;
    }

    // For pairs of queue pairs with `is_meant(index, peer)`.
    template <typename Value, typename IsMeant>
    void different(const std::string &kind, const std::string &what, Value value, IsMeant is_meant,
                   std::string_view then = "") {
        Sum sum;
        for (Index index = 0; index < model_.qps.size(); ++index) {
            const Qp &qp = model_.qps[index];
            if (qp.peer == NONE || qp.peer <= index)
                continue;
            const auto own = value(qp);
            const auto other = value(model_.qps[qp.peer]);
            if (!own || !other || *own == *other || !is_meant(index, qp.peer))
                continue;
            ++sum.count;
            sum.hosts.insert(model_.hosts[qp.host].name);
            sum.hosts.insert(model_.hosts[model_.qps[qp.peer].host].name);
            sum.names.insert(fmt::format("{} {} against {} {}", model_.hosts[qp.host].name, *own,
                                         model_.hosts[model_.qps[qp.peer].host].name, *other));
        }
        add(kind,
            fmt::format("{} differs between the ends of {} queue pair(s): {}{}", what, sum.count,
                        list_of(sum.names), then),
            sum, "queue_pairs");
    }

    void different_ends() {
        const auto is_ours = [this](Index qp, Index) { return nccl_.qps[qp].link != NONE; };
        // NCCL's queue pairs use the smaller MTU of both ports, so theirs are equal.
        const auto mtu_of_port = [this](const Qp &qp) -> std::optional<std::uint32_t> {
            if (qp.port == NONE || model_.ports[qp.port].active_mtu_bytes == 0)
                return std::nullopt;
            return model_.ports[qp.port].active_mtu_bytes;
        };
        different("mtu_differs", "the active MTU of the ports", mtu_of_port, is_ours,
                  ". NCCL uses the smaller one on both. Fix: set both ports to one MTU");
        // For any application: a frame longer than the receiver's MTU is an error there.
        different(
            "mtu_differs", "the path MTU",
            [](const Qp &qp) {
                return qp.path_mtu_bytes() == 0 ? std::optional<std::uint32_t>()
                                                : qp.path_mtu_bytes();
            },
            [](Index, Index) { return true; });
        different(
            "gid_type_differs", "the GID type",
            [](const Qp &qp) {
                return qp.has(CW_QP_SGID) && qp.address.gid_type != CW_GID_UNKNOWN
                           ? std::optional(capture::gid_type_name(qp.address.gid_type))
                           : std::nullopt;
            },
            is_ours);
        different(
            "traffic_class_differs", "the traffic class",
            [](const Qp &qp) {
                return qp.has(CW_QP_ADDRESS) && qp.has(CW_QP_GRH) && !qp.has(CW_QP_FROM_NCCL)
                           ? std::optional<unsigned>(qp.address.traffic_class)
                           : std::nullopt;
            },
            [&](Index a, Index b) {
                return is_ours(a, b) && !has_own_class(a) && !has_own_class(b);
            });
    }

    // The receiver's end of a connection may have another traffic class by design: NCCL_IB_FIFO_TC.
    [[nodiscard]] bool has_own_class(Index qp) const {
        const QpIdentity &of = nccl_.qps[qp];
        if (of.role != Role::ClearToSend || of.link == NONE)
            return false;
        const Link &link = nccl_.links[of.link];
        if (link.is_assumed)
            return true; // not known to be wrong
        if (link.transport != CW_NCCL_TRANSPORT_IB)
            return false;
        if (const auto value = class_param_of(link.session, link.tgid))
            return *value != NOT_SET && (*value & 0xff) == model_.qps[qp].address.traffic_class;
        // Not known whether it is set. From this version on the receiver takes the sender's class
        // otherwise.
        return std::ranges::any_of(link.instances, [this](Index index) {
            return nccl_.instances[index].version >= FIRST_WITH_SENDERS_CLASS;
        });
    }

    // NCCL_IB_FIFO_TC, as last read.
    [[nodiscard]] std::optional<std::int64_t> class_param_of(Index session,
                                                             std::uint32_t tgid) const {
        const auto [known, is_new] = class_params_.try_emplace({session, tgid});
        const auto found = nccl_.params_of_process.find({session, tgid});
        if (!is_new || found == nccl_.params_of_process.end())
            return known->second;
        std::uint64_t newest_ns = 0;
        for (const Index index : found->second) {
            const Param &param = nccl_.gathered.params[index];
            if (param.name == "IbFifoTc" && param.time_ns >= newest_ns) {
                newest_ns = param.time_ns;
                known->second = param.value;
            }
        }
        return known->second;
    }

    void different_parameters() {
        std::map<std::string, Sum> by_name;
        for (Index index = 0; index < nccl_.communicators.size(); ++index)
            for (const auto &[name, values] : params_of(nccl_, nccl_.communicators[index])) {
                if (values.size() < 2)
                    continue;
                Sum &sum = by_name[name];
                ++sum.count;
                sum.communicators.insert(index);
                for (const auto &[value, ranks] : values)
                    sum.names.insert(
                        fmt::format("{} on {} rank(s)", param_text(name, value), ranks.size()));
            }
        for (const auto &[name, sum] : by_name)
            add("parameter_differs",
                fmt::format("NCCL parameter {} differs between ranks of {} communicator(s): {}. "
                            "Fix: set it alike on all ranks",
                            name, sum.count, list_of(sum.names)),
                sum, "communicators");
    }

    void without_gpu_direct() {
        const Sum sum = links_that([this](const Link &link, auto &names) {
            if (link.transport != CW_NCCL_TRANSPORT_IB || link.is_mirrored ||
                (link.flags & (CW_NCCL_CONNECTION_GDR | CW_NCCL_CONNECTION_FAULT)) != 0)
                return false;
            for (const Index qp : link.qps)
                if (const Index device = model_.qps[qp].device; device != NONE)
                    names.insert(model_.devices[device].name +
                                 (model_.devices[device].is_software() ? " (software)" : ""));
            return true;
        });
        add("gpu_direct_off",
            fmt::format("{} connection(s) do not use GPUDirect RDMA, so their data goes through "
                        "host memory: {}. On a hardware NIC, check nvidia_peermem or DMA-BUF",
                        sum.count, list_of(sum.names)),
            sum, "connections");
    }

    // Bytes launched before the recording but sent in it exceed the launched bytes. They may
    // replace as many unsent bytes of the first interval, and appear once, later.
    static std::uint64_t most_under_way(const Link &link) {
        if (link.intervals.empty() || !link.intervals.front().is_first)
            return 0;
        std::uint64_t most = link.intervals.front().derived_bytes;
        for (const Interval &interval : link.intervals)
            most = std::max(most, interval.most_bytes);
        return most;
    }

    void different_bytes() {
        Sum sum;
        std::uint64_t more = 0;
        std::uint64_t less = 0;
        for (const Link &link : nccl_.links) {
            bool differs = false;
            std::uint64_t under_way = most_under_way(link);
            for (const Interval &interval : link.intervals) {
                if (interval.n_ops == 0 || interval.is_first)
                    continue;
                const bool is_compared = interval.kind == IntervalKind::Excess ||
                                         interval.kind == IntervalKind::Shortage ||
                                         interval.kind == IntervalKind::Single;
                if (!is_compared || interval.n_unknown != 0)
                    continue;
                const std::uint64_t excess =
                    model::subtract_or_zero(interval.measured_bytes, interval.derived_bytes);
                if (excess != 0 && excess <= std::exchange(under_way, 0))
                    continue;
                differs = differs || interval.measured_bytes != interval.derived_bytes;
                more = add_saturating(more, excess);
                less = add_saturating(
                    less, model::subtract_or_zero(interval.derived_bytes, interval.measured_bytes));
            }
            if (differs)
                note(sum, link);
        }
        if (sum.count == 0)
            return;
        add("bytes_differ",
            fmt::format("{} connection(s) carried other bytes than their operations need: {} B "
                        "more, {} B less",
                        sum.count, more, less),
            sum, "connections");
        nccl_.findings.back().evidence["more_bytes"] = more;
        nccl_.findings.back().evidence["less_bytes"] = less;
    }

    void different_posts() {
        Sum sum;
        std::uint64_t more = 0;
        std::uint64_t less = 0;
        for (const PostDifference &of : nccl_.verified.differences) {
            const Link &link = nccl_.links[of.link];
            ++sum.count;
            sum.payload_bytes = add_saturating(sum.payload_bytes, of.posted_bytes);
            more = add_saturating(more, model::subtract_or_zero(of.posted_bytes, of.derived_bytes));
            less = add_saturating(less, model::subtract_or_zero(of.derived_bytes, of.posted_bytes));
            sum.hosts.insert(host_of(link).name);
            if (const Index comm = only_communicator(nccl_, link); comm != NONE)
                sum.communicators.insert(comm);
            sum.names.insert(fmt::format(
                "{} rank {} to rank {}{}: {} B posted for {} operation(s), {} B computed",
                host_of(link).name, link.rank, link.peer,
                link.channels.empty() ? "" : fmt::format(" channel {}", link.channels.front()),
                of.posted_bytes, of.operations, of.derived_bytes));
        }
        if (sum.count == 0)
            return;
        add("posts_differ",
            fmt::format("in slices, {} connection(s) posted other bytes than were computed from "
                        "their operations, {} B more, {} B less: {}. Bytes that are computed only "
                        "may be wrong. Fix: `collwire record --posts=on` counts all posts",
                        sum.count, more, less, list_of(sum.names)),
            sum, "connections");
        nccl_.findings.back().evidence["more_bytes"] = more;
        nccl_.findings.back().evidence["less_bytes"] = less;
    }

    Model &model_;
    NcclFacts &nccl_;
    std::map<Index, std::set<Index>> active_; // by host: devices with an active port
    std::map<Index, std::set<Index>> used_;   // by host: devices with an NCCL connection
    // By session and process.
    mutable std::map<std::pair<Index, std::uint32_t>, std::optional<std::int64_t>> class_params_;
};

} // namespace

void find_findings(Model &model) {
    FindingCollector(model).run();
    if (auto finding = plugin_finding(model))
        model.nccl.findings.push_back(std::move(*finding));
}

} // namespace collwire::nccl
