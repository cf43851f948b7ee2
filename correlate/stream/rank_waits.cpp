// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/rank_waits.h"

namespace collwire::stream {

RankWaits::RankWaits(std::int32_t n_ranks, std::int32_t n_nodes) {
    if (n_ranks > 1 && n_nodes != 1)
        members_.resize(static_cast<std::size_t>(n_ranks));
}

void RankWaits::join(std::int32_t rank, RankProgress &progress) {
    const auto at = static_cast<std::size_t>(rank);
    if (rank < 0 || at >= members_.size())
        return;
    Member &member = members_[at];
    if (!member.is_met)
        ++n_met_;
    else if (member.progress == nullptr)
        --n_left_;
    member = {&progress, true};
}

void RankWaits::leave(std::int32_t rank, const RankProgress &progress) {
    const auto at = static_cast<std::size_t>(rank);
    if (rank < 0 || at >= members_.size() || members_[at].progress != &progress)
        return;
    members_[at].progress = nullptr;
    ++n_left_;
}

std::uint32_t RankWaits::expected_calls() const {
    return static_cast<std::uint32_t>((gave_up_ ? n_met_ : members_.size()) - n_left_);
}

std::optional<RankWait> RankWaits::lacking(std::uint64_t number, std::uint32_t node) const {
    RankWait wait;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
        const RankProgress *other = members_[rank].progress;
        if (other == nullptr || other->node == node || !other->is_awaited || !other->is_numbered ||
            other->next > number)
            continue;
        wait.rank = static_cast<std::int32_t>(rank);
        return wait;
    }
    wait.n_met = n_met_;
    return waits_for_unmet() ? std::optional(wait) : std::nullopt;
}

std::optional<RankWait> RankWaits::lacking_peer(std::int32_t peer, std::uint32_t node) const {
    const auto at = static_cast<std::size_t>(peer);
    if (peer < 0 || at >= members_.size())
        return std::nullopt;
    RankWait wait;
    const Member &member = members_[at];
    if (!member.is_met) {
        wait.n_met = n_met_;
        return gave_up_ ? std::nullopt : std::optional(wait);
    }
    if (member.progress == nullptr || member.progress->node == node || !member.progress->is_awaited)
        return std::nullopt;
    wait.rank = peer;
    return wait;
}

bool RankWaits::is_lacking(const RankWait &wait) const {
    if (wait.rank < 0)
        return waits_for_unmet() && n_met_ == wait.n_met;
    const RankProgress *other = members_[static_cast<std::size_t>(wait.rank)].progress;
    return other != nullptr && other->is_awaited &&
           (wait.is_transfer || (other->is_numbered && other->next <= wait.call.number));
}

void RankWaits::give_up(const RankWait &wait) {
    if (wait.rank < 0)
        gave_up_ = true;
    else if (RankProgress *other = members_[static_cast<std::size_t>(wait.rank)].progress;
             other != nullptr)
        other->is_awaited = false;
}

} // namespace collwire::stream
