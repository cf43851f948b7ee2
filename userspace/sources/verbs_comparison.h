// SPDX-License-Identifier: Apache-2.0
// Compares the calls that change queue pairs as libibverbs' functions show them with those that
// ib_core's functions show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "collwire/qp_records.h"

namespace collwire::sources {

// The first field, of those that both sides have, that differs; empty: none. A side does not have:
// libibverbs the MAC address, the hop limit that the kernel chooses, the UDP source port of
// rdma_rxe, and the number of the protection domain.
std::string first_difference(const cw_qp_event &kernel, const cw_qp_event &verbs);

class VerbsComparison {
public:
    struct Counts {
        std::uint64_t equal = 0;
        std::uint64_t different = 0;
        std::uint64_t kernel_only = 0;
        std::uint64_t verbs_only = 0;
        std::uint64_t by_exit = 0; // destroyed by the kernel when their process exited
        friend bool operator==(const Counts &, const Counts &) = default;
    };

    // Events of CW_KIND_QP_CREATE, STATE and DESTROY, in the order of the ring buffer: a thread is
    // in the kernel's function before it returns from libibverbs'. Others are ignored.
    void add_kernel(const cw_qp_event &event);
    void add_verbs(const cw_qp_event &event);

    // Calls of ib_core before `until_ns` (CLOCK_MONOTONIC) have no other side any more. A queue
    // pair of a process that exits is destroyed without a call of libibverbs'.
    void settle(std::uint64_t until_ns,
                const std::function<bool(const cw_qp_event &)> &owner_has_exited);

    [[nodiscard]] Counts counts() const;
    // One line for the source's state.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] bool agrees() const;

private:
    using Call = std::tuple<std::uint32_t, std::uint16_t, std::uint32_t, std::uint32_t>;
    static Call call_of(const cw_qp_event &event);

    Counts counts_;
    std::size_t n_waiting_ = 0;
    std::map<Call, std::deque<cw_qp_event>> waiting_; // of the kernel
    std::string first_;                               // the first difference, with its queue pair
};

} // namespace collwire::sources
