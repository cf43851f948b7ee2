// SPDX-License-Identifier: Apache-2.0
#include "correlate/gpu/join_kernels.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "collwire/nccl_launch_records.h"

namespace collwire::gpu {

namespace {

// The probe fires just after the driver's call has returned, and the kernel may start within the
// call. Measured: up to 13 us, and 200 us where the call loads the kernel's code first. A call that
// loads much code takes longer.
constexpr std::uint64_t CALL_NS = 50'000'000;
// A launch whose call overlaps the arming may be recorded or not. Its thread may lose its processor
// before the probe: only a launch that follows another one, or comes much later, surely began
// armed.
constexpr std::uint64_t ARMING_NS = 200'000;
// How far ahead a place is searched where the order was broken by lost records.
constexpr std::size_t AHEAD = 256;
// This many pairs in a row must agree before the order is taken up again.
constexpr std::size_t AGAIN = 4;

bool agrees(const KernelFact &kernel, const LaunchFact &launch) {
    const bool is_after = kernel.start_ns == 0 || kernel.start_ns + CALL_NS >= launch.time_ns;
    const bool is_graph = (kernel.graph_node != 0) == launch.is_replay;
    const bool is_grid = launch.channels == 0 || kernel.blocks == launch.channels;
    const bool is_func = launch.func == CW_NCCL_FUNC_UNKNOWN ||
                         kernel.func == CW_NCCL_FUNC_UNKNOWN || launch.func == kernel.func;
    return is_after && is_graph && is_grid && is_func;
}

class SpanJoiner {
public:
    SpanJoiner(std::span<const LaunchFact> launches, std::span<const KernelFact> kernels,
               std::span<const std::uint32_t> order, KernelJoin &join)
        : launches_(launches), kernels_(kernels), order_(order), join_(join) {}

    // Launches [first, last) began while the guest was armed; `sure` is the first of them whose
    // call surely did.
    void run(std::size_t first, std::size_t sure, std::size_t last) {
        bool is_only_one = true;
        const std::size_t begin = choose_begin(first, sure, last, is_only_one);
        join_.traced_launches += last - begin;
        walk(begin, last, is_only_one ? Match::Exact : Match::ByTime);
    }

private:
    [[nodiscard]] std::size_t agreeing(std::size_t kernel, std::size_t launch, std::size_t last,
                                       std::size_t most) const {
        std::size_t n = 0;
        while (n < most && kernel + n < order_.size() && launch + n < last &&
               agrees(kernels_[order_[kernel + n]], launches_[launch + n]))
            ++n;
        return n;
    }

    // Of the launches that overlap the arming, the first one that was recorded: the longest
    // agreement, of equal ones the one that leaves no launch over at the end, else the latest.
    [[nodiscard]] std::size_t choose_begin(std::size_t first, std::size_t sure, std::size_t last,
                                           bool &is_only_one) const {
        std::size_t best = sure, longest = agreeing(0, sure, last, order_.size());
        for (std::size_t begin = sure; begin-- > first;) {
            const std::size_t length = agreeing(0, begin, last, order_.size());
            const bool fits = last - begin == order_.size();
            is_only_one = length > longest || (is_only_one && length < longest);
            if (length > longest || (length == longest && fits)) {
                best = begin;
                longest = length;
            }
        }
        return best;
    }

    void pair(std::size_t kernel, std::size_t launch, Match match) {
        join_.kernels[order_[kernel]] = {static_cast<std::uint32_t>(launch), match};
        ++(match == Match::Exact ? join_.exact : join_.by_time);
    }

    // The distance to the next place from which the order goes on: launches without kernel, or
    // kernels without launch.
    bool find_next(std::size_t &kernel, std::size_t &launch, std::size_t last) const {
        for (std::size_t distance = 1; distance <= AHEAD; ++distance) {
            const std::size_t wanted = std::min({AGAIN, order_.size() - kernel, last - launch});
            if (launch + distance < last && agreeing(kernel, launch + distance, last, AGAIN) >=
                                                std::min(wanted, last - launch - distance)) {
                launch += distance;
                return true;
            }
            if (kernel + distance < order_.size() &&
                agreeing(kernel + distance, launch, last, AGAIN) >=
                    std::min(wanted, order_.size() - kernel - distance)) {
                kernel += distance;
                return true;
            }
        }
        return false;
    }

    void walk(std::size_t launch, std::size_t last, Match match) {
        std::size_t kernel = 0;
        while (kernel < order_.size() && launch < last) {
            if (agrees(kernels_[order_[kernel]], launches_[launch])) {
                pair(kernel++, launch++, match);
                continue;
            }
            // From here on it is the order after a gap.
            match = Match::ByTime;
            const std::size_t kernel_before = kernel, launch_before = launch;
            if (!find_next(kernel, launch, last)) {
                ++join_.contradicted;
                ++join_.without_kernel;
                ++kernel;
                ++launch;
                continue;
            }
            join_.without_launch += kernel - kernel_before;
            join_.without_kernel += launch - launch_before;
        }
        join_.without_launch += order_.size() - kernel;
        join_.without_kernel += last - launch;
    }

    std::span<const LaunchFact> launches_;
    std::span<const KernelFact> kernels_;
    std::span<const std::uint32_t> order_; // of the kernels of the span
    KernelJoin &join_;
};

std::size_t first_at(std::span<const LaunchFact> launches, std::uint64_t time_ns) {
    const auto found =
        std::partition_point(launches.begin(), launches.end(), [time_ns](const LaunchFact &launch) {
            return launch.time_ns < time_ns;
        });
    return static_cast<std::size_t>(found - launches.begin());
}

std::uint64_t plus(std::uint64_t time_ns, std::uint64_t more_ns) {
    return time_ns > UINT64_MAX - more_ns ? UINT64_MAX : time_ns + more_ns;
}

// The first launch whose call surely began after `armed_ns`. Replayed kernels of one graph have one
// call and one time.
std::size_t first_sure(std::span<const LaunchFact> launches, std::uint64_t armed_ns) {
    const std::size_t after = first_at(launches, armed_ns);
    if (after == launches.size())
        return after;
    const std::size_t following = first_at(launches, plus(launches[after].time_ns, 1));
    return std::min(first_at(launches, plus(armed_ns, CALL_NS)),
                    std::max(following, first_at(launches, plus(armed_ns, ARMING_NS))));
}

} // namespace

KernelJoin join_kernels(std::span<const LaunchFact> launches, std::span<const KernelFact> kernels,
                        std::span<const TracedSpan> spans) {
    KernelJoin join;
    join.kernels.resize(kernels.size());
    std::vector<std::uint32_t> order(kernels.size());
    std::iota(order.begin(), order.end(), 0U);
    // CUPTI's numbers grow with the calls; the nodes of a graph launch share one, and are numbered
    // as they were captured.
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::tuple(kernels[a].correlation, kernels[a].graph_node, kernels[a].start_ns, a) <
               std::tuple(kernels[b].correlation, kernels[b].graph_node, kernels[b].start_ns, b);
    });
    std::size_t next = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const std::uint64_t end_ns =
            i + 1 < spans.size() ? spans[i + 1].arming_begin_ns : UINT64_MAX;
        const std::size_t begin = next;
        // One that had not begun is of the span of the one before it.
        while (next < order.size() && kernels[order[next]].start_ns < end_ns)
            ++next;
        const std::size_t first = first_at(launches, spans[i].arming_begin_ns);
        const std::size_t sure = first_sure(launches, spans[i].armed_ns);
        const std::size_t last = std::max(sure, first_at(launches, spans[i].disarming_begin_ns));
        SpanJoiner(launches, kernels, std::span(order).subspan(begin, next - begin), join)
            .run(first, sure, last);
    }
    join.without_launch += order.size() - next;
    return join;
}

} // namespace collwire::gpu
