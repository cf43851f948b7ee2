// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/pair_joiner.h"

#include <algorithm>
#include <utility>

#include "correlate/capture/nccl_names.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/align_sequences.h"

namespace collwire::stream {
namespace {

// Of these many pairs of a node with another one the clocks are compared.
constexpr std::size_t MOST_CLOCKS = 4096;

std::uint64_t bytes_of(const TransferCall &call) {
    return model::multiply_saturating(call.count, capture::nccl_datatype_bytes(call.datatype));
}

// Of the first one that is remembered.
std::int64_t first_index(const PeerCalls &calls) {
    return static_cast<std::int64_t>(calls.n - calls.last.size());
}

// Null: not remembered.
const TransferCall *at(const PeerCalls &calls, std::int64_t index) {
    const std::int64_t i = index - first_index(calls);
    return i < 0 || std::cmp_greater_equal(i, calls.last.size())
               ? nullptr
               : &calls.last[static_cast<std::size_t>(i)];
}

} // namespace

void PairJoiner::add(std::size_t node, const RankStanding &rank) {
    from_creation_[rank.rank] = rank.is_from_creation;
    for (const PeerCalls &calls : rank.transfers) {
        const Pair pair = calls.is_send ? Pair(rank.rank, calls.peer) : Pair(calls.peer, rank.rank);
        std::map<Pair, End> &others = calls.is_send ? receives_ : sends_;
        End end{node, calls};
        const auto other = others.find(pair);
        if (other != others.end()) {
            const End &send = calls.is_send ? end : other->second;
            const End &receive = calls.is_send ? other->second : end;
            auto offset = by_number(send, receive);
            if (!offset)
                offset = by_steps(send, receive);
            if (offset) {
                settle(pair, send, receive, *offset);
                others.erase(other);
                continue;
            }
        }
        (calls.is_send ? sends_ : receives_)[pair] = std::move(end);
    }
}

std::optional<std::int64_t> PairJoiner::by_number(const End &send, const End &receive) {
    if (!send.calls.first_number || !receive.calls.first_number)
        return std::nullopt;
    return static_cast<std::int64_t>(*receive.calls.first_number) -
           static_cast<std::int64_t>(*send.calls.first_number);
}

// Calls whose connection had made as many steps after them are a send and its receive.
std::optional<std::int64_t> PairJoiner::by_steps(const End &send, const End &receive) {
    std::optional<std::int64_t> offset;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::int64_t> places;
    for (std::size_t i = 0; i < send.calls.last.size(); ++i)
        if (const TransferCall &call = send.calls.last[i]; call.end_steps != 0)
            places[{call.connection, call.end_steps}] =
                first_index(send.calls) + static_cast<std::int64_t>(i);
    for (std::size_t i = 0; i < receive.calls.last.size(); ++i) {
        const TransferCall &call = receive.calls.last[i];
        const auto found = places.find({call.connection, call.end_steps});
        if (call.end_steps == 0 || found == places.end())
            continue;
        const std::int64_t of_this =
            found->second - (first_index(receive.calls) + static_cast<std::int64_t>(i));
        if (offset && *offset != of_this)
            return std::nullopt; // the two ends do not count alike
        offset = of_this;
    }
    if (!offset)
        return std::nullopt;
    for (std::size_t i = 0; i < receive.calls.last.size(); ++i) {
        const TransferCall *sent =
            at(send.calls, first_index(receive.calls) + static_cast<std::int64_t>(i) + *offset);
        if (sent != nullptr && bytes_of(*sent) != bytes_of(receive.calls.last[i]))
            return std::nullopt;
    }
    return offset;
}

std::optional<std::int64_t> PairJoiner::by_time(const End &send, const End &receive,
                                                const CommonTime &common_ns) {
    const auto items_of = [&](const End &end) {
        std::vector<nccl::SequenceItem> items;
        for (const TransferCall &call : end.calls.last)
            items.push_back({bytes_of(call), common_ns(end.node, call.realtime_ns)});
        return items;
    };
    const auto aligned = nccl::align_sequences(items_of(send), items_of(receive));
    if (!aligned)
        return std::nullopt;
    return aligned->offset + first_index(send.calls) - first_index(receive.calls);
}

void PairJoiner::put_open(const Pair &pair, const End &end, std::int64_t index) {
    const TransferCall *call = at(end.calls, index);
    if (call == nullptr)
        ++unknown_; // further ahead than is remembered
    else
        open_[pair] = {end.calls.is_send, end.node, *call};
}

void PairJoiner::settle(const Pair &pair, const End &send, const End &receive,
                        std::int64_t offset) {
    const auto n_sends = static_cast<std::int64_t>(send.calls.n);
    const auto n_receives = static_cast<std::int64_t>(receive.calls.n);
    if (n_receives + offset < n_sends)
        put_open(pair, send, n_receives + offset);
    else if (n_receives + offset > n_sends)
        put_open(pair, receive, n_sends - offset);
    if (send.node == receive.node || clocks_.size() >= MOST_CLOCKS)
        return;
    std::vector<std::int64_t> apart_ns;
    for (std::size_t i = 0; i < receive.calls.last.size(); ++i) {
        const TransferCall *sent =
            at(send.calls, first_index(receive.calls) + static_cast<std::int64_t>(i) + offset);
        if (sent != nullptr)
            apart_ns.push_back(
                static_cast<std::int64_t>(receive.calls.last[i].realtime_ns - sent->realtime_ns));
    }
    if (apart_ns.empty())
        return;
    const auto middle = apart_ns.begin() + static_cast<std::ptrdiff_t>(apart_ns.size() / 2);
    std::ranges::nth_element(apart_ns, middle);
    clocks_.push_back({send.node, receive.node, *middle});
}

void PairJoiner::finish(const CommonTime &common_ns) {
    const auto is_recorded = [this](std::int32_t rank) { return from_creation_.contains(rank); };
    for (const auto &[pair, send] : sends_) {
        const auto receive = receives_.find(pair);
        if (receive == receives_.end()) {
            if (!is_recorded(pair.second))
                continue;
            if (from_creation_.at(pair.first) && from_creation_.at(pair.second))
                put_open(pair, send, 0);
            else
                ++unknown_;
            continue;
        }
        if (const auto offset = by_time(send, receive->second, common_ns))
            settle(pair, send, receive->second, *offset);
        else
            ++unknown_;
    }
    for (const auto &[pair, receive] : receives_) {
        if (sends_.contains(pair) || !is_recorded(pair.first))
            continue;
        if (from_creation_.at(pair.first) && from_creation_.at(pair.second))
            put_open(pair, receive, 0);
        else
            ++unknown_;
    }
    sends_.clear();
    receives_.clear();
}

} // namespace collwire::stream
