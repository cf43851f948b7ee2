// SPDX-License-Identifier: Apache-2.0
// Inspections as they would be read of ranks, for tests of what is made of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "correlate/inspect/inspection.h"
#include "correlate/inspect/waits.h"

namespace collwire::test {

inline inspect::Transfer send_to(std::int32_t rank, std::int32_t peer, inspect::Progress at,
                                 inspect::Slot slot = inspect::Slot::Empty) {
    inspect::Transfer transfer;
    transfer.is_send = true;
    transfer.rank = rank;
    transfer.peer = peer;
    transfer.channel = 0;
    transfer.conn_index = 0;
    transfer.connection = 0x1000U + static_cast<std::uint64_t>(peer);
    transfer.transport = "NET/IB";
    transfer.nsteps = 48;
    transfer.first = transfer.last = at;
    transfer.was_there = true;
    transfer.slot = slot;
    return transfer;
}

inline inspect::Transfer receive_from(std::int32_t rank, std::int32_t peer, inspect::Progress at,
                                      std::uint64_t taken = 0) {
    inspect::Transfer transfer = send_to(rank, peer, at);
    transfer.is_send = false;
    transfer.slot = inspect::Slot::Unknown;
    transfer.connection += 0x1000;
    transfer.taken = taken;
    return transfer;
}

inline inspect::Operation all_reduce(std::vector<inspect::Transfer> transfers) {
    inspect::Operation operation;
    operation.address = 0x100;
    operation.function = "AllReduce";
    operation.algorithm = "RING";
    operation.protocol = "SIMPLE";
    operation.datatype = "ncclFloat32";
    operation.reduction = "ncclSum";
    operation.pattern = "RingTwice";
    operation.is_begun = true;
    operation.transfers = std::move(transfers);
    return operation;
}

// One process with one rank of a communicator, on a host of its own.
inline inspect::Inspection one_rank(std::int32_t rank, std::int32_t n_ranks, std::uint64_t launched,
                                    std::vector<inspect::Operation> operations) {
    inspect::Inspection inspection;
    inspection.host = "node" + std::to_string(rank);
    inspection.boot_id = inspection.host;
    inspection.realtime_ns = 1'700'000'000'000'000'000;
    inspection.between_ns = 200'000'000;
    inspect::Process process;
    process.pid = 100 + static_cast<std::uint32_t>(rank);
    process.start_ticks = 5;
    process.command = "python3 train.py";
    inspect::Communicator comm;
    comm.address = 0xc0de;
    comm.hash = 0x1122334455667788;
    comm.name = "dp";
    comm.rank = rank;
    comm.n_ranks = n_ranks;
    comm.proxy_state = 0xabc0;
    comm.launched = launched;
    comm.launched_by_function = {0, 0, 0, 0, launched};
    comm.async_result = "ncclSuccess";
    process.communicators.push_back(std::move(comm));
    inspect::Proxy proxy;
    proxy.address = 0xabc0;
    proxy.rank = rank;
    proxy.operations = std::move(operations);
    process.proxies.push_back(std::move(proxy));
    inspect::Thread main;
    main.tid = process.pid;
    main.name = "python3";
    main.role = "main";
    main.state = 'S';
    main.wait_channel = "futex_wait_queue";
    process.threads.push_back(std::move(main));
    process.n_threads = 9;
    inspection.processes.push_back(std::move(process));
    inspect::judge(inspection);
    return inspection;
}

} // namespace collwire::test
