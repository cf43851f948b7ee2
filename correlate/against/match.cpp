// SPDX-License-Identifier: Apache-2.0
#include "correlate/against/match.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>

#include <fmt/format.h>

#include "correlate/report/units.h"
#include "correlate/roles/label.h"

namespace collwire::against {
namespace {

// "gpu-2" before "gpu-10": digits are compared as numbers.
std::vector<std::string> natural_key(const std::string &name) {
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < name.size();) {
        const bool is_digit = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
        std::size_t end = i;
        while (end < name.size() &&
               (std::isdigit(static_cast<unsigned char>(name[end])) != 0) == is_digit)
            ++end;
        std::string part = name.substr(i, end - i);
        if (is_digit) {
            part.erase(0, std::min(part.find_first_not_of('0'), part.size()));
            part = fmt::format("{:05}{}", part.size(), part);
        }
        parts.push_back(std::move(part));
        i = end;
    }
    return parts;
}

// The largest communicator, where there is one alone.
const rows::CommunicatorRow *world_of(const RunRows &run) {
    const rows::CommunicatorRow *world = nullptr;
    bool is_alone = false;
    for (const rows::CommunicatorRow &row : run.of<rows::CommunicatorRow>()) {
        if (world == nullptr || row.n_ranks > world->n_ranks) {
            world = &row;
            is_alone = true;
        } else if (row.n_ranks == world->n_ranks) {
            is_alone = false;
        }
    }
    return is_alone ? world : nullptr;
}

using NodePlaces = std::map<std::string, std::size_t>;

// By NCCL's own number of a node in the largest communicator.
NodePlaces places_in_world(const RunRows &run, const rows::CommunicatorRow &world) {
    NodePlaces places;
    for (const rows::RankRow &row : run.of<rows::RankRow>())
        if (row.comm == world.comm && row.node >= 0)
            places.try_emplace(row.host, static_cast<std::size_t>(row.node));
    return places;
}

std::vector<std::string> hosts_with_ranks(const RunRows &run) {
    std::set<std::pair<std::vector<std::string>, std::string>> by_name;
    for (const rows::RankRow &row : run.of<rows::RankRow>())
        by_name.insert({natural_key(row.host), row.host});
    std::vector<std::string> hosts;
    hosts.reserve(by_name.size());
    for (const auto &[key, host] : by_name)
        hosts.push_back(host);
    return hosts;
}

// Those without a place yet: hosts of both runs have one place, others are paired in their order.
void place_by_name(const RunRows &a, const RunRows &b, NodePlaces &of_a, NodePlaces &of_b) {
    std::size_t next = 0;
    for (const NodePlaces *places : {&of_a, &of_b})
        for (const auto &[host, place] : *places)
            next = std::max(next, place + 1);
    const std::vector<std::string> hosts_a = hosts_with_ranks(a), hosts_b = hosts_with_ranks(b);
    const std::set<std::string> set_a(hosts_a.begin(), hosts_a.end()),
        set_b(hosts_b.begin(), hosts_b.end());
    std::vector<std::string> only_a, only_b;
    for (const std::string &host : hosts_a)
        if (!set_b.contains(host) && !of_a.contains(host))
            only_a.push_back(host);
    for (const std::string &host : hosts_b) {
        if (!set_a.contains(host)) {
            if (!of_b.contains(host))
                only_b.push_back(host);
            continue;
        }
        if (of_a.contains(host) && of_b.contains(host))
            continue;
        of_a.try_emplace(host, next);
        of_b.try_emplace(host, next);
        ++next;
    }
    for (std::size_t i = 0; i < std::max(only_a.size(), only_b.size()); ++i, ++next) {
        if (i < only_a.size())
            of_a.emplace(only_a[i], next);
        if (i < only_b.size())
            of_b.emplace(only_b[i], next);
    }
}

RankPlaces rank_places(const RunRows &run, const NodePlaces &nodes) {
    // GPUs of a node in the order of their addresses; without one, by CUDA's number.
    using Gpu = std::pair<std::string, std::int64_t>;
    const auto gpu_of = [](const rows::RankRow &row) {
        return row.gpu_pci_address ? Gpu{*row.gpu_pci_address, 0} : Gpu{"", row.gpu};
    };
    std::map<std::string, std::set<Gpu>> gpus;
    for (const rows::RankRow &row : run.of<rows::RankRow>())
        gpus[row.host].insert(gpu_of(row));
    RankPlaces places;
    for (const rows::RankRow &row : run.of<rows::RankRow>()) {
        const std::set<Gpu> &of_host = gpus[row.host];
        places.insert_or_assign({row.comm, row.rank},
                                RankPlace{.node = nodes.at(row.host),
                                          .gpu = static_cast<std::size_t>(std::distance(
                                              of_host.begin(), of_host.find(gpu_of(row))))});
    }
    return places;
}

struct Candidate {
    const rows::CommunicatorRow *row = nullptr;
    std::vector<std::pair<std::int64_t, RankPlace>> ranks;
    std::set<std::size_t> gpus;
    bool is_matched = false;

    [[nodiscard]] std::string name() const { return row->name.value_or(""); }
};

std::vector<Candidate> candidates_of(const RunRows &run, const RankPlaces &places) {
    std::vector<Candidate> candidates;
    for (const rows::CommunicatorRow &row : run.of<rows::CommunicatorRow>()) {
        Candidate &candidate = candidates.emplace_back();
        candidate.row = &row;
        for (auto at = places.lower_bound({row.comm, INT64_MIN});
             at != places.end() && at->first.first == row.comm; ++at) {
            candidate.ranks.emplace_back(at->first.second, at->second);
            candidate.gpus.insert(at->second.gpu);
        }
    }
    return candidates;
}

void pair_up(Candidate &a, Candidate &b, MatchedBy by, std::vector<CommPair> &pairs) {
    a.is_matched = b.is_matched = true;
    pairs.push_back({.a = a.row->comm,
                     .b = b.row->comm,
                     .by = by,
                     .n_ranks_a = a.row->n_ranks,
                     .n_ranks_b = b.row->n_ranks,
                     .name = a.name(),
                     .guessed_role_a = a.row->guessed_role.value_or(""),
                     .guessed_role_b = b.row->guessed_role.value_or("")});
}

// Pairs of equal keys in the order of creation; keys are made by `key_of`, absent: no match.
template <typename KeyOf>
void match_by(std::vector<Candidate> &a, std::vector<Candidate> &b, MatchedBy by, KeyOf key_of,
              bool must_be_alone, std::vector<CommPair> &pairs) {
    using Key = typename std::invoke_result_t<KeyOf, const Candidate &>::value_type;
    std::map<Key, std::pair<std::vector<Candidate *>, std::vector<Candidate *>>> by_key;
    for (Candidate &candidate : a)
        if (const auto key = key_of(candidate); key && !candidate.is_matched)
            by_key[*key].first.push_back(&candidate);
    for (Candidate &candidate : b)
        if (const auto key = key_of(candidate); key && !candidate.is_matched)
            by_key[*key].second.push_back(&candidate);
    for (auto &[key, sides] : by_key) {
        auto &[of_a, of_b] = sides;
        if (must_be_alone && (of_a.size() != 1 || of_b.size() != 1))
            continue;
        for (std::size_t i = 0; i < std::min(of_a.size(), of_b.size()); ++i)
            pair_up(*of_a[i], *of_b[i], by, pairs);
    }
}

// The ranks that both runs captured have the same places, and there is such a rank.
bool have_common_ranks(const Candidate &a, const Candidate &b) {
    if (a.name() != b.name() || a.row->n_ranks != b.row->n_ranks)
        return false;
    bool has_common = false;
    auto of_b = b.ranks.begin(); // both are by rank
    for (const auto &[rank, place] : a.ranks) {
        while (of_b != b.ranks.end() && of_b->first < rank)
            ++of_b;
        if (of_b == b.ranks.end() || of_b->first != rank)
            continue;
        if (of_b->second != place)
            return false;
        has_common = true;
    }
    return has_common;
}

// Of communicators that a run did not capture whole.
void match_by_common_ranks(std::vector<Candidate> &a, std::vector<Candidate> &b,
                           std::vector<CommPair> &pairs) {
    for (Candidate &one : a)
        for (Candidate &other : b)
            if (!one.is_matched && !other.is_matched && have_common_ranks(one, other))
                pair_up(one, other, MatchedBy::Layout, pairs);
}

} // namespace

std::string_view matched_by_name(MatchedBy by) {
    switch (by) {
    case MatchedBy::Layout:
        return "layout";
    case MatchedBy::Shape:
        return "shape";
    case MatchedBy::Name:
        return "name";
    case MatchedBy::Gpus:
        break;
    }
    return "gpus";
}

std::string label_of(const CommPair &pair) {
    if (!pair.name.empty())
        return report::printable(pair.name);
    const auto &[a, b] = std::tie(pair.guessed_role_a, pair.guessed_role_b);
    return a.empty() || b.empty() || a == b ? roles::mark_of(a.empty() ? b : a) : std::string();
}

Matches match_communicators(const RunRows &a, const RunRows &b) {
    Matches matches;
    const rows::CommunicatorRow *world_a = world_of(a);
    const rows::CommunicatorRow *world_b = world_of(b);
    NodePlaces nodes_a, nodes_b;
    if (world_a != nullptr && world_b != nullptr) {
        nodes_a = places_in_world(a, *world_a);
        nodes_b = places_in_world(b, *world_b);
    }
    place_by_name(a, b, nodes_a, nodes_b);
    matches.places_a = rank_places(a, nodes_a);
    matches.places_b = rank_places(b, nodes_b);
    std::vector<Candidate> of_a = candidates_of(a, matches.places_a);
    std::vector<Candidate> of_b = candidates_of(b, matches.places_b);
    const auto match = [&](MatchedBy by, auto key_of, bool must_be_alone) {
        match_by(of_a, of_b, by, key_of, must_be_alone, matches.pairs);
    };
    match(
        MatchedBy::Layout,
        [](const Candidate &one) {
            return std::optional(std::tuple(one.name(), one.row->n_ranks, one.ranks));
        },
        false);
    match_by_common_ranks(of_a, of_b, matches.pairs);
    match(
        MatchedBy::Shape,
        [](const Candidate &one) {
            return std::optional(
                std::tuple(one.name(), one.row->n_ranks, one.row->n_nodes, one.gpus));
        },
        false);
    match(
        MatchedBy::Name,
        [](const Candidate &one) {
            return one.name().empty() ? std::nullopt : std::optional(one.name());
        },
        true);
    match(
        MatchedBy::Gpus,
        [](const Candidate &one) {
            return one.gpus.empty() ? std::nullopt
                                    : std::optional(std::tuple(one.name(), one.gpus));
        },
        false);
    std::ranges::sort(matches.pairs, {}, &CommPair::a);
    for (const Candidate &one : of_a)
        if (!one.is_matched)
            matches.only_a.push_back(one.row->comm);
    for (const Candidate &one : of_b)
        if (!one.is_matched)
            matches.only_b.push_back(one.row->comm);
    return matches;
}

} // namespace collwire::against
