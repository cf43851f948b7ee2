// SPDX-License-Identifier: Apache-2.0
// Queue pairs that existed before libibverbs' probes have no address: RDMA netlink does not give
// it. Of those of NCCL's connections NCCL's memory has it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "collwire/qp_records.h"
#include "userspace/inventory/rdma_devices.h"
#include "userspace/source/queue_pair_path.h"
#include "userspace/sources/known_qps.h"

namespace collwire::sources {

// `known` with the address, the local GID and the path MTU of `path`. Empty: not the queue pair's
// device, or not known whether its packets have a global header.
std::optional<cw_qp_event> with_path(const cw_qp_event &known, const source::QueuePairPath &path,
                                     const std::vector<inventory::RdmaDevice> &devices);

class VerbsPaths {
public:
    // Queue pairs that lack an address.
    void add(const cw_qp_event &existing);
    [[nodiscard]] bool are_lacking(std::uint32_t tgid) const;
    // The event of the queue pair that has this path, once. Empty: it is none of those, or several
    // are possible.
    std::optional<cw_qp_event> take(const source::QueuePairPath &path, const KnownQps &known,
                                    const std::vector<inventory::RdmaDevice> &devices);

private:
    // By process and number, which repeats over devices.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<cw_qp_key>> lacking_;
};

} // namespace collwire::sources
