// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/operation_tracker.h"

#include <algorithm>

namespace collwire::stream {
namespace {

bool is_transfer(std::uint8_t func) {
    return func == CW_NCCL_SEND || func == CW_NCCL_RECV;
}

} // namespace

void OperationTracker::take_call(Operation &operation, const RankCall &call) const {
    if (operation.calls++ == 0) {
        operation.func = call.func;
        operation.count = call.count;
        operation.datatype = call.datatype;
        operation.root = call.root;
        operation.reduction = call.reduction;
        operation.first_call_ns = call.realtime_ns;
    } else if (!is_transfer(call.func) &&
               (operation.func != call.func || operation.datatype != call.datatype ||
                operation.root != call.root ||
                (operation.count != call.count && call.func != CW_NCCL_ALL_GATHER_V))) {
        operation.differs = true;
    }
    if (call.is_number_guessed)
        operation.lacks |= NUMBER_GUESSED;
    operation.first_call_ns = std::min(operation.first_call_ns, call.realtime_ns);
    if (call.realtime_ns >= operation.last_call_ns) {
        operation.last_call_ns = call.realtime_ns;
        operation.last_rank = call.rank;
    }
}

void OperationTracker::take_launch(Open &open, std::uint64_t realtime_ns, const TaskBytes *bytes) {
    Operation &operation = open.operation;
    ++operation.launches;
    operation.first_launch_ns = operation.first_launch_ns == 0
                                    ? realtime_ns
                                    : std::min(operation.first_launch_ns, realtime_ns);
    operation.last_launch_ns = std::max(operation.last_launch_ns, realtime_ns);
    if (bytes == nullptr)
        ++open.without_bytes;
    else
        take_bytes(operation, *bytes);
}

void OperationTracker::take_bytes(Operation &operation, const TaskBytes &bytes) {
    if (!bytes.is_known)
        operation.lacks |= LACKS_BYTES;
    operation.payload_bytes += bytes.payload_bytes;
    operation.data_bytes += bytes.data_bytes;
    operation.messages += bytes.messages;
    if (bytes.is_bound)
        operation.lacks |= HAS_BOUND;
    if (operation.algorithm == CW_NCCL_ALGORITHM_UNKNOWN)
        operation.algorithm = bytes.algorithm;
    if (operation.protocol == CW_NCCL_PROTOCOL_UNKNOWN)
        operation.protocol = bytes.protocol;
}

OperationTracker::Open *OperationTracker::at(std::uint64_t number) {
    if (!is_based_) {
        is_based_ = true;
        base_ = number;
    }
    // A rank that is behind from the start.
    if (!has_closed_ && number < base_ && open_.size() + (base_ - number) <= HORIZON_OPERATIONS)
        while (base_ > number)
            open_.emplace_front().operation.number = --base_;
    if (number < base_)
        return nullptr;
    while (number - base_ >= HORIZON_OPERATIONS && !open_.empty())
        cut_first();
    if (open_.empty() && number > base_ + HORIZON_OPERATIONS)
        base_ = number;
    while (base_ + open_.size() <= number) {
        const std::uint64_t next = base_ + open_.size();
        open_.emplace_back().operation.number = next;
    }
    return &open_[number - base_];
}

void OperationTracker::called(std::uint64_t number, const RankCall &call) {
    Open *open = at(number);
    if (open == nullptr) {
        ++late_calls_;
        return;
    }
    if (open->operation.calls == 0) {
        open->first_ns = call.time_ns;
        open->node = call.node;
    }
    take_call(open->operation, call);
    const std::uint32_t expected = waits_.expected_calls();
    called_by_all_ = std::max(called_by_all_, base_);
    while (called_by_all_ - base_ < open_.size() &&
           open_[called_by_all_ - base_].operation.calls >= expected)
        ++called_by_all_;
    // Numbers without a call come before an operation whose ranks lag.
    const auto is_behind = [&](const Open &first) {
        return first.operation.calls == 0 ||
               (first.node == call.node && first.first_ns + HORIZON_NS < call.time_ns);
    };
    while (!open_.empty() && is_behind(open_.front()))
        cut_first();
}

void OperationTracker::mark(RankProgress &of, std::uint64_t number, std::uint64_t time_ns) const {
    of.next = number + 1;
    of.is_awaited = true;
    if (of.collective.number == CallMark::NONE || of.collective.number < called_by_all_)
        of.collective = {number, 0, time_ns};
}

void OperationTracker::mark_transfer(RankProgress &of, std::uint64_t pair, std::uint64_t number,
                                     std::uint64_t time_ns) {
    of.is_awaited = true;
    ++of.transfers;
    if (of.transfer.number != CallMark::NONE &&
        (of.transfer.time_ns + RankWaits::AHEAD_NS / 2 > time_ns || lacks_end(of.transfer)))
        return;
    of.transfer = {number, pair, time_ns};
    of.transfers = 0;
}

bool OperationTracker::lacks_end(const CallMark &transfer) const {
    const auto pair = pairs_.find(transfer.pair);
    return pair != pairs_.end() && transfer.number >= pair->second.base &&
           transfer.number - pair->second.base < pair->second.open.size() &&
           pair->second.open[transfer.number - pair->second.base].operation.calls < 2;
}

std::optional<RankWait> OperationTracker::find_wait(std::int32_t rank, RankProgress &of,
                                                    std::uint64_t now_ns) {
    const auto is_old = [&](const CallMark &call) {
        return call.time_ns + RankWaits::AHEAD_NS < now_ns;
    };
    std::optional<RankWait> wait;
    if (CallMark &call = of.collective;
        call.number != CallMark::NONE && of.is_numbered &&
        (is_old(call) || of.next > call.number + RankWaits::AHEAD_OPERATIONS)) {
        if (call.number >= std::max(called_by_all_, base_))
            wait = waits_.lacking(call.number, of.node);
        if (wait) {
            wait->call = call;
            wait->tracker = this;
            return wait;
        }
        call.number = CallMark::NONE;
    }
    if (CallMark &call = of.transfer; call.number != CallMark::NONE &&
                                      (is_old(call) || of.transfers > RankWaits::AHEAD_TRANSFERS)) {
        const auto source = static_cast<std::int32_t>(call.pair >> 32);
        const auto destination = static_cast<std::int32_t>(call.pair & UINT32_MAX);
        if (lacks_end(call))
            wait = waits_.lacking_peer(source == rank ? destination : source, of.node);
        if (wait) {
            wait->call = call;
            wait->is_transfer = true;
            wait->tracker = this;
            return wait;
        }
        call.number = CallMark::NONE;
    }
    return wait;
}

bool OperationTracker::is_waiting(const RankWait &wait) const {
    if (wait.is_transfer ? !lacks_end(wait.call) : wait.call.number < base_)
        return false;
    return waits_.is_lacking(wait);
}

void OperationTracker::launched(std::uint64_t number, std::uint64_t realtime_ns,
                                const TaskBytes *bytes) {
    if (number >= base_ && number - base_ < open_.size())
        take_launch(open_[number - base_], realtime_ns, bytes);
}

void OperationTracker::add_bytes(std::uint64_t number, const TaskBytes &bytes) {
    if (number < base_ || number - base_ >= open_.size())
        return;
    take_bytes(open_[number - base_].operation, bytes);
    --open_[number - base_].without_bytes;
}

void OperationTracker::settled(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t number = std::max(from, base_); number < to && number - base_ < open_.size();
         ++number)
        ++open_[number - base_].settled;
    close_ready();
}

void OperationTracker::close_ready() {
    while (!open_.empty() &&
           open_.front().settled >= static_cast<std::uint32_t>(communicator_.n_ranks))
        close_first();
}

void OperationTracker::close_first() {
    has_closed_ = true;
    close(open_.front());
    open_.pop_front();
    ++base_;
}

void OperationTracker::cut_first() {
    cut_ += open_.front().operation.calls == 0 ? 0 : 1;
    close_first();
}

void OperationTracker::close(Open &open) {
    Operation &operation = open.operation;
    if (operation.calls == 0)
        return; // a number between those of other ranks
    const std::uint32_t expected =
        operation.source >= 0 ? 2U : static_cast<std::uint32_t>(communicator_.n_ranks);
    if (operation.calls < expected)
        operation.lacks |= LACKS_RANKS;
    if (open.without_bytes != 0)
        operation.lacks |= LACKS_BYTES;
    if (open.settled < operation.calls)
        operation.lacks |= LACKS_LAUNCH;
    sink_(communicator_, operation);
}

std::uint64_t OperationTracker::pair_of(const RankCall &call) {
    const bool sends = call.func == CW_NCCL_SEND;
    const auto source = static_cast<std::uint32_t>(sends ? call.rank : call.root);
    const auto destination = static_cast<std::uint32_t>(sends ? call.root : call.rank);
    return std::uint64_t{source} << 32 | destination;
}

OperationTracker::Open *OperationTracker::transfer_at(std::uint64_t key, std::uint64_t number) {
    Pair &pair = pairs_[key];
    if (number < pair.base)
        return nullptr;
    while (number - pair.base >= HORIZON_TRANSFERS && !pair.open.empty()) {
        ++cut_;
        close(pair.open.front());
        pair.open.erase(pair.open.begin());
        ++pair.base;
    }
    if (pair.open.empty() && number > pair.base + HORIZON_TRANSFERS)
        pair.base = number;
    while (pair.base + pair.open.size() <= number) {
        const std::uint64_t next = pair.base + pair.open.size();
        Operation &operation = pair.open.emplace_back().operation;
        operation.number = next;
        operation.source = static_cast<std::int32_t>(key >> 32);
        operation.destination = static_cast<std::int32_t>(key & UINT32_MAX);
    }
    return &pair.open[number - pair.base];
}

void OperationTracker::transfer_called(std::uint64_t pair, std::uint64_t number,
                                       const RankCall &call) {
    Open *open = transfer_at(pair, number);
    if (open == nullptr)
        ++late_calls_;
    else
        take_call(open->operation, call);
}

void OperationTracker::transfer_launched(std::uint64_t pair, std::uint64_t number,
                                         std::uint64_t realtime_ns, const TaskBytes *bytes) {
    if (Open *open = transfer_at(pair, number); open != nullptr)
        take_launch(*open, realtime_ns, bytes);
}

void OperationTracker::add_transfer_bytes(std::uint64_t key, std::uint64_t number,
                                          const TaskBytes &bytes) {
    const auto pair = pairs_.find(key);
    if (pair == pairs_.end() || number < pair->second.base ||
        number - pair->second.base >= pair->second.open.size())
        return;
    Open &open = pair->second.open[number - pair->second.base];
    take_bytes(open.operation, bytes);
    --open.without_bytes;
}

void OperationTracker::transfer_settled(std::uint64_t key, std::uint64_t number) {
    Open *open = transfer_at(key, number);
    if (open == nullptr)
        return;
    const std::uint32_t ends = open->operation.source == open->operation.destination ? 2U : 1U;
    open->settled += ends;
    Pair &pair = pairs_[key];
    while (!pair.open.empty() && pair.open.front().settled >= 2) {
        close(pair.open.front());
        pair.open.erase(pair.open.begin());
        ++pair.base;
    }
}

void OperationTracker::flush() {
    while (!open_.empty())
        close_first();
    for (auto &[key, pair] : pairs_) {
        for (Open &open : pair.open)
            close(open);
        pair.base += pair.open.size();
        pair.open.clear();
    }
}

} // namespace collwire::stream
