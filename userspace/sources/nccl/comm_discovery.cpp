// SPDX-License-Identifier: Apache-2.0
#include "collwire/nccl_layout.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
// After it: the skeleton names its type.
#include "nccl.skel.h"

#include "userspace/sources/nccl/comm_discovery.h"

#include <set>
#include <utility>

#include <bpf/bpf.h>

#include "base/clock.h"
#include "collwire/nccl_tables.h"
#include "userspace/inventory/process.h"

namespace collwire::sources {

void CommDiscovery::scan(const std::vector<pid_t> &pids, std::uint32_t last_known) {
    nccl::CommCopies copies;
    for (const cw_nccl_comm &record : comms_.all())
        copies.add(record);
    for (const pid_t pid : nccl::ancestors_first(pids))
        scan(pid, last_known, copies);
}

void CommDiscovery::scan(pid_t pid, std::uint32_t last_known, nccl::CommCopies &copies) {
    process::ProcessView view{pid};
    if (!view.refresh())
        return;
    for (const process::Mapping &mapping : view.mappings()) {
        const NcclLibrary *library =
            mapping.executable ? libraries_.library_of(pid, mapping) : nullptr;
        if (library == nullptr || library->id <= last_known || !library->programs)
            continue;
        const auto &bpf_layout = library->bpf_layout;
        const auto bias = nccl::load_bias(library->layout, mapping);
        if (!bpf_layout || !bias)
            continue;
        nccl::LiveComms all = nccl::read_comms(view, library->layout, *bpf_layout, *bias);
        is_cut_ = is_cut_ || all.is_cut;
        for (nccl::LiveComm &live : all.comms) {
            live.comm.tgid = static_cast<std::uint32_t>(pid);
            live.comm.image_id = library->id;
            if (copies.is_copy(live.comm))
                continue; // the rank is its ancestor
            copies.add(live.comm);
            add(*library, live, [&] {
                return nccl::is_there(view, library->layout, *bpf_layout, *bias, live.comm);
            });
        }
    }
}

void CommDiscovery::add(const NcclLibrary &library, nccl::LiveComm &live,
                        const std::function<bool()> &is_there) {
    cw_nccl_comm &comm = live.comm;
    const std::uint32_t tgid = comm.tgid;
    const auto start_ns = inventory::process_start_ns("", tgid);
    if (!start_ns)
        return;
    const std::uint64_t now_ns = monotonic_ns();
    comm.header = {sizeof(comm), CW_KIND_NCCL_COMM, CW_CPU_USERSPACE, now_ns};
    comm.start_boottime_ns = *start_ns;
    const CommAddress address = {tgid, comm.comm};
    const cw_nccl_comm_key in_map = {comm.comm, tgid, 0};
    const int comms = bpf_map__fd((*library.programs)->maps.comms);
    cw_nccl_comm_entry entry = {};
    entry.generation_ns = now_ns;
    entry.proxy_state = comm.proxy_state;
    if (bpf_map_update_elem(comms, &in_map, &entry, BPF_NOEXIST) == 0) {
        // The programs emit its end from here on. It may have ended before.
        if (!is_there()) {
            (void)bpf_map_delete_elem(comms, &in_map);
            return;
        }
        discovered_.comm(comm);
        add_connections(library, address, live.connections);
        return;
    }
    // The programs saw its creation or a call meanwhile. They emit the communicator, and none of
    // its connections.
    if (bpf_map_lookup_elem(comms, &in_map, &entry) != 0)
        return; // it has ended
    const cw_nccl_comm *known = comms_.find(address);
    if (known == nullptr || known->header.time_ns != entry.generation_ns)
        waiting_[address] = {entry.generation_ns, comm.comm_hash, comm.rank,
                             std::move(live.connections)};
    else if (known->comm_hash == comm.comm_hash && known->rank == comm.rank)
        add_connections(library, address, live.connections);
}

void CommDiscovery::on_comm(const cw_nccl_comm &record) {
    const CommAddress address = {record.tgid, record.comm};
    const auto found = waiting_.find(address);
    const NcclLibrary *library = libraries_.find(record.image_id);
    if (found == waiting_.end() || library == nullptr || !library->programs)
        return;
    Waiting &waiting = found->second;
    if (waiting.generation_ns != 0 && waiting.generation_ns != record.header.time_ns)
        return; // an earlier one at this address
    if (waiting.comm_hash == record.comm_hash && waiting.rank == record.rank)
        add_connections(*library, address, waiting.connections);
    waiting_.erase(found);
}

void CommDiscovery::forget(std::uint32_t tgid) {
    std::erase_if(waiting_, [tgid](const auto &each) { return each.first.tgid == tgid; });
}

// The connections that neither the programs emitted nor the registry has. The programs emit none of
// these from here on.
void CommDiscovery::add_connections(const NcclLibrary &library, const CommAddress &address,
                                    std::vector<cw_nccl_connection> &connections) {
    const cw_nccl_comm *comm = comms_.find(address);
    if (comm == nullptr)
        return;
    const std::uint64_t generation_ns = comm->header.time_ns;
    const int emitted = bpf_map__fd((*library.programs)->maps.connections);
    const std::uint64_t now_ns = monotonic_ns();
    std::set<std::uint64_t> added;
    for (cw_nccl_connection &connection : connections) {
        const cw_nccl_connection_key in_map = {connection.connection, generation_ns, address.tgid,
                                               0};
        std::uint8_t tries = 0;
        const bool is_emitted = bpf_map_lookup_elem(emitted, &in_map, &tries) == 0 &&
                                tries >= CW_NCCL_CONNECTION_EMITTED;
        const bool is_known = comms_.has_connection(address, connection);
        if ((is_emitted || is_known) && !added.contains(connection.connection))
            continue;
        added.insert(connection.connection); // its other endpoints are in records of their own
        connection.header = {sizeof(connection), CW_KIND_NCCL_CONNECTION, CW_CPU_USERSPACE, now_ns};
        connection.tgid = address.tgid;
        discovered_.connection(address, connection);
        const std::uint8_t all = CW_NCCL_CONNECTION_EMITTED;
        if ((connection.flags & CW_NCCL_CONNECTION_FAULT) == 0)
            (void)bpf_map_update_elem(emitted, &in_map, &all, BPF_ANY);
    }
}

} // namespace collwire::sources
