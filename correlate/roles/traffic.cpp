// SPDX-License-Identifier: Apache-2.0
#include "correlate/roles/traffic.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace collwire::roles {
namespace {

constexpr std::uint64_t MOST_OF = 10; // one in ten may differ
constexpr std::size_t LEAST_SIZES_UNEVEN = 4;
constexpr std::int32_t LEAST_ALL_TO_ALL = 4; // three ranks are all neighbours

// The length of the shortest beginning that the whole repeats, its last repetition perhaps cut
// short (the prefix function of Knuth, Morris and Pratt).
std::size_t period_of(std::span<const CollectiveKind> all) {
    std::vector<std::size_t> border(all.size());
    for (std::size_t i = 1; i < all.size(); ++i) {
        std::size_t length = border[i - 1];
        while (length != 0 && all[i] != all[length])
            length = border[length - 1];
        border[i] = all[i] == all[length] ? length + 1 : 0;
    }
    return all.empty() ? 0 : all.size() - border.back();
}

bool is_reducing(Movement movement) {
    return movement == Movement::AllReduce || movement == Movement::ReduceScatter ||
           movement == Movement::Reduce;
}

// At most a tenth more than the least.
bool are_alike(const std::vector<std::uint64_t> &counts) {
    const auto [least, most] = std::ranges::minmax_element(counts);
    return *most - *least <= *least / MOST_OF;
}

TransferShape shape_of_two(const GroupFacts &group) {
    if (group.transfers.size() != 2)
        return TransferShape::Unknown;
    return group.takes_turns.value_or(false) ? TransferShape::TurnsOfTwo : TransferShape::Pair;
}

// `sums`: of both directions between each rank and the next one.
TransferShape shape_of_neighbours(const GroupFacts &group, const std::vector<std::uint64_t> &sums) {
    const std::vector<std::uint64_t> inner(sums.begin(), sums.end() - 1);
    const std::uint64_t least = std::ranges::min(inner);
    if (least == 0)
        return TransferShape::Unknown; // parts of a chain, or a rank's sends are missing
    const bool has_first = !group.members.empty() && group.members.front().rank == 0;
    const bool has_last = !group.members.empty() && group.members.back().rank == group.n_ranks - 1;
    if (sums.back() == 0)
        return has_first || has_last ? TransferShape::Chain : TransferShape::Unknown;
    // Several stages a rank: one transfer fewer for each round of them.
    if (are_alike(inner) && sums.back() <= least - least / MOST_OF)
        return TransferShape::Chain;
    return are_alike(sums) ? TransferShape::Ring : TransferShape::Unknown;
}

constexpr std::array<std::pair<Movement, std::string_view>, 6> MOVEMENTS = {{
    {Movement::AllReduce, "AllReduce"},
    {Movement::ReduceScatter, "ReduceScatter"},
    {Movement::AllGather, "AllGather"},
    {Movement::Reduce, "Reduce"},
    {Movement::AllToAll, "AlltoAll"},
    {Movement::Other, "others"},
}};

} // namespace

LargeCollectives large_collectives(const GroupFacts &group) {
    LargeCollectives large;
    std::map<std::uint64_t, std::uint64_t> of_size;
    for (const auto &[kind, n] : group.collectives) {
        if (kind.bytes < LARGE_BYTES || kind.movement == Movement::AllToAll ||
            kind.movement == Movement::Other)
            continue;
        large.n += n;
        large.reducing += is_reducing(kind.movement) ? n : 0;
        large.has_all_reduce = large.has_all_reduce || kind.movement == Movement::AllReduce;
        large.has_reduce_scatter =
            large.has_reduce_scatter || kind.movement == Movement::ReduceScatter;
        large.has_all_gather = large.has_all_gather || kind.movement == Movement::AllGather;
        large.sizes.insert(kind.bytes);
        of_size[kind.bytes] += n;
    }
    for (const auto &[bytes, n] : of_size)
        large.is_uniform = large.is_uniform || n >= large.n - large.n / MOST_OF;
    // The first ones may be of another order: of a framework that still learns it.
    const auto &latest = group.latest;
    const std::vector<CollectiveKind> back(
        latest.rbegin(), latest.rend() - static_cast<std::ptrdiff_t>(latest.size() / 4));
    const std::size_t period = period_of(back);
    if (period != 0 && back.size() / period >= 2) {
        std::set<std::uint64_t> sizes;
        for (std::size_t i = 0; i < period; ++i)
            sizes.insert(back[i].bytes);
        large.repeated_sizes = sizes.size();
        large.repetitions = latest.size() / period;
    }
    return large;
}

TransferShape transfer_shape(const GroupFacts &group) {
    if (group.transfers.empty())
        return TransferShape::None;
    if (group.n_ranks == 2)
        return shape_of_two(group);
    const std::int32_t n = group.n_ranks;
    if (n < 2 || group.transfers.size() + 1 < static_cast<std::size_t>(n))
        return TransferShape::Unknown;
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(n));
    std::vector<std::uint64_t> counts;
    bool has_others = false;
    for (const auto &[edge, count] : group.transfers) {
        const auto &[from, to] = edge;
        if (from < 0 || to < 0 || from >= n || to >= n)
            return TransferShape::Unknown;
        if (from == to)
            continue;
        counts.push_back(count);
        if ((from + 1) % n == to)
            sums[static_cast<std::size_t>(from)] += count;
        else if ((to + 1) % n == from)
            sums[static_cast<std::size_t>(to)] += count;
        else
            has_others = true;
    }
    if (counts.empty())
        return TransferShape::Unknown;
    const auto pairs = [](std::size_t ranks) { return ranks == 0 ? 0 : ranks * (ranks - 1); };
    const auto ranks = static_cast<std::size_t>(n);
    const std::size_t missing = ranks - std::min(ranks, group.members.size());
    if (n >= LEAST_ALL_TO_ALL && counts.size() == pairs(ranks) - pairs(missing) &&
        are_alike(counts))
        return TransferShape::AllToAll;
    return has_others ? TransferShape::Unknown : shape_of_neighbours(group, sums);
}

bool has_uneven_transfers(const GroupFacts &group) {
    std::uint64_t all = 0, most = 0;
    for (const auto &[bytes, n] : group.transfer_sizes) {
        all += n;
        most = std::max(most, n);
    }
    return group.transfer_sizes.size() >= LEAST_SIZES_UNEVEN && most < all - all / MOST_OF;
}

std::string traffic_text(const GroupFacts &group) {
    std::uint64_t n = 0, sends = 0;
    std::set<std::uint64_t> sizes;
    std::vector<std::string_view> names;
    for (const auto &[movement, name] : MOVEMENTS) {
        bool has_some = false;
        for (const auto &[kind, count] : group.collectives) {
            if (kind.movement != movement || kind.bytes < LARGE_BYTES)
                continue;
            has_some = true;
            n += count;
            sizes.insert(kind.bytes);
        }
        if (has_some)
            names.push_back(name);
    }
    for (const auto &[edge, count] : group.transfers)
        sends += count;
    std::vector<std::string> parts;
    if (n != 0)
        parts.push_back(fmt::format("{} large {} ({} {})", n, fmt::join(names, ", "), sizes.size(),
                                    sizes.size() == 1 ? "size" : "sizes"));
    if (sends != 0)
        parts.push_back(fmt::format("{} sends", sends));
    return parts.empty() ? "no large collective and no send"
                         : fmt::format("{}", fmt::join(parts, ", "));
}

} // namespace collwire::roles
