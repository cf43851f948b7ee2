// SPDX-License-Identifier: Apache-2.0
// Communicators that processes had before their calls were seen, and their connections, out of the
// memory of these processes.
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_layout.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
// Behind it: the skeleton names its type.
#include "nccl.skel.h"

#include "userspace/sources/nccl/source.h"

#include <utility>

#include <bpf/bpf.h>

#include "base/clock.h"
#include "collwire/nccl_tables.h"
#include "userspace/inventory/process.h"
#include "userspace/nccl/layout/bpf_layout.h"

namespace collwire {

// The programs take them for known.
void NcclSource::look_into(const std::vector<pid_t> &pids, std::uint32_t last_known) {
    nccl::CommCopies copies;
    for (const auto &[key, comm] : comms_)
        copies.add(comm.record);
    for (const pid_t pid : nccl::ancestors_first(pids))
        look_into(pid, last_known, copies);
}

void NcclSource::look_into(pid_t pid, std::uint32_t last_known, nccl::CommCopies &copies) {
    ProcessView view{pid};
    if (!view.refresh())
        return;
    for (const Mapping &mapping : view.mappings()) {
        NcclImage *image = mapping.executable ? images_.image_of(pid, mapping) : nullptr;
        if (image == nullptr || image->id <= last_known || !image->programs)
            continue;
        const auto layout = nccl::layout_of_plan(image->plan, image->id);
        const auto bias = nccl::load_bias(image->plan, mapping);
        if (!layout || !bias)
            continue;
        nccl::LiveComms all = nccl::read_comms(view, image->plan, *layout, *bias);
        is_cut_ = is_cut_ || all.is_cut;
        for (nccl::LiveComm &live : all.comms) {
            live.comm.tgid = static_cast<std::uint32_t>(pid);
            live.comm.image_id = image->id;
            if (copies.is_copy(live.comm))
                continue; // the rank is its ancestor
            copies.add(live.comm);
            add_outside(*image, live, [&] {
                return nccl::is_there(view, image->plan, *layout, *bias, live.comm);
            });
        }
    }
}

// What they have started since they were read is not told of: it counts as started before.
void NcclSource::begin() {
    for (auto &[key, comm] : comms_) {
        const NcclImage *image = images_.find(comm.record.image_id);
        const cw_nccl_layout *layout = image == nullptr ? nullptr : layout_of(*image);
        if (layout != nullptr)
            nccl::read_counts(ProcessView{static_cast<pid_t>(key.tgid)}, image->plan, *layout,
                              comm.record);
    }
}

void NcclSource::add_outside(const NcclImage &image, nccl::LiveComm &live,
                             const std::function<bool()> &is_there) {
    cw_nccl_comm &comm = live.comm;
    const std::uint32_t tgid = comm.tgid;
    const auto start_ns = process_start_ns("", tgid);
    if (!start_ns)
        return;
    const std::uint64_t now_ns = monotonic_ns();
    comm.header = {sizeof(comm), CW_KIND_NCCL_COMM, CW_CPU_USERSPACE, now_ns};
    comm.start_boottime_ns = *start_ns;
    const CommKey key = {tgid, comm.comm};
    const cw_nccl_comm_key in_map = {comm.comm, tgid, 0};
    const int comms = bpf_map__fd((*image.programs)->maps.comms);
    cw_nccl_comm_entry entry = {};
    entry.generation_ns = now_ns;
    entry.proxy_state = comm.proxy_state;
    if (bpf_map_update_elem(comms, &in_map, &entry, BPF_NOEXIST) == 0) {
        // From now on its end is told of. Before, it was not.
        if (!is_there()) {
            (void)bpf_map_delete_elem(comms, &in_map);
            return;
        }
        const auto *begin = reinterpret_cast<const std::byte *>(&comm);
        fresh_.emplace_back(begin, begin + sizeof(comm));
        on_comm(comm);
        tell_connections(image, key, live.connections);
        return;
    }
    // Its creation, or a call of it, was seen meanwhile, which tells of it but of no connection.
    if (bpf_map_lookup_elem(comms, &in_map, &entry) != 0)
        return; // it has ended
    const auto known = comms_.find(key);
    if (known == comms_.end() || known->second.record.header.time_ns != entry.generation_ns)
        waiting_[key] = {entry.generation_ns, comm.comm_hash, comm.rank,
                         std::move(live.connections)};
    else if (known->second.record.comm_hash == comm.comm_hash &&
             known->second.record.rank == comm.rank)
        tell_connections(image, key, live.connections);
}

void NcclSource::tell_waiting(const cw_nccl_comm &record) {
    const CommKey key = {record.tgid, record.comm};
    const auto found = waiting_.find(key);
    const NcclImage *image = images_.find(record.image_id);
    if (found == waiting_.end() || image == nullptr || !image->programs)
        return;
    Waiting &waiting = found->second;
    if (waiting.generation_ns != 0 && waiting.generation_ns != record.header.time_ns)
        return; // one that was at this address before
    if (waiting.comm_hash == record.comm_hash && waiting.rank == record.rank)
        tell_connections(*image, key, waiting.connections);
    waiting_.erase(found);
}

// Of a communicator that was told of: those that neither the programs have told of nor this has,
// and that the programs need not tell of from now on.
void NcclSource::tell_connections(const NcclImage &image, const CommKey &key,
                                  std::vector<cw_nccl_connection> &connections) {
    const auto found = comms_.find(key);
    if (found == comms_.end())
        return;
    Comm &comm = found->second;
    const int told = bpf_map__fd((*image.programs)->maps.connections);
    const std::uint64_t now_ns = monotonic_ns();
    std::set<std::uint64_t> told_here;
    for (cw_nccl_connection &connection : connections) {
        const cw_nccl_connection_key in_map = {connection.connection, comm.record.header.time_ns,
                                               key.tgid, 0};
        std::uint8_t tries = 0;
        const bool is_told =
            bpf_map_lookup_elem(told, &in_map, &tries) == 0 && tries >= CW_NCCL_CONNECTION_TOLD;
        const bool is_kept = comm.connections.contains({connection.connection, connection.first});
        if ((is_told || is_kept) && !told_here.contains(connection.connection))
            continue;
        told_here.insert(connection.connection); // its other endpoints are in records of their own
        connection.header = {sizeof(connection), CW_KIND_NCCL_CONNECTION, CW_CPU_USERSPACE, now_ns};
        connection.tgid = key.tgid;
        const auto *at = reinterpret_cast<const std::byte *>(&connection);
        fresh_.emplace_back(at, at + sizeof(connection));
        keep(key, connection);
        watch_steps(connection, key);
        if (options_.on_connection)
            options_.on_connection(connection.header);
        const std::uint8_t all = CW_NCCL_CONNECTION_TOLD;
        if ((connection.flags & CW_NCCL_CONNECTION_FAULT) == 0)
            (void)bpf_map_update_elem(told, &in_map, &all, BPF_ANY);
    }
}

} // namespace collwire
