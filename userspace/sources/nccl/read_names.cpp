// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/read_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace collwire::sources {
namespace {

// By enum cw_nccl_read.
constexpr std::array<std::string_view, CW_NCCL_READS> NAMES{
    "",
    "proxyState",
    "proxyOps",
    "localRank",
    "localRankToRank",
    "topParentRanks",
    "topParentLocalRanks",
    "sharedRes",
    "owner",
    "owner.startMagic",
    "localRanks",
    "peerArraySize",
    "localRankToRank[]",
    "topParentRanks[]",
    "owner.localRankToRank",
    "proxies",
    "lists",
    "operation",
    "task",
    "connection",
    "endpoint",
};

} // namespace

std::string_view read_name(std::uint32_t read) {
    return read < NAMES.size() ? NAMES[read] : std::string_view{};
}

std::optional<ReadFault> parse_read_fault(std::string_view text) {
    const std::size_t colon = text.find(':');
    const auto found = std::ranges::find(NAMES, text.substr(0, colon));
    if (text.empty() || found == NAMES.begin() || found == NAMES.end())
        return std::nullopt;
    ReadFault fault{static_cast<cw_nccl_read>(found - NAMES.begin()), 1};
    if (colon == std::string_view::npos)
        return fault;
    const std::string_view times = text.substr(colon + 1);
    const auto [end, problem] =
        std::from_chars(times.data(), times.data() + times.size(), fault.times);
    if (problem != std::errc{} || end != times.data() + times.size())
        return std::nullopt;
    return fault;
}

ReadFault wanted_read_fault() {
    const char *value = std::getenv("COLLWIRE_TEST_FAIL_READ");
    return value == nullptr ? ReadFault{} : parse_read_fault(value).value_or(ReadFault{});
}

} // namespace collwire::sources
