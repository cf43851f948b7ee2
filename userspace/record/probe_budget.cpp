// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/probe_budget.h"

#include <algorithm>
#include <optional>

namespace collwire::record {
namespace {

constexpr double ADVANCE_NS = 1e9;
constexpr double MOST_CREDIT_NS = 60e9;
// A debt of a twentieth of what was granted is within the tenth that a recording may be above its
// budget. A larger one is paid back: the next windows may take half.
constexpr double TOLERATED = 0.05;
constexpr double WHILE_IN_DEBT = 0.5;

double limit_ns(const Allowance &allowance) {
    if (allowance.credit_ns >= 0)
        return allowance.window_ns + allowance.credit_ns;
    return -allowance.credit_ns <= TOLERATED * allowance.granted_ns
               ? allowance.window_ns
               : allowance.window_ns * WHILE_IN_DEBT;
}

bool is_counted(const GroupTime &group) {
    return group.use != source::ProbeUse::Everywhere;
}

double sum_ns(std::span<const GroupTime> window) {
    double sum = 0;
    for (const GroupTime &group : window)
        sum += is_counted(group) ? group.taken_ns : 0;
    return sum;
}

} // namespace

std::vector<std::size_t> groups_to_take_off(std::span<const GroupTime> window,
                                            const Allowance &allowance) {
    std::vector<std::size_t> taken;
    double left_ns = sum_ns(window);
    const auto dearest = [&](source::ProbeUse use) {
        std::optional<std::size_t> found;
        for (std::size_t i = 0; i < window.size(); ++i)
            if (window[i].use == use && window[i].taken_ns > 0 &&
                std::ranges::find(taken, i) == taken.end() &&
                (!found || window[i].taken_ns > window[*found].taken_ns))
                found = i;
        return found;
    };
    while (left_ns > limit_ns(allowance)) {
        auto next = dearest(source::ProbeUse::Operations);
        if (!next)
            next = dearest(source::ProbeUse::Control);
        if (!next)
            break;
        left_ns -= window[*next].taken_ns;
        taken.push_back(*next);
    }
    return taken;
}

std::vector<std::size_t> ProbeBudget::add_window(double window_ns, std::size_t n_processes,
                                                 std::span<const GroupTime> window) {
    const double n = static_cast<double>(std::max<std::size_t>(n_processes, 1));
    const double taken_ns = sum_ns(window);
    const Allowance allowance{.window_ns = share_ * window_ns * n};
    if (!has_begun_)
        credit_ns_ = share_ * ADVANCE_NS;
    has_begun_ = true;
    credit_ns_ = std::min(credit_ns_ + allowance.window_ns - taken_ns, share_ * MOST_CREDIT_NS * n);
    granted_ns_ += allowance.window_ns;
    taken_ns_ += taken_ns;
    processes_ns_ += window_ns * n;
    is_tight_ = credit_ns_ < share_ * MOST_CREDIT_NS * n / 2;
    return groups_to_take_off(window, {allowance.window_ns, credit_ns_, granted_ns_});
}

double ProbeBudget::taken_share() const {
    return processes_ns_ > 0 ? taken_ns_ / processes_ns_ : 0;
}

} // namespace collwire::record
