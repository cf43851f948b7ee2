// SPDX-License-Identifier: Apache-2.0
#include "correlate/stall/first_errors.h"

#include <set>

#include "correlate/nccl/describe.h"

namespace collwire::stall {

FirstError first_error_of(const nccl::NcclFacts &nccl, const nccl::NcclError &error) {
    FirstError first;
    first.rank = nccl.instances[error.instance].record.rank;
    first.is_exit = error.kind == nccl::ErrorKind::Ended;
    first.text = error.text.empty() ? nccl::result_text(error.result) : error.text;
    first.waiting = error.waiting;
    return first;
}

std::optional<std::vector<ErrorOfCommunicator>> first_errors(const model::Model &model) {
    const nccl::NcclFacts &nccl = model.nccl;
    std::vector<ErrorOfCommunicator> all;
    std::set<model::Index> seen;
    for (const nccl::NcclError &error : nccl.errors) {
        if (error.kind == nccl::ErrorKind::Warning)
            continue;
        if (error.instance == model::NONE)
            return std::nullopt;
        const nccl::Instance &instance = nccl.instances[error.instance];
        if (error.order != nccl::ErrorOrder::First || instance.comm == model::NONE ||
            !seen.insert(instance.comm).second)
            continue;
        const nccl::Communicator &comm = nccl.communicators[instance.comm];
        const model::Host &host = model.hosts[instance.host];
        all.push_back({comm.hash, comm.n_ranks, host.name, first_error_of(nccl, error)});
        all.back().error.time_ns = host.realtime_ns(error.time_ns);
    }
    return all;
}

} // namespace collwire::stall
