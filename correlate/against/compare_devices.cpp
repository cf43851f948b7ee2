// SPDX-License-Identifier: Apache-2.0
// Hosts, their NICs and ports, and what went wrong on them.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "correlate/against/parts.h"
#include "correlate/report/units.h"

namespace collwire::against {
namespace {

constexpr std::size_t MOST_NAMED = 4;
constexpr double LEAST_RETRANSMITTED = 1e-4; // of the bytes sent
constexpr double MORE_RETRANSMITTED = 2;

using Facts = std::map<std::string, std::string>;                // values by name
using Things = std::map<std::string, Facts>;                     // by host and device
using Changes = std::map<std::string, std::vector<std::string>>; // names of things by change

void add_fact(Facts &facts, std::string_view name, const std::optional<std::string> &value) {
    if (value)
        facts.emplace(name, report::printable(*value));
}

std::optional<std::string> number(const std::optional<std::uint64_t> &value,
                                  std::string_view unit) {
    return value ? std::optional(fmt::format("{}{}", *value, unit)) : std::nullopt;
}

Things ports_of(const RunRows &run) {
    Things things;
    for (const rows::PortRow &row : run.of<rows::PortRow>()) {
        Facts &facts = things[fmt::format("{} {}/{}", row.host, row.device, row.port)];
        add_fact(facts, "rate", number(row.rate_mbps, " Mbit/s"));
        add_fact(facts, "state", row.state);
        add_fact(facts, "link layer", row.link_layer);
        add_fact(facts, "switch", row.switch_name);
        add_fact(facts, "rail", number(row.rail, ""));
    }
    return things;
}

Things devices_of(const RunRows &run) {
    Things things;
    for (const rows::DeviceRow &row : run.of<rows::DeviceRow>()) {
        Facts &facts = things[fmt::format("{} {}", row.host, row.device)];
        add_fact(facts, "driver", row.driver);
        add_fact(facts, "PCI address", row.pci_address);
    }
    return things;
}

Things kernels_of(const RunRows &run) {
    Things things;
    for (const rows::HostRow &row : run.of<rows::HostRow>())
        add_fact(things[row.host], "kernel", row.kernel_release);
    return things;
}

// What is known in both runs.
void compare_things(std::string_view code, const Things &a, const Things &b, Comparison &result) {
    Changes changes;
    for (const auto &[thing, facts] : a) {
        const auto before = b.find(thing);
        if (before == b.end())
            continue;
        for (const auto &[name, value] : facts)
            if (const auto old = before->second.find(name);
                old != before->second.end() && old->second != value)
                changes[fmt::format("{} {}, before {}", name, value, old->second)].push_back(
                    report::printable(thing));
    }
    for (const auto &[change, things] : changes)
        result.differences.push_back(
            {.topic = Topic::Paths,
             .code = std::string(code),
             .sentence = fmt::format("{}: {}", change, list_text(things, MOST_NAMED))});
}

struct Happened {
    std::uint64_t n = 0;
    std::uint64_t first_ns = UINT64_MAX;
    std::set<std::string> places;

    void add(std::uint64_t at_ns, const std::string &place) {
        ++n;
        first_ns = std::min(first_ns, at_ns);
        places.insert(report::printable(place));
    }
};

using ByKind = std::map<std::string, Happened>;

ByKind events_of(const RunRows &run) {
    ByKind events;
    for (const rows::EventRow &row : run.of<rows::EventRow>())
        events[row.kind].add(row.realtime_ns,
                             row.device ? fmt::format("{} {}", row.host, *row.device) : row.host);
    return events;
}

ByKind errors_of(const RunRows &run) {
    ByKind errors;
    for (const rows::ErrorRow &row : run.of<rows::ErrorRow>())
        errors[row.kind].add(row.realtime_ns, fmt::format("{} pid {}", row.host, row.pid));
    return errors;
}

void compare_happened(std::string_view code, std::string_view what, const ByKind &a,
                      const ByKind &b, Comparison &result) {
    for (const auto &[kind, of] : a) {
        const auto before = b.find(kind);
        const std::uint64_t n_before = before == b.end() ? 0 : before->second.n;
        if (of.n > n_before)
            result.differences.push_back(
                {.topic = Topic::Paths,
                 .code = std::string(code),
                 .sentence = fmt::format(
                     "{} of kind {}: {}, before {}: {}", what, report::printable(kind), of.n,
                     n_before, list_text({of.places.begin(), of.places.end()}, MOST_NAMED)),
                 .since_ns = of.first_ns});
    }
}

// Share of what was sent; absent: not measured.
std::optional<double> retransmitted_share(const RunRows &run) {
    double sent = 0, again = 0;
    bool is_known = false;
    for (const rows::TierRow &row : run.of<rows::TierRow>())
        if (row.retransmitted_wire_bytes && row.tx_wire_bytes) {
            sent += static_cast<double>(*row.tx_wire_bytes);
            again += static_cast<double>(*row.retransmitted_wire_bytes);
            is_known = true;
        }
    for (const rows::SocketRow &row : run.of<rows::SocketRow>())
        if (row.retransmitted_bytes && row.tx_payload_bytes) {
            sent += static_cast<double>(*row.tx_payload_bytes);
            again += static_cast<double>(*row.retransmitted_bytes);
            is_known = true;
        }
    return is_known && sent > 0 ? std::optional(again / sent) : std::nullopt;
}

void compare_retransmitted(const TwoRuns &runs, Comparison &result) {
    const auto a = retransmitted_share(runs.a), b = retransmitted_share(runs.b);
    if (!a || !b) {
        result.not_compared.emplace_back("retransmissions: not measured in both runs");
        return;
    }
    if (*a > LEAST_RETRANSMITTED && *a > *b * MORE_RETRANSMITTED)
        result.differences.push_back(
            {.topic = Topic::Paths,
             .code = "retransmitted",
             .sentence = fmt::format("retransmitted: {:.3f} % of the bytes sent, before {:.3f} %",
                                     100 * *a, 100 * *b)});
}

std::vector<std::string> hosts_without(const RunRows &run, const RunRows &other) {
    std::set<std::string> hosts, others;
    for (const rows::RankRow &row : run.of<rows::RankRow>())
        hosts.insert(row.host);
    for (const rows::RankRow &row : other.of<rows::RankRow>())
        others.insert(row.host);
    std::vector<std::string> only;
    for (const std::string &host : hosts)
        if (!others.contains(host))
            only.push_back(report::printable(host));
    return only;
}

void compare_hosts(const TwoRuns &runs, Comparison &result) {
    if (!has_all_ranks(runs.a) || !has_all_ranks(runs.b)) {
        result.not_compared.emplace_back(
            "hosts of the job: not all ranks are in the captures of both runs");
        return;
    }
    const auto a = hosts_without(runs.a, runs.b), b = hosts_without(runs.b, runs.a);
    std::string text;
    if (!a.empty())
        text = fmt::format("hosts in A only: {}", list_text(a, MOST_NAMED));
    if (!b.empty())
        text += fmt::format("{}hosts in B only: {}", text.empty() ? "" : "; ",
                            list_text(b, MOST_NAMED));
    if (!text.empty())
        result.differences.push_back({.topic = Topic::Paths, .code = "hosts", .sentence = text});
}

} // namespace

void compare_devices(const TwoRuns &runs, Comparison &result) {
    compare_things("port", ports_of(runs.a), ports_of(runs.b), result);
    compare_things("device", devices_of(runs.a), devices_of(runs.b), result);
    compare_things("kernel", kernels_of(runs.a), kernels_of(runs.b), result);
    compare_happened("errors", "errors", errors_of(runs.a), errors_of(runs.b), result);
    compare_happened("events", "events", events_of(runs.a), events_of(runs.b), result);
    compare_retransmitted(runs, result);
    compare_hosts(runs, result);
}

} // namespace collwire::against
