// SPDX-License-Identifier: Apache-2.0
#include "correlate/diagnose/ends.h"

namespace collwire::diagnose {
namespace {

// For a transfer, or for a connection with no operation in flight.
template <typename T> Way way_of(const T &end) {
    return end.is_send ? Way{end.rank, end.peer, end.channel, end.conn_index}
                       : Way{end.peer, end.rank, end.channel, end.conn_index};
}

} // namespace

Ends ends_of(const Communicator &comm) {
    Ends ends;
    for (const Rank &rank : comm.ranks) {
        if (rank.proxy == nullptr)
            continue;
        for (const inspect::Operation &operation : rank.proxy->operations)
            for (const inspect::Transfer &transfer : operation.transfers)
                if (operation.is_begun && transfer.peer >= 0 && transfer.rank >= 0)
                    (transfer.is_send ? ends.sends : ends.receives)[way_of(transfer)].push_back(
                        {&operation, &transfer});
        for (const inspect::IdleConnection &idle : rank.proxy->idle)
            (idle.is_send ? ends.sent : ends.received).insert_or_assign(way_of(idle), idle.steps);
    }
    return ends;
}

bool are_in_one_place(const End &send, const End &receive) {
    const inspect::Transfer &a = *send.transfer, &b = *receive.transfer;
    return a.base < b.base + b.nsteps && b.base < a.base + a.nsteps;
}

} // namespace collwire::diagnose
