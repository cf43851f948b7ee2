// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "correlate/capture/nccl_names.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/resolve.h"

namespace collwire::nccl {

std::string_view rung_name(Rung rung) {
    static constexpr std::array<std::string_view, RUNGS> names{"process", "inferred", "exact"};
    return names[static_cast<std::size_t>(rung)];
}

std::string_view source_name(ByteSource source) {
    static constexpr std::array<std::string_view, BYTE_SOURCES> names{"none", "derived", "posted",
                                                                      "wire"};
    return names[static_cast<std::size_t>(source)];
}

std::string_view seq_base_name(SeqBase base) {
    static constexpr std::array<std::string_view, 4> names{"recording", "aligned", "launched",
                                                           "creation"};
    return names[static_cast<std::size_t>(base)];
}

std::string_view end_known_name(EndKnown known) {
    switch (known) {
    case EndKnown::Measured:
        return "measured";
    case EndKnown::Sampled:
        return "sampled";
    case EndKnown::Bounded:
        return "bounded";
    case EndKnown::No:
        break;
    }
    return "";
}

std::string_view role_name(Role role) {
    static constexpr std::array<std::string_view, 5> names{"", "data", "clear_to_send", "flush",
                                                           "other"};
    return names[static_cast<std::size_t>(role)];
}

std::string_view transport_name(std::uint32_t transport) {
    static constexpr std::array<std::string_view, 6> names{"unknown",    "NET/IB", "NET/Socket",
                                                           "NET/Plugin", "local",  "CollNet"};
    return transport < names.size() ? names[transport] : names[0];
}

std::string library_version_text(std::uint32_t version) {
    if (version == 0)
        return {};
    // ncclGetVersion: a four-digit number up to 2.8.
    return version < 10000
               ? fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100)
               : fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string hash_text(std::uint64_t hash) {
    return fmt::format("0x{:016x}", hash);
}

std::string bus_id_text(std::uint64_t bus_id) {
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", bus_id >> 20U, bus_id >> 12U & 0xffU,
                       bus_id >> 4U & 0xffU, bus_id & 0xfU);
}

namespace {
std::string text_or_number(std::string_view name, unsigned number) {
    return name.empty() ? std::to_string(number) : std::string(name);
}
} // namespace

std::string func_text(std::uint8_t func) {
    return text_or_number(capture::nccl_func_name(func), func);
}

std::string result_text(unsigned result) {
    return text_or_number(capture::nccl_result_name(result), result);
}

std::string datatype_text(std::uint8_t datatype) {
    return text_or_number(capture::nccl_datatype_name(datatype), datatype);
}

std::string algorithm_text(std::uint8_t algorithm) {
    if (algorithm == CW_NCCL_ALGORITHM_UNKNOWN)
        return {};
    return text_or_number(capture::nccl_algorithm_name(algorithm), algorithm);
}

std::string protocol_text(std::uint8_t protocol) {
    if (protocol == CW_NCCL_PROTOCOL_UNKNOWN)
        return {};
    return text_or_number(capture::nccl_protocol_name(protocol), protocol);
}

bool has_reduction(std::uint8_t func) {
    return func == CW_NCCL_ALL_REDUCE || func == CW_NCCL_REDUCE || func == CW_NCCL_REDUCE_SCATTER;
}

bool has_root(std::uint8_t func) {
    return func == CW_NCCL_BROADCAST || func == CW_NCCL_REDUCE || func == CW_NCCL_GATHER ||
           func == CW_NCCL_SCATTER;
}

Known size_bytes(const Operation &operation) {
    const std::uint32_t element_bytes = capture::nccl_datatype_bytes(operation.datatype);
    return element_bytes == 0 ? Known()
                              : model::multiply_saturating(operation.count, element_bytes);
}

ByteSource source_of(const Operation &operation) {
    for (std::size_t i = 1; i < BYTE_SOURCES; ++i)
        if ((operation.sources & (1U << i)) != 0)
            return static_cast<ByteSource>(i);
    return ByteSource::None;
}

std::string_view socket_role_name(const SocketIdentity &socket) {
    if (socket.link == NONE)
        return {};
    return socket.role == CW_NCCL_ROLE_CONTROL ? "control" : "data";
}

std::string address_text(const std::uint8_t (&address)[16]) {
    model::Gid gid{};
    std::copy_n(address, gid.size(), gid.begin());
    return model::short_gid_text(gid);
}

std::string endpoint_text(const std::uint8_t (&address)[16], std::uint16_t port) {
    const std::string text = address_text(address);
    return text.find(':') == std::string::npos ? fmt::format("{}:{}", text, port)
                                               : fmt::format("[{}]:{}", text, port);
}

TierBytes bytes_by_tier(const NcclFacts &nccl, const Operation &operation) {
    const bool is_pair = is_p2p(operation.func);
    const std::vector<Operation> &operations = is_pair ? nccl.p2p : nccl.collectives;
    const auto split =
        nccl.bytes_by_tier.find({is_pair, static_cast<Index>(&operation - operations.data())});
    if (split != nccl.bytes_by_tier.end())
        return split->second;
    TierBytes bytes{};
    for (std::size_t tier = 0; tier < model::TIERS; ++tier)
        if ((operation.tiers & (1U << tier)) != 0)
            bytes[tier] = {operation.payload_bytes, operation.wire_bytes};
    return bytes;
}

Index only_communicator(const NcclFacts &nccl, const Link &link) {
    Index only = NONE;
    for (const Index instance : link.instances) {
        const Index comm = nccl.instances[instance].comm;
        if (only != NONE && only != comm)
            return NONE;
        only = comm;
    }
    return only;
}

std::optional<std::int64_t> parameter_of(const NcclFacts &nccl, Index session, std::uint32_t tgid,
                                         std::string_view name) {
    const auto found = nccl.params_of_process.find({session, tgid});
    if (found == nccl.params_of_process.end())
        return std::nullopt;
    for (const Index index : found->second)
        if (const Param &param = nccl.gathered.params[index]; param.name == name)
            return param.value;
    return std::nullopt;
}

std::map<std::string, ParamValues> params_of(const NcclFacts &nccl, const Communicator &comm) {
    std::map<std::pair<Index, std::uint32_t>, std::vector<std::int32_t>> ranks; // of a process
    for (const Index index : comm.instances) {
        const Instance &instance = nccl.instances[index];
        ranks[{instance.session, instance.record.tgid}].push_back(instance.record.rank);
    }
    // The last record counts.
    std::map<std::tuple<std::string, Index, std::uint32_t>, const Param *> last;
    for (const auto &[process, of_process] : ranks) {
        const auto found = nccl.params_of_process.find(process);
        if (found == nccl.params_of_process.end())
            continue;
        for (const Index index : found->second) {
            const Param &param = nccl.gathered.params[index];
            const Param *&known = last[{param.name, param.session, param.tgid}];
            if (known == nullptr || known->time_ns <= param.time_ns)
                known = &param;
        }
    }
    std::map<std::string, ParamValues> params;
    for (const auto &[key, param] : last) {
        std::vector<std::int32_t> &of_value = params[param->name][param->value];
        const std::vector<std::int32_t> &of_process = ranks[{param->session, param->tgid}];
        of_value.insert(of_value.end(), of_process.begin(), of_process.end());
    }
    return params;
}

OtherCalls other_calls(const NcclFacts &nccl) {
    OtherCalls others;
    for (const Instance &instance : nccl.instances) {
        const CallList &calls = nccl.gathered.streams[instance.stream].calls;
        for (std::uint32_t i = 0; i < instance.n_calls; ++i)
            if (const Call &call = calls[instance.first_call + i];
                !is_collective(call.func) && !is_p2p(call.func))
                ++others[{instance.comm, instance.record.rank, call.func}];
    }
    return others;
}

} // namespace collwire::nccl
