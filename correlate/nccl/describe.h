// SPDX-License-Identifier: Apache-2.0
// Texts and numbers for the outputs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::nccl {

[[nodiscard]] std::string_view rung_name(Rung rung);
[[nodiscard]] std::string_view source_name(ByteSource source);
[[nodiscard]] std::string_view seq_base_name(SeqBase base);
[[nodiscard]] std::string_view role_name(Role role);                           // "" for None
[[nodiscard]] std::string_view socket_role_name(const SocketIdentity &socket); // likewise
// "10.0.0.1", "fe80::1"; with its port "10.0.0.1:2000", "[fe80::1]:2000".
[[nodiscard]] std::string address_text(const std::uint8_t (&address)[16]);
[[nodiscard]] std::string endpoint_text(const std::uint8_t (&address)[16], std::uint16_t port);
[[nodiscard]] std::string_view end_known_name(EndKnown known); // "" for No
[[nodiscard]] std::string_view transport_name(std::uint32_t transport);
// "2.28.9"; "" for 0
[[nodiscard]] std::string library_version_text(std::uint32_t version);
// "0x1122334455667788"
[[nodiscard]] std::string hash_text(std::uint64_t hash);
// "0000:07:00.0", from the number that NCCL keeps.
[[nodiscard]] std::string bus_id_text(std::uint64_t bus_id);
// NCCL's name, or the number.
[[nodiscard]] std::string func_text(std::uint8_t func);
[[nodiscard]] std::string datatype_text(std::uint8_t datatype);
[[nodiscard]] std::string algorithm_text(std::uint8_t algorithm); // "" if unknown
[[nodiscard]] std::string protocol_text(std::uint8_t protocol);   // likewise
[[nodiscard]] std::string result_text(unsigned result);           // ncclInvalidArgument
// Whether such an operation has a reduction, a root.
[[nodiscard]] bool has_reduction(std::uint8_t func);
[[nodiscard]] bool has_root(std::uint8_t func);
// Elements of the call times their size; absent for an unknown type.
[[nodiscard]] Known size_bytes(const Operation &operation);
// The only source, or the weakest of several.
[[nodiscard]] ByteSource source_of(const Operation &operation);

// Payload and wire bytes of an operation, for each tier in its `tiers`.
using TierBytes = std::array<std::pair<std::uint64_t, std::uint64_t>, model::TIERS>;
[[nodiscard]] TierBytes bytes_by_tier(const NcclFacts &nccl, const Operation &operation);

// The only communicator of a flow; NONE: several, or not known.
[[nodiscard]] Index only_communicator(const NcclFacts &nccl, const Link &link);

// By value: the ranks whose process has it.
// The first recorded value: NCCL reads a parameter once. Absent: not recorded.
[[nodiscard]] std::optional<std::int64_t> parameter_of(const NcclFacts &nccl, Index session,
                                                       std::uint32_t tgid, std::string_view name);
using ParamValues = std::map<std::int64_t, std::vector<std::int32_t>>;
[[nodiscard]] std::map<std::string, ParamValues> params_of(const NcclFacts &nccl,
                                                           const Communicator &comm);

// Calls that are neither a collective nor a pair (PutSignal, Signal, WaitSignal), by communicator,
// rank and function.
using OtherCalls = std::map<std::tuple<Index, std::int32_t, std::uint8_t>, std::uint64_t>;
[[nodiscard]] OtherCalls other_calls(const NcclFacts &nccl);

} // namespace collwire::nccl
