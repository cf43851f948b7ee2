// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/error_state.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "collwire/nccl_error_records.h"
#include "userspace/nccl/layout/bpf_layout.h"

namespace collwire::nccl {
namespace {

std::optional<std::uint32_t> read_result(const process::ProcessView &process, std::uint64_t base,
                                         std::uint32_t offset) {
    return offset == CW_NCCL_NO_FIELD ? std::nullopt : process.read<std::uint32_t>(base + offset);
}

using Text = std::array<char, CW_NCCL_TEXT_BYTES>;

std::optional<std::string> read_text(const process::ProcessView &process, std::uint64_t address) {
    Text text{};
    if (!process.read(address, std::as_writable_bytes(std::span{text})))
        return std::nullopt;
    return std::string{text.data(), std::find(text.begin(), text.end() - 1, '\0')};
}

} // namespace

std::optional<ErrorPlaces> find_error_places(const LibraryLayout &layout, std::uint64_t bias) {
    ErrorPlaces places;
    places.comm_result = field_offset(layout, "ncclComm.asyncResult");
    places.comm_proxy_state = field_offset(layout, "ncclComm.proxyState");
    places.proxy_result = field_offset(layout, "ncclProxyState.asyncResult");
    if (const auto text = layout.data.find("ncclLastError"); text != layout.data.end())
        places.text = text->second + bias;
    if (places.text == 0 && places.comm_result == CW_NCCL_NO_FIELD)
        return std::nullopt;
    return places;
}

std::optional<std::string> read_last_error(const process::ProcessView &process,
                                           const ErrorPlaces &places) {
    if (places.text == 0)
        return std::nullopt;
    // NCCL writes it in place: a text that is the same twice is complete.
    auto text = read_text(process, places.text);
    if (!text || text->empty() || read_text(process, places.text) == text)
        return text;
    return std::nullopt;
}

std::vector<Results> read_results(const process::ProcessView &process, const ErrorPlaces &places,
                                  std::span<const std::uint64_t> comms) {
    std::vector<Results> results;
    results.reserve(comms.size());
    for (const std::uint64_t comm : comms) {
        Results of;
        of.comm = read_result(process, comm, places.comm_result);
        const auto state = places.comm_proxy_state == CW_NCCL_NO_FIELD
                               ? std::nullopt
                               : process.read<std::uint64_t>(comm + places.comm_proxy_state);
        if (state.value_or(0) != 0)
            of.proxy = read_result(process, *state, places.proxy_result);
        results.push_back(of);
    }
    return results;
}

} // namespace collwire::nccl
