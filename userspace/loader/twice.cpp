// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/twice.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/clock.h"
#include "collwire/tables.h"
#include "userspace/loader/map_reader.h"

namespace collwire::loader {
namespace {

// The first sibling of each pair, in the order of enum cw_twice_function.
constexpr std::array<std::string_view, CW_TWICE_FUNCTIONS> first_programs = {
    "restrack_add_fentry", "destroy_fentry", "destroy_fexit",   "user_modify_fexit",
    "kernel_modify_fexit", "query_fexit",    "qp_event_fentry", "xmit_fentry",
    "xmit_fexit",          "request_fentry", "response_fentry", "queue_fentry"};

std::uint64_t look(const HookSet &hooks, int twice_map_fd, bool with_loopback) {
    std::vector<cw_twice> cpus(static_cast<std::size_t>(std::max(1, libbpf_num_possible_cpus())));
    std::uint64_t unseen = 0;
    for (std::uint32_t function = 0; function < CW_TWICE_FUNCTIONS; ++function) {
        if (!with_loopback && (function == CW_TWICE_XMIT || function == CW_TWICE_XMIT_EXIT))
            continue;
        // Read the kernel's count first: calls handled meanwhile make the difference smaller.
        std::uint64_t calls = hooks.missed_by(first_programs[function]);
        std::uint64_t handled = 0;
        if (bpf_map_lookup_elem(twice_map_fd, &function, cpus.data()) != 0)
            continue;
        for (const auto &cpu : cpus) {
            calls += cpu.first_ran;
            handled += cpu.handled;
        }
        unseen += calls - std::min(calls, handled);
    }
    return unseen;
}

} // namespace

std::uint64_t calls_unseen_by_both(const HookSet &hooks, int twice_map_fd, bool with_loopback) {
    auto unseen = look(hooks, twice_map_fd, with_loopback);
    for (int tries = 0; tries < 3 && unseen > 0; ++tries)
        unseen = std::min(unseen, look(hooks, twice_map_fd, with_loopback));
    return unseen;
}

std::uint64_t forget_old_calls(int map_fd, std::size_t key_bytes, std::size_t value_bytes) {
    constexpr std::uint64_t AGE_NS = 10'000'000'000;
    const std::uint64_t now_ns = monotonic_ns();
    std::vector<std::vector<std::byte>> old;
    (void)MapReader(map_fd, key_bytes, value_bytes, false)
        .for_each([&](std::span<const std::byte> key, std::span<const std::byte> value) {
            std::uint64_t entered_ns = 0;
            std::memcpy(&entered_ns, value.data(), sizeof(entered_ns));
            if (entered_ns + AGE_NS < now_ns)
                old.emplace_back(key.begin(), key.end());
        });
    const auto deleted = std::ranges::count_if(
        old, [&](const auto &key) { return bpf_map_delete_elem(map_fd, key.data()) == 0; });
    return static_cast<std::uint64_t>(deleted);
}

} // namespace collwire::loader
