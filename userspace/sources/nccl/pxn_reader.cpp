// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/pxn_reader.h"

#include <algorithm>

#include "base/clock.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/nccl/memory/live_comms.h"
#include "userspace/nccl/memory/proxies.h"

namespace collwire::sources {
namespace {

// The proxy's communicator may be emitted later than an operation for it.
constexpr unsigned MAX_TRIES = 5;
constexpr std::size_t MAX_WANTED = 4096; // connections beyond it have no bytes

} // namespace

void PxnReader::on_operations(const cw_nccl_shape_ops &record) {
    const CommAddress address = {record.tgid, record.comm};
    if (comms_.find(address) == nullptr)
        return;
    const auto n = std::min<std::uint32_t>(record.n, CW_NCCL_SHAPE_OPS);
    for (std::uint32_t i = 0; i < n; ++i) {
        const cw_nccl_op &op = record.ops[i];
        if ((op.flags & CW_NCCL_OP_OTHER_PROXY) == 0 || op.connection == 0 ||
            wanted_.size() >= MAX_WANTED || !comms_.add_pxn_connection(address, op.connection))
            continue;
        const Wanted wanted = {address, op.connection, record.proxy_indices[i]};
        if (!read(wanted))
            wanted_.push_back(wanted);
    }
}

void PxnReader::poll() {
    std::erase_if(wanted_,
                  [this](Wanted &wanted) { return read(wanted) || ++wanted.tries >= MAX_TRIES; });
}

bool PxnReader::read(const Wanted &wanted) {
    const cw_nccl_comm *own = comms_.find(wanted.comm);
    if (own == nullptr)
        return true;
    const NcclLibrary *library = libraries_.find(own->image_id);
    if (library == nullptr || !library->bpf_layout)
        return true;
    const std::vector<cw_nccl_comm> comms = comms_.all();
    const auto n_lists = nccl::count_lists(process::ProcessView{static_cast<pid_t>(own->tgid)},
                                           *library->bpf_layout, own->proxy_state);
    const auto proxy = nccl::proxy_of(comms, *own, wanted.proxy_index, n_lists);
    if (!proxy)
        return false;
    const auto pid = static_cast<pid_t>(proxy->comm.tgid);
    process::ProcessView view{pid};
    if (!view.refresh())
        return true; // it has exited
    for (const process::Mapping &mapping : view.mappings()) {
        const NcclLibrary *mapped =
            mapping.executable ? libraries_.library_of(pid, mapping) : nullptr;
        if (mapped == nullptr || mapped->id != proxy->comm.image_id)
            continue;
        const auto bias = nccl::load_bias(mapped->layout, mapping);
        if (!mapped->bpf_layout || !bias)
            continue;
        const auto connections =
            nccl::read_connection(view, mapped->layout, *mapped->bpf_layout, *bias,
                                  proxy->comm.proxy_state, wanted.connection);
        bool is_found = false;
        for (cw_nccl_connection connection : connections) {
            if (connection.rank != proxy->rank || (connection.flags & CW_NCCL_CONNECTION_SEND) == 0)
                continue;
            connection.header = {sizeof(connection), CW_KIND_NCCL_CONNECTION, CW_CPU_USERSPACE,
                                 monotonic_ns()};
            connection.tgid = proxy->comm.tgid;
            on_connection_(wanted.comm, connection);
            is_found = true;
        }
        return is_found;
    }
    return false;
}

} // namespace collwire::sources
