// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/overview.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collwire/nccl_connection_records.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/host_clocks.h"
#include "correlate/nccl/late_ranks.h"
#include "correlate/report/comm_label.h"
#include "correlate/report/names.h"
#include "correlate/report/text_local.h"
#include "correlate/report/units.h"

namespace collwire::report {
namespace {

using model::Index;
using model::Model;
using model::NONE;
using topology::Tier;

constexpr double NS_PER_S = 1e9;
constexpr double LEAST_GB_A_SECOND = 0.1; // below: MB/s
constexpr double LEAST_SHARE = 0.0005;
constexpr double BITS = 8;

std::string nccl_text(const Model &model) {
    // Files that a process of a communicator has, by version.
    std::map<std::string, std::set<Index>> hosts;
    for (const nccl::Instance &instance : model.nccl.instances)
        hosts[nccl::library_version_text(instance.version)].insert(instance.host);
    if (hosts.empty())
        return {};
    std::vector<std::string> versions;
    versions.reserve(hosts.size());
    for (const auto &[version, on] : hosts)
        versions.push_back(
            hosts.size() == 1
                ? printable(version.empty() ? "version not known" : version)
                : fmt::format("{} on {} host(s)",
                              printable(version.empty() ? "version not known" : version),
                              on.size()));
    std::map<std::string, std::uint64_t> over; // bytes of operations, by transport
    for (const nccl::Link &link : model.nccl.links)
        if (link.is_send())
            over[std::string(nccl::transport_name(link.transport))] += link.attributed_bytes;
    std::vector<std::string> networks;
    networks.reserve(over.size());
    for (const auto &[name, bytes] : over)
        networks.push_back(over.size() == 1 ? name
                                            : fmt::format("{} ({})", name, human_bytes(bytes)));
    return fmt::format("{}{}", fmt::join(versions, ", "),
                       networks.empty() ? "; no connection over a network was recorded"
                                        : fmt::format(" over {}", fmt::join(networks, ", ")));
}

std::string nics_text(const Model &model) {
    const auto window = window_of(model);
    if (!window || window->end_ns <= window->begin_ns)
        return {};
    const double seconds = static_cast<double>(window->end_ns - window->begin_ns) / NS_PER_S;
    struct Busy {
        double share = 0;
        double bytes_a_second = 0;
        const model::Port *port = nullptr;
    };
    Busy busiest;
    std::size_t counted = 0;
    for (const model::Port &port : model.ports) {
        if (!port.bytes.tx_wire_bytes || !port.bytes.rx_wire_bytes || port.rate_mbps == 0)
            continue;
        ++counted;
        const std::uint64_t most = std::max(*port.bytes.tx_wire_bytes, *port.bytes.rx_wire_bytes);
        const double bytes_a_second = static_cast<double>(most) / seconds;
        const double share = bytes_a_second * BITS / (static_cast<double>(port.rate_mbps) * 1e6);
        if (busiest.port == nullptr || share > busiest.share)
            busiest = {share, bytes_a_second, &port};
    }
    if (busiest.port == nullptr)
        return {};
    const model::Device &device = model.devices[busiest.port->device];
    const bool is_fast = busiest.bytes_a_second >= LEAST_GB_A_SECOND * 1e9;
    return fmt::format("busiest of {}: {} of {}, {:.3g} {} on average in one direction, {} of its "
                       "{:g} Gb/s",
                       counted, printable(device.name), printable(model.hosts[device.host].name),
                       busiest.bytes_a_second / (is_fast ? 1e9 : 1e6), is_fast ? "GB/s" : "MB/s",
                       busiest.share < LEAST_SHARE ? "less than 0.1 %"
                                                   : fmt::format("{:.1f} %", busiest.share * 100),
                       static_cast<double>(busiest.port->rate_mbps) / 1000);
}

std::string tiers_text(const Model &model) {
    std::vector<std::string> parts;
    for (const Tier tier : ALL_TIERS) {
        const model::Sums &sums = model.tiers[model::index_of(tier)];
        if (sums.tx_wire_bytes.value_or(0) != 0)
            parts.push_back(fmt::format("{} {}", topology::tier_name(tier),
                                        share(sums.tx_wire_bytes, model.total.tx_wire_bytes)));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
}

// Payload of operations between ranks of one node.
std::string inside_nodes_text(const Model &model) {
    std::array<std::uint64_t, nccl::LOCAL_TRANSPORTS> bytes{};
    std::uint64_t unknown = 0; // operations
    for (const auto &[key, sums] : model.nccl.local.sums) {
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = model::add_saturating(bytes[i], sums.bytes[i].payload_bytes);
        unknown += sums.operations - sums.modelled;
    }
    std::vector<std::string> parts;
    for (const nccl::LocalTransport transport : nccl::ALL_LOCAL_TRANSPORTS)
        if (const std::uint64_t here = bytes[static_cast<std::size_t>(transport)]; here != 0)
            parts.push_back(
                fmt::format("{} {}", local_transport_title(transport), human_bytes(here)));
    if (unknown != 0)
        parts.push_back(fmt::format("{} operation(s) not or not all known", grouped(unknown)));
    return parts.empty() ? std::string() : fmt::format("modelled: {}", fmt::join(parts, ", "));
}

std::string clocks_text(const Model &model) {
    constexpr std::size_t MOST_NAMED = 4;
    const std::vector<nccl::HostClock> clocks = nccl::host_clocks(model);
    if (clocks.size() < 2)
        return {};
    std::set<std::uint32_t> groups;
    std::vector<std::string> apart[2]; // not calibrated, contradictory
    std::vector<std::uint64_t> typical_ns;
    std::uint64_t worst_ns = 0;
    for (const nccl::HostClock &clock : clocks) {
        if (clock.calibration == clocks::Calibration::None ||
            clock.calibration == clocks::Calibration::Contradiction) {
            apart[clock.calibration == clocks::Calibration::None ? 0 : 1].push_back(
                printable(model.hosts[clock.host].name));
            continue;
        }
        groups.insert(clock.group);
        if (clock.calibration == clocks::Calibration::Bounded) {
            typical_ns.push_back(*clock.typical_error_ns);
            worst_ns = std::max(worst_ns, *clock.worst_error_ns);
        }
    }
    std::vector<std::string> parts;
    if (!typical_ns.empty()) {
        std::sort(typical_ns.begin(), typical_ns.end());
        parts.push_back(
            fmt::format("{} hosts known to {}, {} at worst{}",
                        clocks.size() - apart[0].size() - apart[1].size(),
                        short_duration(typical_ns[typical_ns.size() / 2]), short_duration(worst_ns),
                        groups.size() == 1 ? "" : fmt::format(", in {} groups", groups.size())));
    }
    for (const auto &[hosts, what] :
         {std::pair(&apart[0], "not calibrated"), std::pair(&apart[1], "in contradiction")}) {
        if (hosts->empty())
            continue;
        const std::size_t more = hosts->size() - std::min(hosts->size(), MOST_NAMED);
        hosts->resize(hosts->size() - more);
        parts.push_back(fmt::format("{}: {}{}", what, fmt::join(*hosts, ", "),
                                    more == 0 ? "" : fmt::format(" and {} more", more)));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

// The rank that the others waited for, for the longest time in sum.
std::string late_ranks_text(const Model &model, const std::vector<roles::RoleGuess> &guesses) {
    const nccl::NcclFacts &nccl = model.nccl;
    const std::vector<Index> late = nccl::late_ranks(nccl);
    if (late.empty())
        return {};
    const nccl::Instance &first = nccl.instances[late.front()];
    const nccl::Lateness &of = nccl.lateness[late.front()];
    const auto on_its_host = std::ranges::count_if(
        late, [&](Index index) { return nccl.instances[index].host == first.host; });
    std::string more;
    if (late.size() > 1)
        more = fmt::format("; {} more, {} on this host", late.size() - 1, on_its_host - 1);
    return fmt::format("rank {} of {} ({}, pid {}) calls {} of {} collectives late: {} or more "
                       "after the median rank{}",
                       first.record.rank,
                       long_comm_label(nccl.communicators[first.comm], guesses[first.comm]),
                       printable(model.hosts[first.host].name), first.record.tgid, grouped(of.late),
                       grouped(of.compared), short_duration(of.median_late_ns), more);
}

// Sources that do not record all, by state, with the hosts of each.
std::string not_recorded_text(const Model &model) {
    std::map<int, std::map<std::string, std::set<Index>>> names; // by state
    for (const model::Session &session : model.sessions)
        if (!session.excluded)
            for (const auto &[key, source] : session.sources)
                if (source.state != CW_SOURCE_ON)
                    names[source.state][source.name].insert(session.host);
    std::vector<std::string> parts;
    for (const auto &[state, of_state] : names) {
        std::vector<std::string> texts;
        for (const auto &[name, hosts] : of_state)
            texts.push_back(hosts.size() == 1
                                ? printable(name)
                                : fmt::format("{} (on {} hosts)", printable(name), hosts.size()));
        parts.push_back(fmt::format("{}: {}",
                                    state == CW_SOURCE_OFF        ? "not asked for"
                                    : state == CW_SOURCE_DEGRADED ? "in part"
                                                                  : "not possible",
                                    fmt::join(texts, ", ")));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

} // namespace

std::vector<OverviewLine> overview_of(const Model &model,
                                      const std::vector<roles::RoleGuess> &guesses) {
    std::vector<OverviewLine> lines;
    for (const auto &[name, text] :
         {std::pair("late ranks", late_ranks_text(model, guesses)),
          std::pair("NCCL", nccl_text(model)), std::pair("NICs", nics_text(model)),
          std::pair("tiers", tiers_text(model)), std::pair("in nodes", inside_nodes_text(model)),
          std::pair("clocks", clocks_text(model)),
          std::pair("not recorded", not_recorded_text(model))})
        if (!text.empty())
            lines.push_back({name, text});
    return lines;
}

} // namespace collwire::report
