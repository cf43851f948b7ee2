// SPDX-License-Identifier: Apache-2.0
// A layout as the BPF programs want it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "collwire/nccl_layout.h"
#include "collwire/records.h"
#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl {

// What ncclComm begins and ends with (startMagic, endMagic), 2.21 and later.
inline constexpr std::uint64_t COMM_MAGIC = 0x0280028002800280;

// 22809 of "2.28.9"; 0 of anything else.
std::uint32_t version_number(std::string_view version);
// The other way round.
std::string version_text(std::uint32_t number);

// Of the first that the layout has of "type.field|type.field"; CW_NCCL_NO_FIELD: it has none.
std::uint32_t field_offset(const LibraryLayout &layout, std::string_view names);

// BadInput, naming what is there: the programs would read something else than they mean.
Result<cw_nccl_layout> bpf_layout_of(const LibraryLayout &layout, std::uint32_t image_id);

const ProbedFunction *find_probe(const LibraryLayout &layout, std::string_view function);

// What NCCL's warnings go through: the second since 2.30, where the first is for plugins alone.
inline constexpr std::string_view WARNS = "ncclDebugLog", WARNS_WITH_FUNCTION = "ncclDebugLogV";
// Null: neither can be probed.
const ProbedFunction *find_warning(const LibraryLayout &layout);

// NCCL of this layout calls ncclProxyStart for each launch.
bool sees_all_launches(const LibraryLayout &layout);

// It tells when operations begin and end on a connection.
bool measures_times(const LibraryLayout &layout);

// It tells whose the sockets are that NCCL closes.
bool tells_of_sockets(const LibraryLayout &layout);

// The layout's rungs as a record has them.
void put_rungs(const LibraryLayout &layout, cw_nccl_image &record);

} // namespace collwire::nccl
