// SPDX-License-Identifier: Apache-2.0
#include "collwire/nccl_layout.h"
#include "collwire/record_kinds.h"
// After it: the skeleton names its type.
#include "nccl.skel.h"

#include "userspace/sources/nccl/unread_memory.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "collwire/nccl_tables.h"
#include "userspace/nccl/memory/live_comms.h"
#include "userspace/nccl/memory/proxies.h"
#include "userspace/sources/nccl/read_names.h"

namespace collwire::sources {
namespace {

// One launch may meet a page that is just being moved.
constexpr std::uint64_t FEWEST_UNREAD = 2;
constexpr unsigned MAX_TRIES = 30; // intervals
constexpr std::size_t MAX_WANTED = 4096;
constexpr std::size_t MAX_ENDED = 8;

std::string problem_of(const cw_nccl_comm &comm, const cw_nccl_comm_entry &entry,
                       std::optional<std::uint64_t> unreadable) {
    return fmt::format("communicator {:#x} rank {} of process {}: its launches are not read ({} at "
                       "{:#x}: {}), so their operations are missing and their bytes are `process`. "
                       "Fix: {}",
                       comm.comm_hash, comm.rank, comm.tgid, read_name(entry.unread),
                       unreadable.value_or(entry.unread_at),
                       unreadable ? "cannot be read" : "was not in memory, is fetched",
                       unreadable ? "collwire doctor --nccl FILE" : "wait for \"resolved\"");
}

std::optional<std::uint64_t> load_bias_in(const NcclLibraries &libraries,
                                          const NcclLibrary &library,
                                          const process::ProcessView &view) {
    for (const process::Mapping &mapping : view.mappings())
        if (mapping.executable && libraries.library_of(view.pid(), mapping) == &library)
            if (const auto bias = nccl::load_bias(library.layout, mapping))
                return bias;
    return std::nullopt;
}

} // namespace

void UnreadMemory::fetch_all() const {
    for (const cw_nccl_comm &comm : comms_.all()) {
        const NcclLibrary *library = libraries_.find(comm.image_id);
        if (library != nullptr && library->bpf_layout)
            (void)nccl::fetch_proxies(process::ProcessView{static_cast<pid_t>(comm.tgid)},
                                      *library->bpf_layout, comm.comm);
    }
}

void UnreadMemory::add(const CommAddress &address, const cw_nccl_connection &connection) {
    const bool is_known = std::ranges::any_of(wanted_, [&](const Wanted &wanted) {
        return wanted.comm == address && wanted.connection == connection.connection;
    });
    if (!is_known && wanted_.size() < MAX_WANTED)
        wanted_.push_back({address, connection.connection});
}

void UnreadMemory::poll() {
    for (const cw_nccl_comm &comm : comms_.all())
        poll(comm);
    std::erase_if(wanted_,
                  [this](Wanted &wanted) { return read(wanted) || ++wanted.tries >= MAX_TRIES; });
}

void UnreadMemory::poll(const cw_nccl_comm &comm) {
    const CommAddress address = {comm.tgid, comm.comm};
    const NcclLibrary *library = libraries_.find(comm.image_id);
    if (library == nullptr || !library->programs || !library->bpf_layout)
        return;
    const cw_nccl_comm_key key = {comm.comm, comm.tgid, 0};
    cw_nccl_comm_entry entry = {};
    if (bpf_map_lookup_elem(bpf_map__fd((*library->programs)->maps.comms), &key, &entry) != 0)
        return; // it has ended: its record follows
    if (entry.n_unread == 0) {
        unread_.erase(address);
        return;
    }
    const process::ProcessView view{static_cast<pid_t>(comm.tgid)};
    auto unreadable = nccl::fetch_proxies(view, *library->bpf_layout, comm.comm);
    if (entry.unread_at != 0 && !view.read<std::uint32_t>(entry.unread_at))
        unreadable = entry.unread_at;
    if (entry.n_unread >= FEWEST_UNREAD)
        unread_.insert_or_assign(address, problem_of(comm, entry, unreadable));
}

bool UnreadMemory::read(const Wanted &wanted) {
    const cw_nccl_comm *comm = comms_.find(wanted.comm);
    const NcclLibrary *library = comm == nullptr ? nullptr : libraries_.find(comm->image_id);
    if (library == nullptr || !library->bpf_layout || !library->programs)
        return true;
    process::ProcessView view{static_cast<pid_t>(comm->tgid)};
    if (!view.refresh())
        return true; // it has exited
    const auto bias = load_bias_in(libraries_, *library, view);
    if (!bias)
        return false;
    auto connections = nccl::read_connection(view, library->layout, *library->bpf_layout, *bias,
                                             comm->proxy_state, wanted.connection);
    if (connections.empty() || std::ranges::any_of(connections, [](const auto &connection) {
            return (connection.flags & CW_NCCL_CONNECTION_FAULT) != 0;
        }))
        return false;
    const cw_nccl_connection_key key = {wanted.connection, comm->header.time_ns, comm->tgid, 0};
    const std::uint8_t all = CW_NCCL_CONNECTION_EMITTED;
    (void)bpf_map_update_elem(bpf_map__fd((*library->programs)->maps.connections), &key, &all,
                              BPF_ANY);
    for (cw_nccl_connection &connection : connections) {
        connection.header = {sizeof(connection), CW_KIND_NCCL_CONNECTION, CW_CPU_USERSPACE,
                             monotonic_ns()};
        connection.tgid = wanted.comm.tgid;
        connection.comm = wanted.comm.comm;
        on_connection_(wanted.comm, connection);
    }
    return true;
}

void UnreadMemory::remove(const CommAddress &address) {
    if (const auto found = unread_.find(address); found != unread_.end()) {
        if (ended_.size() < MAX_ENDED)
            ended_.push_back(std::move(found->second));
        unread_.erase(found);
    }
    std::erase_if(wanted_, [&](const Wanted &wanted) { return wanted.comm == address; });
}

void UnreadMemory::remove_all(std::uint32_t tgid) {
    std::vector<CommAddress> addresses;
    for (const auto &[address, problem] : unread_)
        if (address.tgid == tgid)
            addresses.push_back(address);
    for (const CommAddress &address : addresses)
        remove(address);
    std::erase_if(wanted_, [tgid](const Wanted &wanted) { return wanted.comm.tgid == tgid; });
}

std::vector<std::string> UnreadMemory::problems() const {
    std::vector<std::string> all = ended_;
    for (const auto &[address, problem] : unread_)
        all.push_back(problem);
    return all;
}

} // namespace collwire::sources
