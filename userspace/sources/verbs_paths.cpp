// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/verbs_paths.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"

namespace collwire::sources {
namespace {

constexpr std::uint32_t LEAST_MTU_BYTES = 256; // enum ib_mtu 1; each next one is the double
constexpr std::size_t PREFIX_BYTES = 8;        // of a GID

std::uint8_t mtu_of(std::uint32_t bytes) {
    std::uint8_t mtu = 1;
    while (LEAST_MTU_BYTES << mtu <= bytes)
        ++mtu;
    return mtu;
}

struct LocalEnd {
    const inventory::RdmaPort *port = nullptr;
    const cw_gid *gid = nullptr; // null: NCCL's memory does not have it, or two types have it
};

bool has(const inventory::RdmaPort &port, const source::QueuePairPath &path) {
    return std::ranges::any_of(port.gids, [&path](const cw_gid &gid) {
        return std::memcmp(gid.gid, path.local_gid.data(), sizeof(gid.gid)) == 0;
    });
}

const cw_gid *gid_of(const inventory::RdmaPort &port, const source::QueuePairPath &path) {
    const cw_gid *found = nullptr;
    for (const cw_gid &gid : port.gids) {
        if (std::memcmp(gid.gid, path.local_gid.data(), sizeof(gid.gid)) != 0)
            continue;
        if (path.local_gid_index >= 0 &&
            gid.gid_index != static_cast<std::uint32_t>(path.local_gid_index))
            continue;
        if (found != nullptr && found->type != gid.type)
            return nullptr;
        found = &gid;
    }
    return found;
}

std::optional<LocalEnd> local_end(const cw_qp_event &known, const source::QueuePairPath &path,
                                  const std::vector<inventory::RdmaDevice> &devices) {
    const auto device = std::ranges::find_if(devices, [&known](const auto &each) {
        return each.indexed && each.record.dev_index == known.key.dev_index;
    });
    if (device == devices.end())
        return std::nullopt;
    const std::uint32_t layer = path.is_ethernet ? CW_LINK_ETHERNET : CW_LINK_INFINIBAND;
    const bool is_gid_known = path.local_gid != decltype(path.local_gid){};
    std::optional<LocalEnd> found;
    for (const inventory::RdmaPort &port : device->ports) {
        if ((known.port != 0 && port.record.port != known.port) ||
            port.record.link_layer != layer || (is_gid_known && !has(port, path)))
            continue;
        if (found)
            return std::nullopt; // either port
        found = LocalEnd{&port, is_gid_known ? gid_of(port, path) : nullptr};
    }
    return found;
}

} // namespace

std::optional<cw_qp_event> with_path(const cw_qp_event &known, const source::QueuePairPath &path,
                                     const std::vector<inventory::RdmaDevice> &devices) {
    const auto local = local_end(known, path, devices);
    // On InfiniBand NCCL routes by LID inside a subnet, and with a global header between two.
    if (!local || (!path.is_ethernet &&
                   std::memcmp(path.local_gid.data(), path.remote_gid.data(), PREFIX_BYTES) != 0))
        return std::nullopt;
    cw_qp_event event = known;
    event.header = {sizeof(event), CW_KIND_QP_EXISTING, CW_CPU_USERSPACE, monotonic_ns()};
    event.tid = 0;
    event.attr_mask = 0;
    event.port = static_cast<std::uint8_t>(local->port->record.port);
    event.flags |= CW_QP_ADDRESS | CW_QP_PATH_MTU | CW_QP_FROM_NCCL;
    if (path.is_ethernet) {
        event.flags |= CW_QP_GRH;
        std::memcpy(event.dgid, path.remote_gid.data(), sizeof(event.dgid));
    }
    event.dlid = path.remote_lid;
    const std::uint32_t port_mtu_bytes = local->port->record.active_mtu_bytes;
    event.path_mtu = port_mtu_bytes == 0 ? path.mtu : std::min(path.mtu, mtu_of(port_mtu_bytes));
    if (local->gid != nullptr) {
        event.flags |= CW_QP_SGID;
        std::memcpy(event.sgid, local->gid->gid, sizeof(event.sgid));
        event.gid_type = static_cast<std::uint8_t>(local->gid->type);
        event.sgid_index = static_cast<std::uint8_t>(local->gid->gid_index);
    }
    return event;
}

void VerbsPaths::add(const cw_qp_event &existing) {
    if (existing.tgid != 0 && (existing.flags & CW_QP_DEST) != 0 &&
        (existing.flags & CW_QP_ADDRESS) == 0)
        lacking_[{existing.tgid, existing.key.qpn}].push_back(existing.key);
}

bool VerbsPaths::are_lacking(std::uint32_t tgid) const {
    const auto first = lacking_.lower_bound({tgid, 0});
    return first != lacking_.end() && first->first.first == tgid;
}

std::optional<cw_qp_event> VerbsPaths::take(const source::QueuePairPath &path,
                                            const KnownQps &known,
                                            const std::vector<inventory::RdmaDevice> &devices) {
    const auto found = lacking_.find({path.tgid, path.qpn});
    if (found == lacking_.end())
        return std::nullopt;
    std::vector<cw_qp_key> &keys = found->second;
    std::erase_if(keys, [&known](const cw_qp_key &key) {
        const auto qp = known.all().find(key);
        return qp == known.all().end() || (qp->second.flags & CW_QP_ADDRESS) != 0;
    });
    std::optional<cw_qp_event> event;
    for (const cw_qp_key &key : keys)
        if (const auto of_key = with_path(known.all().at(key), path, devices)) {
            if (event)
                return std::nullopt;
            event = of_key;
        }
    if (event)
        std::erase_if(keys,
                      [&event](const cw_qp_key &key) { return QpKeyEqual{}(key, event->key); });
    if (keys.empty())
        lacking_.erase(found);
    return event;
}

} // namespace collwire::sources
