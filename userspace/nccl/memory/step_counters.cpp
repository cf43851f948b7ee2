// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/step_counters.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace collwire::nccl {
namespace {

constexpr std::size_t AT_ONCE = 256;     // counters
constexpr std::uint32_t IN_PROGRESS = 2; // ncclProxyOpProgress
constexpr std::uint32_t LOW_HALF = ~0U;  // of a word: a 32-bit field

// `visit(i, words)` for each item, whose words lie at the addresses that `addresses_of(i)` returns.
template <std::size_t N, typename AddressesOf, typename Visit>
void read_each(const process::ProcessView &process, std::size_t n_items, AddressesOf addresses_of,
               Visit visit) {
    std::vector<std::uint64_t> addresses, words;
    for (std::size_t i = 0; i < n_items;) {
        const std::size_t n = std::min(AT_ONCE, n_items - i);
        addresses.clear();
        for (std::size_t k = 0; k < n; ++k) {
            const std::array<std::uint64_t, N> of_item = addresses_of(i + k);
            addresses.insert(addresses.end(), of_item.begin(), of_item.end());
        }
        words.resize(addresses.size());
        const std::size_t n_read = process.read_words(addresses, words) / N;
        for (std::size_t k = 0; k < n_read; ++k)
            visit(i + k, std::span{words}.subspan(k * N, N));
        i += n_read == n ? n : n_read + 1; // skip the one that cannot be read
    }
}

} // namespace

std::optional<StepCounter> find_step_counter(const process::ProcessView &process,
                                             const cw_nccl_layout &bpf_layout,
                                             const cw_nccl_connection &connection) {
    const bool send = (connection.flags & CW_NCCL_CONNECTION_SEND) != 0;
    const std::uint32_t step = send ? bpf_layout.send_step : bpf_layout.recv_step;
    const std::uint32_t net_comm = send ? bpf_layout.send_net_comm : bpf_layout.recv_net_comm;
    if (connection.transport == CW_NCCL_TRANSPORT_LOCAL ||
        connection.transport == CW_NCCL_TRANSPORT_UNKNOWN || connection.net_comm == 0 ||
        step == CW_NCCL_NO_FIELD || net_comm == CW_NCCL_NO_FIELD ||
        bpf_layout.connection_resources == CW_NCCL_NO_FIELD ||
        bpf_layout.connection_append == CW_NCCL_NO_FIELD)
        return std::nullopt;
    StepCounter counter;
    counter.resources_at = connection.connection + bpf_layout.connection_resources;
    const auto resources = process.read<std::uint64_t>(counter.resources_at);
    const auto appended =
        process.read<std::uint64_t>(connection.connection + bpf_layout.connection_append);
    if (!resources || *resources == 0 || !appended || *appended == 0)
        return std::nullopt;
    counter.resources = *resources;
    counter.net_comm_at = *resources + net_comm;
    counter.net_comm = connection.net_comm;
    counter.steps_at = *resources + step;
    counter.appended_at = *appended;
    counter.is_shared = (connection.flags & CW_NCCL_CONNECTION_SHARED) != 0;
    return counter;
}

std::vector<std::optional<StepReading>> read_step_counters(const process::ProcessView &process,
                                                           std::span<const StepCounter> counters,
                                                           std::uint32_t state_offset) {
    std::vector<std::optional<StepReading>> readings(counters.size());
    std::vector<std::pair<std::size_t, std::uint64_t>> at_work; // and the last operation given
    // Steps first: if no operation is left afterwards, all operations that were started before are
    // complete.
    read_each<4>(
        process, counters.size(),
        [&](std::size_t i) {
            const StepCounter &of = counters[i];
            return std::array{of.resources_at, of.net_comm_at, of.steps_at, of.appended_at};
        },
        [&](std::size_t i, std::span<const std::uint64_t> words) {
            if (words[0] != counters[i].resources || words[1] != counters[i].net_comm)
                return;
            readings[i] = StepReading{words[2], words[3] == 0, false};
            if (words[3] != 0 && !counters[i].is_shared && state_offset != CW_NCCL_NO_FIELD)
                at_work.emplace_back(i, words[3]);
        });
    // The last operation given is in flight, and none waits after it. Equal steps before and after
    // show that it is the last one in `steps`, too.
    read_each<2>(
        process, at_work.size(),
        [&](std::size_t k) {
            const auto &[i, appended] = at_work[k];
            return std::array{appended + state_offset, counters[i].steps_at};
        },
        [&](std::size_t k, std::span<const std::uint64_t> words) {
            StepReading &reading = *readings[at_work[k].first];
            reading.is_busy = (words[0] & LOW_HALF) == IN_PROGRESS && words[1] == reading.steps;
        });
    return readings;
}

} // namespace collwire::nccl
