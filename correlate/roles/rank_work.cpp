// SPDX-License-Identifier: Apache-2.0
#include "correlate/roles/rank_work.h"

#include <algorithm>

#include "collwire/nccl_launch_records.h"
#include "correlate/model/counters.h"

namespace collwire::roles {
namespace {

constexpr std::int64_t LEAST_AHEAD = 2;

Movement movement_of(std::uint8_t func) {
    switch (func) {
    case CW_NCCL_ALL_REDUCE:
        return Movement::AllReduce;
    case CW_NCCL_REDUCE_SCATTER:
        return Movement::ReduceScatter;
    case CW_NCCL_ALL_GATHER:
        return Movement::AllGather;
    case CW_NCCL_REDUCE:
        return Movement::Reduce;
    case CW_NCCL_ALL_TO_ALL:
        return Movement::AllToAll;
    default:
        return Movement::Other;
    }
}

// Sizes beyond the first ones are left out.
void add_size(std::map<std::uint64_t, std::uint64_t> &sizes, std::uint64_t bytes, std::uint64_t n) {
    if (const auto found = sizes.find(bytes); found != sizes.end())
        found->second += n;
    else if (sizes.size() < RankWork::MOST_SIZES)
        sizes.emplace(bytes, n);
}

} // namespace

CollectiveKind kind_of(std::uint8_t func, std::uint64_t bytes, std::int32_t n_ranks) {
    CollectiveKind kind{.movement = movement_of(func), .bytes = bytes};
    if (kind.movement == Movement::AllGather || kind.movement == Movement::ReduceScatter)
        kind.bytes =
            model::multiply_saturating(bytes, static_cast<std::uint64_t>(std::max(n_ranks, 1)));
    return kind;
}

void TurnCounter::add(bool is_send, std::uint64_t launch) {
    if (launch != launch_)
        finish_launch();
    launch_ = launch;
    (is_send ? sends_ : receives_) += 1;
}

bool TurnCounter::takes_turns() {
    finish_launch();
    return std::min(up_, down_) >= LEAST_AHEAD ||
           (n_both_ >= LEAST_AHEAD && n_alone_ >= LEAST_AHEAD);
}

void TurnCounter::finish_launch() {
    if (sends_ + receives_ == 0)
        return;
    (sends_ != 0 && receives_ != 0 ? n_both_ : n_alone_) += 1;
    ahead_ += sends_ - receives_;
    least_ = std::min(least_, ahead_);
    most_ = std::max(most_, ahead_);
    up_ = std::max(up_, ahead_ - least_);
    down_ = std::max(down_, most_ - ahead_);
    sends_ = receives_ = 0;
}

void RankWork::add_collective(const CollectiveKind &kind) {
    ++collectives[kind];
    if (kind.bytes < LARGE_BYTES)
        return;
    latest.push_back(kind);
    if (latest.size() == 2 * MOST_LATEST)
        finish();
}

void RankWork::add_transfer(bool is_send, std::int32_t peer, std::uint64_t bytes) {
    ++(is_send ? sends : receives)[peer];
    add_size(is_send ? sent_sizes : received_sizes, bytes, 1);
}

void RankWork::finish() {
    latest.erase(latest.begin(),
                 latest.end() - static_cast<std::ptrdiff_t>(std::min(latest.size(), MOST_LATEST)));
    latest.shrink_to_fit();
}

void GroupMaker::add(const Member &member, RankWork work) {
    facts_.members.push_back(member);
    std::uint64_t n = 0;
    for (const auto &[kind, count] : work.collectives)
        n += count;
    if (n > n_collectives_) {
        n_collectives_ = n;
        facts_.collectives = std::move(work.collectives);
        facts_.latest = std::move(work.latest);
    }
    // A transfer has two ends.
    const auto add_edge = [this](std::int32_t from, std::int32_t to, std::uint64_t count) {
        std::uint64_t &known = facts_.transfers[{from, to}];
        known = std::max(known, count);
    };
    for (const auto &[peer, count] : work.sends)
        add_edge(member.rank, peer, count);
    for (const auto &[peer, count] : work.receives)
        add_edge(peer, member.rank, count);
    for (const auto &[bytes, count] : work.sent_sizes)
        add_size(facts_.transfer_sizes, bytes, count);
    for (const auto &[bytes, count] : work.received_sizes)
        add_size(received_sizes_, bytes, count);
    lacks_turns_ = lacks_turns_ || !work.takes_turns;
    if (work.takes_turns)
        facts_.takes_turns = facts_.takes_turns.value_or(true) && *work.takes_turns;
}

GroupFacts GroupMaker::take(std::int32_t n_ranks, std::int32_t n_nodes) {
    facts_.n_ranks = n_ranks;
    facts_.n_nodes = n_nodes;
    std::ranges::sort(facts_.members, {}, &Member::rank);
    if (facts_.transfer_sizes.empty())
        facts_.transfer_sizes = std::move(received_sizes_);
    if (n_ranks != 2 || facts_.transfers.empty() || lacks_turns_)
        facts_.takes_turns.reset();
    return std::move(facts_);
}

} // namespace collwire::roles
