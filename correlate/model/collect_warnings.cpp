// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/qp_records.h"
#include "correlate/capture/kinds.h"
#include "correlate/model/join.h"

namespace collwire::model {

namespace {

constexpr std::int64_t CLOCKS_APART_NS = 100'000'000;
constexpr double NS_PER_S = 1e9;

// "a, b, c and 497 more"
std::string list_of(const std::set<std::string> &names) {
    constexpr std::size_t SHOWN = 3;
    std::string list;
    std::size_t i = 0;
    for (const std::string &name : names) {
        if (i == SHOWN) {
            list += fmt::format(" and {} more", names.size() - SHOWN);
            break;
        }
        list += i++ == 0 ? name : ", " + name;
    }
    return list;
}

class Collector {
public:
    explicit Collector(Model &model) : model_(model) {}

    void run() {
        losses();
        captures();
        recordings();
        sources();
        bytes();
        ports();
        pairing();
        nccl();
        clocks();
        clocks_in_contradiction();
        if (!model_.has_topology && model_.total.qps != 0)
            warn(
                "no topology: bytes that leave a host have tier \"unknown\". Fix: --topology FILE");
    }

private:
    void warn(std::string text) { model_.warnings.push_back(std::move(text)); }

    void losses() {
        std::map<std::tuple<Index, std::uint32_t, std::uint16_t>, std::uint64_t> sums;
        for (const Session &session : model_.sessions)
            for (const auto &[key, records] : session.loss)
                if (records != 0 && !session.excluded) {
                    std::uint64_t &sum = sums[{session.host, key.first, key.second}];
                    sum = add_saturating(sum, records);
                }
        std::map<std::string, std::pair<std::uint64_t, std::set<std::string>>> by_class;
        for (const auto &[key, records] : sums) {
            const auto &[host, loss_class, cpu] = key;
            std::string name(capture::loss_class_name(loss_class));
            if (name.empty())
                name = fmt::format("class_{}", loss_class);
            auto &[class_records, hosts] = by_class[name];
            class_records = add_saturating(class_records, records);
            hosts.insert(model_.hosts[host].name);
            model_.lost_records = add_saturating(model_.lost_records, records);
            model_.loss.push_back({host, std::move(name), cpu, records});
        }
        for (const auto &[name, sum] : by_class)
            if (name == capture::loss_class_name(CW_LOSS_STANDSTILL))
                warn(fmt::format(
                    "LOSS: the recorder stood still {} time(s), for more than 3 s each, "
                    "on {}: samples are missing, and states between them",
                    sum.first, list_of(sum.second)));
            else
                warn(fmt::format(
                    "LOSS: {} record(s) of class {} were lost on {}: their contents are "
                    "missing from the numbers below",
                    sum.first, name, list_of(sum.second)));
    }

    void captures() {
        for (const Capture &capture : model_.captures) {
            if (capture.end == CaptureEnd::Unreadable ||
                (capture.session == NONE && capture.records == 0))
                warn(fmt::format("{}: not used: {}", capture.path, capture.message));
            else if (capture.end == CaptureEnd::Damaged && capture.session != NONE)
                warn(fmt::format("{}: {}; used up to there", capture.path, capture.message));
            else if (capture.session == NONE)
                warn(fmt::format("{}: not used: it has no record of its host", capture.path));
            const std::uint64_t beyond = capture.events_left_out + capture.anchors_left_out +
                                         capture.gids_left_out + capture.pci_functions_left_out +
                                         capture.nccl_left_out;
            if (capture.unusable_records != beyond && capture.session != NONE)
                warn(fmt::format("{}: {} record(s) left out: the capture does not describe the "
                                 "objects that they belong to",
                                 capture.path, capture.unusable_records - beyond));
            if (beyond != 0)
                warn(fmt::format(
                    "{}: left out, because a recorder does not write so many: {} events, {} clock "
                    "readings, {} port addresses, {} PCI functions, {} NCCL records",
                    capture.path, capture.events_left_out, capture.anchors_left_out,
                    capture.gids_left_out, capture.pci_functions_left_out, capture.nccl_left_out));
        }
        std::set<std::string> open;
        for (const Capture &capture : model_.captures)
            if (capture.end == CaptureEnd::Open && capture.session != NONE)
                open.insert(capture.path);
        if (!open.empty())
            warn(fmt::format(
                "{} capture(s) have no end record ({}): the recorder was killed or still runs",
                open.size(), list_of(open)));
    }

    void recordings() {
        for (const Session &session : model_.sessions) {
            const std::string &host = model_.hosts[session.host].name;
            if (session.excluded)
                warn(fmt::format(
                    "{}: two recordings overlap; the shorter one is excluded from all totals",
                    host));
            if (!session.from_start && !model_.window)
                warn(fmt::format(
                    "{}: the recording's first segment is missing; bytes count from segment {} on",
                    host, session.segments.empty() ? 0 : *session.segments.begin()));
            if (!session.segments.empty()) {
                const std::uint64_t span =
                    std::uint64_t{*session.segments.rbegin()} - *session.segments.begin() + 1;
                if (span != session.segments.size())
                    warn(fmt::format(
                        "{}: {} segment(s) in the middle of a recording are missing: totals "
                        "include their bytes, but not their events and short-lived queue pairs",
                        host, span - session.segments.size()));
            }
        }
    }

    void sources() {
        std::map<std::tuple<std::string, std::uint32_t, std::string>, std::set<std::string>>
            by_reason;
        for (const Session &session : model_.sessions)
            for (const auto &[key, source] : session.sources)
                if (source.state != CW_SOURCE_ON && source.state != CW_SOURCE_OFF)
                    by_reason[{source.name, source.state, source.reason}].insert(
                        source.device == NONE ? model_.hosts[session.host].name
                                              : model_.hosts[session.host].name + " " +
                                                    model_.devices[source.device].name);
        for (const auto &[key, where] : by_reason) {
            const auto &[name, state, reason] = key;
            warn(fmt::format("source {} is {} on {}: {}", name, capture::source_state_name(state),
                             list_of(where), reason));
        }
    }

    void bytes() {
        if (model_.total.qps_without_bytes != 0)
            warn(fmt::format("{} of {} queue pairs: bytes not measured{}",
                             model_.total.qps_without_bytes, model_.total.qps,
                             model_.total.derived_tx_payload_bytes
                                 ? "; the payload of NCCL operations on them is computed"
                                 : ""));
        unknown_tier();
        if (!model_.sessions.empty() && !model_.watched_queue_pairs())
            warn("QP tracing was off in some recordings: no queue pairs there means \"not "
                 "recorded\", not zero");
        if (!model_.unmatched_posts.empty()) {
            std::uint64_t posted_bytes = 0;
            for (const UnmatchedPosts &posts : model_.unmatched_posts)
                posted_bytes = add_saturating(posted_bytes, posts.bytes);
            warn(fmt::format("{} B were posted on {} queue pair(s) that no record describes: "
                             "excluded from all totals",
                             posted_bytes, model_.unmatched_posts.size()));
        }
    }

    void unknown_tier() {
        const std::uint64_t unknown =
            model_.tiers[index_of(topology::Tier::Unknown)].tx_wire_bytes.value_or(0);
        if (!model_.has_topology || unknown == 0)
            return;
        const std::uint64_t unplaced = model_.unplaced_tx_wire_bytes;
        std::string why;
        if (unplaced < unknown)
            why = fmt::format("the destination of {} B is not known (no address was recorded, its "
                              "record was lost, or it changed)",
                              unknown - unplaced);
        if (unplaced != 0)
            why += fmt::format("{}{} B are from or to ports that the topology lacks or does not "
                               "connect. Fix: add them to the topology",
                               why.empty() ? "" : "; ", unplaced);
        warn(fmt::format(
            "{} B have tier \"unknown\", so the bytes of every other tier are lower bounds: {}",
            unknown, why));
    }

    [[nodiscard]] bool has_loss(Index host) const {
        return std::any_of(model_.loss.begin(), model_.loss.end(),
                           [&](const LossEntry &entry) { return entry.host == host; });
    }

    void ports() {
        for (const Port &port : model_.ports) {
            const PortBytes &bytes = port.bytes;
            const Device &device = model_.devices[port.device];
            const std::string name = fmt::format("{} {} port {}", model_.hosts[device.host].name,
                                                 device.name, port.number);
            if (bytes.counter_resets != 0)
                warn(fmt::format("{}: its byte counter went backwards {} time(s): bytes before "
                                 "each reset may be missing",
                                 name, bytes.counter_resets));
            if (bytes.tx_wire_bytes && bytes.explained_tx_bytes &&
                *bytes.explained_tx_bytes >
                    add_saturating(*bytes.tx_wire_bytes, bytes.uncertainty_bytes.value_or(0)))
                warn(fmt::format("{}: its queue pairs sent {} B more than its counter shows "
                                 "(uncertainty {} B){}",
                                 name, *bytes.explained_tx_bytes - *bytes.tx_wire_bytes,
                                 bytes.uncertainty_bytes.value_or(0),
                                 has_loss(device.host)
                                     ? "; probably because records were lost on this host"
                                     : ""));
        }
    }

    void pairing() {
        std::uint64_t ambiguous = 0;
        std::uint64_t several = 0;
        std::uint64_t not_captured = 0;
        std::uint64_t not_found = 0;
        std::set<std::string> hosts;
        std::set<std::string> captured_hosts;
        std::set<std::string> hosts_not_found;
        for (const Host &host : model_.hosts)
            captured_hosts.insert({host.name, host.hostname});
        for (const Qp &qp : model_.qps) {
            several += qp.had_several_peers ? 1 : 0;
            ambiguous += qp.pairing == Pairing::Ambiguous && !qp.had_several_peers ? 1 : 0;
            if (qp.pairing != Pairing::NotCaptured)
                continue;
            if (!qp.remote_host.empty() && captured_hosts.contains(qp.remote_host)) {
                ++not_found;
                hosts_not_found.insert(qp.remote_host);
                continue;
            }
            ++not_captured;
            if (!qp.remote_host.empty())
                hosts.insert(qp.remote_host);
            else if (qp.has(CW_QP_ADDRESS) && !is_zero(qp.dgid()))
                hosts.insert(short_gid_text(qp.dgid()));
        }
        if (several != 0)
            warn(fmt::format("{} queue pair(s) were connected to another peer after they had sent "
                             "or received: their bytes count for no peer and for tier \"unknown\"",
                             several));
        if (ambiguous != 0)
            warn(fmt::format("{} queue pair(s): several could be the other end, so none was chosen",
                             ambiguous));
        if (not_captured != 0)
            warn(fmt::format("{} queue pair(s): the other end is not in these captures{}",
                             not_captured, hosts.empty() ? "" : " (" + list_of(hosts) + ")"));
        if (not_found != 0)
            warn(fmt::format(
                "{} queue pair(s): the other end was not found in the capture of its host ({})",
                not_found, list_of(hosts_not_found)));
    }

    void nccl() {
        const nccl::NcclFacts &nccl = model_.nccl;
        if (nccl.ops_truncated != 0)
            warn(fmt::format("{} NCCL launch(es) had more operations than collwire reads: their "
                             "collectives are partial",
                             nccl.ops_truncated));
        if (nccl.launches_unreadable != 0)
            warn(fmt::format("{} NCCL launch(es) have no operation descriptor (record lost): their "
                             "bytes are unattributed",
                             nccl.launches_unreadable));
        if (nccl.replays_left_out != 0)
            warn(fmt::format("{} replay(s) of CUDA graphs are not listed: they exceed the report's "
                             "limit; their bytes are counted by rank only",
                             nccl.replays_left_out));
        if (nccl.orphans != 0)
            warn(fmt::format(
                "{} NCCL call(s) and launch(es) belong to no communicator in the captures",
                nccl.orphans));
        const auto unjoined = std::count_if(
            nccl.instances.begin(), nccl.instances.end(), [](const nccl::Instance &instance) {
                return instance.n_collectives != 0 && !instance.is_joined;
            });
        if (unjoined != 0)
            warn(fmt::format("{} rank(s) could not be aligned with the others; their collectives "
                             "are listed separately",
                             unjoined));
    }

    void clocks() {
        const ClockDifference *worst = nullptr;
        std::uint64_t apart = 0;
        for (const ClockDifference &clock : model_.clock_differences) {
            if (clock.b_minus_a_ns < CLOCKS_APART_NS && clock.b_minus_a_ns > -CLOCKS_APART_NS)
                continue;
            ++apart;
            if (worst == nullptr || magnitude(clock.b_minus_a_ns) > magnitude(worst->b_minus_a_ns))
                worst = &clock;
        }
        if (worst != nullptr)
            warn(fmt::format(
                "the clocks of {} pair(s) of hosts differ by {:.1f} s or more; the worst: {}'s is "
                "{:.3f} s ahead of {}'s. Compare times across hosts with care",
                apart, static_cast<double>(CLOCKS_APART_NS) / NS_PER_S,
                model_.hosts[worst->b_minus_a_ns < 0 ? worst->host_a : worst->host_b].name,
                static_cast<double>(magnitude(worst->b_minus_a_ns)) / NS_PER_S,
                model_.hosts[worst->b_minus_a_ns < 0 ? worst->host_b : worst->host_a].name));
    }

    void clocks_in_contradiction() {
        if (model_.clocks.contradictions.empty())
            return;
        const clocks::ClockContradiction &first = model_.clocks.contradictions.front();
        std::string hosts;
        for (Index host = 0; host < model_.clocks.nodes.size(); ++host)
            if (model_.clocks.nodes[host].calibration == clocks::Calibration::Contradiction)
                hosts += (hosts.empty() ? "" : ", ") + model_.hosts[host].name;
        warn(fmt::format("what was recorded of {} and {} cannot all be true: their clocks would "
                         "miss each other by {:.3f} ms. No time of {} is compared with another "
                         "host's. A clock may have stood still or jumped, as in a virtual machine "
                         "that is moved",
                         model_.hosts[first.a].name, model_.hosts[first.b].name,
                         static_cast<double>(first.by_ns) / 1e6, hosts));
    }

    static std::uint64_t magnitude(std::int64_t value) {
        return value < 0 ? 0 - static_cast<std::uint64_t>(value)
                         : static_cast<std::uint64_t>(value);
    }

    Model &model_;
};

} // namespace

void collect_warnings(Model &model) {
    Collector(model).run();
}

} // namespace collwire::model
