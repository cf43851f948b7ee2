// SPDX-License-Identifier: Apache-2.0
// The paths of NCCL's data: transport, NIC of each rank, path MTU, switch levels.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "correlate/against/parts.h"
#include "correlate/report/units.h"

namespace collwire::against {
namespace {

constexpr std::size_t MOST_NAMED = 4;
constexpr double LEAST_SHARE = 0.05;
constexpr std::size_t TIERS = rows::Vocabulary<rows::Tier>::words.size();

using Names = std::set<std::string>;
using RankKey = std::pair<std::uint64_t, std::int64_t>; // communicator, rank

std::string names_text(const Names &names) {
    return list_text({names.begin(), names.end()}, MOST_NAMED);
}

struct Ways {
    std::map<std::uint64_t, Names> transports; // by communicator
    std::map<std::uint64_t, Names> mtus;
    std::map<RankKey, Names> nics; // of a rank's data
    std::map<RankKey, std::string> hosts;
};

Ways ways_of(const RunRows &run) {
    Ways ways;
    for (const rows::FlowRow &row : run.of<rows::FlowRow>())
        if (row.comm && row.transport != "unknown")
            ways.transports[*row.comm].insert(row.transport);
    for (const rows::QpRow &row : run.of<rows::QpRow>()) {
        if (!row.comm || !row.rank || row.role != "data")
            continue;
        if (row.path_mtu_bytes)
            ways.mtus[*row.comm].insert(std::to_string(*row.path_mtu_bytes));
        if (row.device)
            ways.nics[{*row.comm, *row.rank}].insert(*row.device);
    }
    for (const rows::SocketRow &row : run.of<rows::SocketRow>())
        if (row.comm && row.rank && row.netdev && row.role == "data")
            ways.nics[{*row.comm, *row.rank}].insert(*row.netdev);
    for (const rows::RankRow &row : run.of<rows::RankRow>())
        ways.hosts[{row.comm, row.rank}] = row.host;
    return ways;
}

void compare_names(std::string_view code, std::string_view what,
                   const std::map<std::uint64_t, Names> &a, const std::map<std::uint64_t, Names> &b,
                   Comparison &result) {
    std::map<std::string, std::vector<std::uint64_t>> comms;
    for (const CommPair &pair : result.matches.pairs) {
        const auto of_a = a.find(pair.a), of_b = b.find(pair.b);
        if (of_a != a.end() && of_b != b.end() && of_a->second != of_b->second)
            comms[fmt::format("{} {}, before {}", what, names_text(of_a->second),
                              names_text(of_b->second))]
                .push_back(pair.a);
    }
    for (const auto &[sentence, of] : comms)
        result.differences.push_back({.topic = Topic::Paths,
                                      .code = std::string(code),
                                      .sentence = fmt::format("{} ({})", sentence, comms_text(of)),
                                      .comms = of});
}

// One sentence for all ranks with the same host and the same change.
void compare_nics(const Ways &a, const Ways &b, Comparison &result) {
    std::map<std::string, std::set<std::string>> places; // by change: host and rank
    std::map<std::string, std::set<std::uint64_t>> comms;
    for (const CommPair &pair : result.matches.pairs) {
        if (pair.n_ranks_a != pair.n_ranks_b)
            continue; // rings and trees are others, and their NICs with them
        for (auto at = a.nics.lower_bound({pair.a, INT64_MIN});
             at != a.nics.end() && at->first.first == pair.a; ++at) {
            const auto before = b.nics.find({pair.b, at->first.second});
            if (before == b.nics.end() || before->second == at->second)
                continue;
            const std::string change =
                fmt::format("{}, before {}", names_text(at->second), names_text(before->second));
            const auto host = a.hosts.find(at->first);
            places[change].insert(
                fmt::format("rank {} of {} on {}", at->first.second, comm_text(pair),
                            host == a.hosts.end() ? "?" : report::printable(host->second)));
            comms[change].insert(pair.a);
        }
    }
    for (const auto &[change, of] : places)
        result.differences.push_back(
            {.topic = Topic::Paths,
             .code = "nic",
             .sentence =
                 fmt::format("NIC {}: {}", change, list_text({of.begin(), of.end()}, MOST_NAMED)),
             .comms = {comms[change].begin(), comms[change].end()}});
}

struct TierBytes {
    std::array<double, TIERS> bytes{};
    double all = 0;
    bool is_known = true;
};

TierBytes tier_bytes_of(const RunRows &run) {
    TierBytes tiers;
    for (const rows::QpRow &row : run.of<rows::QpRow>()) {
        if (row.role != "data")
            continue;
        const auto payload =
            row.tx_payload_bytes ? row.tx_payload_bytes : row.derived_tx_payload_bytes;
        if (!payload)
            tiers.is_known = false;
        const auto bytes = static_cast<double>(payload.value_or(0));
        tiers.bytes[static_cast<std::size_t>(row.tier)] += bytes;
        tiers.all += bytes;
    }
    tiers.is_known = tiers.is_known && tiers.all > 0 &&
                     tiers.bytes[static_cast<std::size_t>(rows::Tier::Unknown)] == 0;
    return tiers;
}

void compare_tiers(const TwoRuns &runs, Comparison &result) {
    const TierBytes a = tier_bytes_of(runs.a), b = tier_bytes_of(runs.b);
    if (!a.is_known || !b.is_known) {
        if (a.all > 0 && b.all > 0)
            result.not_compared.emplace_back(
                "shares of the switch levels: bytes or tiers of some queue pairs are not known. "
                "Fix: give --topology");
        return;
    }
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < TIERS; ++i)
        if (std::abs(a.bytes[i] / a.all - b.bytes[i] / b.all) >= LEAST_SHARE)
            texts.push_back(fmt::format("{} {:.1f} %, before {:.1f} %",
                                        rows::Vocabulary<rows::Tier>::words[i],
                                        100 * a.bytes[i] / a.all, 100 * b.bytes[i] / b.all));
    if (!texts.empty())
        result.differences.push_back(
            {.topic = Topic::Paths,
             .code = "tiers",
             .sentence = "share of the bytes: " + list_text(texts, TIERS)});
}

} // namespace

void compare_paths(const TwoRuns &runs, Comparison &result) {
    const Ways a = ways_of(runs.a), b = ways_of(runs.b);
    compare_names("transport", "transport", a.transports, b.transports, result);
    compare_nics(a, b, result);
    compare_names("mtu", "path MTU in bytes", a.mtus, b.mtus, result);
    compare_tiers(runs, result);
}

} // namespace collwire::against
