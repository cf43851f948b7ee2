// SPDX-License-Identifier: Apache-2.0
#include "correlate/rows/tables.h"

#include <array>

#include "correlate/rows/gpu_rows.h"
#include "correlate/rows/incident_rows.h"
#include "correlate/rows/interval_rows.h"
#include "correlate/rows/nccl_rows.h"
#include "correlate/rows/network_rows.h"
#include "correlate/rows/recording_rows.h"
#include "correlate/rows/totals_rows.h"
#include "correlate/rows/verdict_rows.h"
#include "correlate/rows/waiting_rows.h"

namespace collwire::rows {

std::span<const TableInfo *const> all_tables() {
    static constexpr std::array tables{
        &TABLE_INFO<HostRow>,
        &TABLE_INFO<CaptureRow>,
        &TABLE_INFO<SourceRow>,
        &TABLE_INFO<LossRow>,
        &TABLE_INFO<WarningRow>,
        &TABLE_INFO<ClockDifferenceRow>,
        &TABLE_INFO<ClockRow>,
        &TABLE_INFO<ClockWindowRow>,
        &TABLE_INFO<TierRow>,
        &TABLE_INFO<IdentityRow>,
        &TABLE_INFO<ProcessRow>,
        &TABLE_INFO<ProcessTierRow>,
        &TABLE_INFO<HostPairRow>,
        &TABLE_INFO<HostPairTierRow>,
        &TABLE_INFO<VerdictRow>,
        &TABLE_INFO<FindingRow>,
        &TABLE_INFO<ErrorRow>,
        &TABLE_INFO<EventRow>,
        &TABLE_INFO<IncidentRow>,
        &TABLE_INFO<IncidentOperationRow>,
        &TABLE_INFO<SharedIncidentRow>,
        &TABLE_INFO<CommunicatorRow>,
        &TABLE_INFO<RankRow>,
        &TABLE_INFO<ParameterRow>,
        &TABLE_INFO<OperationRow>,
        &TABLE_INFO<OperationTierRow>,
        &TABLE_INFO<OperationRankRow>,
        &TABLE_INFO<WaitingRow>,
        &TABLE_INFO<WaitingRankRow>,
        &TABLE_INFO<RankPairRow>,
        &TABLE_INFO<FlowRow>,
        &TABLE_INFO<KernelRow>,
        &TABLE_INFO<QpRow>,
        &TABLE_INFO<QpPeerRow>,
        &TABLE_INFO<SocketRow>,
        &TABLE_INFO<DeviceRow>,
        &TABLE_INFO<PortRow>,
        &TABLE_INFO<IntervalRow>,
        &TABLE_INFO<IntervalTierRow>,
        &TABLE_INFO<IntervalPortRow>,
        &TABLE_INFO<IntervalCommRow>,
    };
    return tables;
}

} // namespace collwire::rows
