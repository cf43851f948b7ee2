// SPDX-License-Identifier: Apache-2.0
// Connections of operations that NCCL gives to another rank's proxy (PXN). They lie in that rank's
// process, which has no operation on them: nothing there tells of them. They are read from the
// outside when the first operation on them is seen.
#include <algorithm>

#include "base/clock.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/memory/proxies.h"
#include "userspace/sources/nccl/source.h"

namespace collwire {
namespace {

// The proxy's communicator may be told of later than an operation for it.
constexpr unsigned MAX_LOOKS = 5;
constexpr std::size_t MAX_ELSEWHERE = 4096; // at once; what is beyond has no bytes

} // namespace

void NcclSource::note_elsewhere(const cw_nccl_shape_ops &record) {
    const auto found = comms_.find({record.tgid, record.comm});
    if (found == comms_.end())
        return;
    const auto n = std::min<std::uint32_t>(record.n, CW_NCCL_SHAPE_OPS);
    for (std::uint32_t i = 0; i < n; ++i) {
        const cw_nccl_op &op = record.ops[i];
        if ((op.flags & CW_NCCL_OP_OTHER_PROXY) == 0 || op.connection == 0 ||
            elsewhere_.size() >= MAX_ELSEWHERE ||
            !found->second.elsewhere.insert(op.connection).second)
            continue;
        elsewhere_.push_back({found->first, op.connection, record.proxy_indices[i]});
        if (read_elsewhere(elsewhere_.back()))
            elsewhere_.pop_back();
    }
}

void NcclSource::look_elsewhere() {
    std::erase_if(elsewhere_, [this](Elsewhere &connection) {
        return read_elsewhere(connection) || ++connection.looks >= MAX_LOOKS;
    });
}

// True: it is told of, or there is nothing to tell any more.
bool NcclSource::read_elsewhere(const Elsewhere &wanted) {
    const auto found = comms_.find(wanted.comm);
    if (found == comms_.end())
        return true;
    std::vector<cw_nccl_comm> comms;
    for (const auto &[key, comm] : comms_)
        comms.push_back(comm.record);
    const cw_nccl_comm &own = found->second.record;
    const NcclImage *image = images_.find(own.image_id);
    if (image == nullptr)
        return true;
    const bool by_rank = image->plan.offsets.contains("ncclProxyState.peerArraySize");
    const auto proxy = nccl::proxy_of(comms, own, wanted.proxy_index, by_rank);
    if (!proxy)
        return false;
    const auto pid = static_cast<pid_t>(proxy->comm.tgid);
    ProcessView view{pid};
    if (!view.refresh())
        return true; // it has ended
    for (const Mapping &mapping : view.mappings()) {
        const NcclImage *mapped = mapping.executable ? images_.image_of(pid, mapping) : nullptr;
        if (mapped == nullptr || mapped->id != proxy->comm.image_id)
            continue;
        const auto layout = nccl::layout_of_plan(mapped->plan, mapped->id);
        const auto bias = nccl::load_bias(mapped->plan, mapping);
        if (!layout || !bias)
            continue;
        const auto connections = nccl::read_connection(view, mapped->plan, *layout, *bias,
                                                       proxy->comm.proxy_state, wanted.connection);
        bool is_told = false;
        for (cw_nccl_connection connection : connections) {
            if (connection.rank != proxy->rank || (connection.flags & CW_NCCL_CONNECTION_SEND) == 0)
                continue;
            connection.header = {sizeof(connection), CW_KIND_NCCL_CONNECTION, CW_CPU_USERSPACE,
                                 monotonic_ns()};
            connection.tgid = proxy->comm.tgid;
            const auto *at = reinterpret_cast<const std::byte *>(&connection);
            fresh_.emplace_back(at, at + sizeof(connection));
            keep(wanted.comm, connection);
            watch_steps(connection, wanted.comm);
            if (options_.on_connection)
                options_.on_connection(connection.header);
            is_told = true;
        }
        return is_told;
    }
    return false;
}

} // namespace collwire
