// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/convert.h"

#include "correlate/nccl/describe.h"
#include "correlate/rows/nccl_rows.h"
#include "correlate/rows/network_rows.h"

namespace collwire::tabulate {

rows::Certainty certainty_of(nccl::Rung rung) {
    switch (rung) {
    case nccl::Rung::Exact:
        return rows::Certainty::Exact;
    case nccl::Rung::Inferred:
        return rows::Certainty::Inferred;
    case nccl::Rung::Process:
        break;
    }
    return rows::Certainty::Process;
}

std::optional<rows::ByteSource> byte_source_of(nccl::ByteSource source) {
    switch (source) {
    case nccl::ByteSource::Derived:
        return rows::ByteSource::Derived;
    case nccl::ByteSource::Posted:
        return rows::ByteSource::Posted;
    case nccl::ByteSource::Wire:
        return rows::ByteSource::Wire;
    case nccl::ByteSource::None:
        break;
    }
    return std::nullopt;
}

std::optional<rows::ByteSource> byte_source_of(model::BytesRung rung) {
    switch (rung) {
    case model::BytesRung::Posted:
        return rows::ByteSource::Posted;
    case model::BytesRung::Wire:
        return rows::ByteSource::Wire;
    case model::BytesRung::None:
        break;
    }
    return std::nullopt;
}

rows::Tier tier_of(topology::Tier tier) {
    switch (tier) {
    case topology::Tier::Self:
        return rows::Tier::Self;
    case topology::Tier::Leaf:
        return rows::Tier::Leaf;
    case topology::Tier::Spine:
        return rows::Tier::Spine;
    case topology::Tier::Superspine:
        return rows::Tier::Superspine;
    case topology::Tier::Unknown:
        break;
    }
    return rows::Tier::Unknown;
}

template <typename Row> void set_flow(Row &row, const nccl::NcclFacts &nccl, model::Index link) {
    if (link == model::NONE)
        return;
    const nccl::Link &of = nccl.links[link];
    row.comm = if_index(nccl::only_communicator(nccl, of));
    row.rank = if_not_negative(of.rank);
    row.peer_rank = if_not_negative(of.peer);
    if (of.channels.size() == 1)
        row.channel = of.channels.front();
}
template void set_flow(rows::FlowRow &, const nccl::NcclFacts &, model::Index);
template void set_flow(rows::QpRow &, const nccl::NcclFacts &, model::Index);
template void set_flow(rows::SocketRow &, const nccl::NcclFacts &, model::Index);

} // namespace collwire::tabulate
