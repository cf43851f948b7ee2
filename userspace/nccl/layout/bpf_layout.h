// SPDX-License-Identifier: Apache-2.0
// The layout in the form that the BPF programs read, and facts that are derived from a layout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_layout.h"
#include "userspace/nccl/layout/library_layout.h"

namespace collwire::nccl {

// The first and last field of ncclComm (startMagic, endMagic), 2.21 and later.
inline constexpr std::uint64_t COMM_MAGIC = 0x0280028002800280;

// 22809 for "2.28.9"; 0 for any other form.
std::uint32_t version_number(std::string_view version);
// The inverse.
std::string version_text(std::uint32_t number);

// The offset of the first name in "type.field|type.field" that the layout has, else
// CW_NCCL_NO_FIELD.
std::uint32_t field_offset(const LibraryLayout &layout, std::string_view names);

// BadInput, naming the field: the programs would read other data than they mean.
Result<cw_nccl_layout> bpf_layout_of(const LibraryLayout &layout, std::uint32_t image_id);

const ProbedFunction *find_probe(const LibraryLayout &layout, std::string_view function);

// NCCL's warnings call these: the second since 2.30, where the first is for plugins alone.
inline constexpr std::string_view WARNS = "ncclDebugLog", WARNS_WITH_FUNCTION = "ncclDebugLogV";
// Null: neither can be probed.
const ProbedFunction *find_warning(const LibraryLayout &layout);

// This NCCL calls ncclProxyStart for each launch.
bool sees_all_launches(const LibraryLayout &layout);

// This NCCL has functions that run when an operation starts and completes on a connection.
bool measures_times(const LibraryLayout &layout);

// This NCCL stores the purpose of each socket.
bool has_socket_fields(const LibraryLayout &layout);

// Stores the certainty of each capability in a record.
void put_rungs(const LibraryLayout &layout, cw_nccl_image &record);

} // namespace collwire::nccl
