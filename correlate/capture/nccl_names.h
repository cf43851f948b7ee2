// SPDX-License-Identifier: Apache-2.0
// Names of the numbers in NCCL's records, under the rules of kinds.h. Functions, algorithms,
// protocols and data types have the names that NCCL itself prints: AllReduce, RING, SIMPLE,
// ncclFloat32.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "correlate/capture/kinds.h"

namespace collwire::capture {

[[nodiscard]] std::string_view nccl_func_name(std::uint64_t value);       // enum cw_nccl_func
[[nodiscard]] std::string_view nccl_pattern_name(std::uint64_t value);    // enum cw_nccl_pattern
[[nodiscard]] std::string_view nccl_algorithm_name(std::uint64_t value);  // enum cw_nccl_algorithm
[[nodiscard]] std::string_view nccl_protocol_name(std::uint64_t value);   // enum cw_nccl_protocol
[[nodiscard]] std::string_view nccl_capability_name(std::uint64_t value); // enum cw_nccl_capability
[[nodiscard]] std::string_view nccl_transport_name(std::uint64_t value);  // enum cw_nccl_transport
[[nodiscard]] std::string_view nccl_role_name(std::uint64_t value);       // enum cw_nccl_role
[[nodiscard]] std::string_view nccl_datatype_name(std::uint64_t value);   // ncclDataType_t
// ncclRedOp_t; those that a program made itself have no name.
[[nodiscard]] std::string_view nccl_reduction_name(std::uint64_t value);
[[nodiscard]] std::string_view nccl_result_name(std::uint64_t value);    // ncclResult_t
[[nodiscard]] std::string_view rung_name(std::uint64_t value);           // enum cw_rung
[[nodiscard]] std::string_view nccl_result_of_name(std::uint64_t value); // enum cw_nccl_result_of
// enum cw_nccl_socket_type
[[nodiscard]] std::string_view nccl_socket_type_name(std::uint64_t value);

// Bytes of one element; 0 for a type that this program does not know.
[[nodiscard]] std::uint32_t nccl_datatype_bytes(std::uint64_t value);

[[nodiscard]] std::span<const NamedNumber> nccl_comm_flag_names();
[[nodiscard]] std::span<const NamedNumber> nccl_call_flag_names();
[[nodiscard]] std::span<const NamedNumber> nccl_progress_flag_names();
[[nodiscard]] std::span<const NamedNumber> nccl_steps_flag_names();
[[nodiscard]] std::span<const NamedNumber> nccl_launch_flag_names();
[[nodiscard]] std::span<const NamedNumber> nccl_op_flag_names();
[[nodiscard]] std::span<const NamedNumber> nccl_connection_flag_names();
[[nodiscard]] std::span<const NamedNumber> tcp_socket_flag_names();

} // namespace collwire::capture
