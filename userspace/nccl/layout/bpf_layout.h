// SPDX-License-Identifier: Apache-2.0
// A plan as the BPF programs want it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_layout.h"
#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl {

// What ncclComm begins and ends with (startMagic, endMagic), 2.21 and later.
inline constexpr std::uint64_t COMM_MAGIC = 0x0280028002800280;

// 22809 of "2.28.9"; 0 of anything else.
std::uint32_t version_number(std::string_view version);
// The other way round.
std::string version_text(std::uint32_t number);

// Of the first that the plan has of "type.field|type.field"; CW_NCCL_NO_FIELD: it has none.
std::uint32_t field_offset(const Plan &plan, std::string_view names);

// BadInput, naming what is there: the programs would read something else than they mean.
Result<cw_nccl_layout> layout_of_plan(const Plan &plan, std::uint32_t image_id);

const PlannedFunction *find_probe(const Plan &plan, std::string_view function);

// What NCCL's warnings go through: the second since 2.30, where the first is for plugins alone.
inline constexpr std::string_view WARNS = "ncclDebugLog", WARNS_WITH_FUNCTION = "ncclDebugLogV";
// Null: neither can be probed.
const PlannedFunction *find_warning(const Plan &plan);

// NCCL of this plan calls ncclProxyStart for each launch.
bool sees_all_launches(const Plan &plan);

// It tells when operations begin and end on a connection.
bool measures_times(const Plan &plan);

// It tells whose the sockets are that NCCL closes.
bool tells_of_sockets(const Plan &plan);

// The plan's rungs as a record has them.
void put_rungs(const Plan &plan, cw_nccl_image &record);

} // namespace collwire::nccl
