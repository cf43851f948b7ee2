// SPDX-License-Identifier: Apache-2.0
#include "correlate/gpu/reconcile_nvlink.h"

#include <algorithm>
#include <cstdlib>

namespace collwire::gpu {
namespace {

std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// The part of `bytes` that a transfer of this time has in another one.
std::uint64_t part_of(std::uint64_t bytes, const ModelledTransfer &transfer, std::uint64_t begin_ns,
                      std::uint64_t end_ns) {
    const std::uint64_t from = std::max(transfer.begin_ns, begin_ns);
    const std::uint64_t to = std::min(std::max(transfer.end_ns, transfer.begin_ns), end_ns);
    const std::uint64_t all = transfer.end_ns - std::min(transfer.begin_ns, transfer.end_ns);
    if (all == 0 || to <= from)
        return from >= begin_ns && from < end_ns && all == 0 ? bytes : 0;
    return static_cast<std::uint64_t>(static_cast<long double>(bytes) *
                                      static_cast<long double>(to - from) /
                                      static_cast<long double>(all));
}

// Bytes of the operations that run while a counter is read.
struct Crossing {
    std::uint64_t transfers = 0; // sums of differences, so they wrap around
    std::uint64_t tx_bytes = 0, rx_bytes = 0;

    [[nodiscard]] bool is_any() const { return transfers != 0; }
};

class WindowMaker {
public:
    WindowMaker(std::span<const NvlinkReading> readings,
                std::span<const ModelledTransfer> transfers, const NvlinkReconcileOptions &options)
        : readings_(readings), transfers_(transfers.begin(), transfers.end()), options_(options) {}

    std::vector<NvlinkWindow> run() {
        if (readings_.size() < 2)
            return {};
        find_crossings();
        std::vector<NvlinkWindow> windows;
        std::vector<std::size_t> edges{0};
        for (std::size_t begin = 0, i = 1; i < readings_.size(); ++i) {
            const bool is_last = i + 1 == readings_.size();
            const bool is_long =
                readings_[i].time_ns - readings_[begin].time_ns >= options_.most_window_ns;
            if (crossings_[i].is_any() && !is_long && !is_last)
                continue;
            windows.push_back(window(begin, i));
            edges.push_back(i);
            begin = i;
        }
        for (const ModelledTransfer &transfer : transfers_)
            divide(transfer, edges, windows);
        return windows;
    }

private:
    // Where the bytes of an edge are divided: the counter was read there, somewhere.
    [[nodiscard]] std::uint64_t edge_ns(std::size_t reading) const {
        const NvlinkReading &of = readings_[reading];
        return of.begin_ns + (of.time_ns - std::min(of.begin_ns, of.time_ns)) / 2;
    }

    // Each transfer runs at a range of readings: what begins and what ends there is summed up.
    void find_crossings() {
        std::vector<Crossing> changes(readings_.size() + 1);
        for (const ModelledTransfer &transfer : transfers_) {
            const auto first =
                std::ranges::partition_point(readings_, [&transfer](const auto &each) {
                    return each.time_ns <= transfer.begin_ns;
                });
            const auto last =
                std::partition_point(first, readings_.end(), [&transfer](const auto &each) {
                    return each.begin_ns < transfer.end_ns;
                });
            Crossing &begins = changes[static_cast<std::size_t>(first - readings_.begin())];
            Crossing &ends = changes[static_cast<std::size_t>(last - readings_.begin())];
            ++begins.transfers;
            --ends.transfers;
            begins.tx_bytes += transfer.tx_bytes;
            ends.tx_bytes -= transfer.tx_bytes;
            begins.rx_bytes += transfer.rx_bytes;
            ends.rx_bytes -= transfer.rx_bytes;
        }
        Crossing now;
        for (std::size_t i = 0; i < readings_.size(); ++i) {
            now.transfers += changes[i].transfers;
            now.tx_bytes += changes[i].tx_bytes;
            now.rx_bytes += changes[i].rx_bytes;
            crossings_.push_back(now);
        }
    }

    [[nodiscard]] NvlinkWindow window(std::size_t begin, std::size_t end) const {
        NvlinkWindow made;
        made.begin_ns = readings_[begin].time_ns;
        made.end_ns = readings_[end].time_ns;
        for (std::size_t i = begin + 1; i <= end; ++i) {
            made.measured_tx_bytes = plus(made.measured_tx_bytes, readings_[i].tx_bytes);
            made.measured_rx_bytes = plus(made.measured_rx_bytes, readings_[i].rx_bytes);
            made.is_lower_bound = made.is_lower_bound || readings_[i].is_lower_bound;
        }
        made.has_idle_edges = !crossings_[begin].is_any() && !crossings_[end].is_any();
        const auto bound = [&](std::uint64_t at_begin, std::uint64_t at_end) {
            return plus(plus(at_begin, at_end), options_.step_bytes);
        };
        made.bound_tx_bytes = bound(crossings_[begin].tx_bytes, crossings_[end].tx_bytes);
        made.bound_rx_bytes = bound(crossings_[begin].rx_bytes, crossings_[end].rx_bytes);
        return made;
    }

    void divide(const ModelledTransfer &transfer, const std::vector<std::size_t> &edges,
                std::vector<NvlinkWindow> &windows) const {
        // The first window that ends after the transfer has begun.
        const auto edge =
            std::partition_point(edges.begin() + 1, edges.end(), [&](std::size_t reading) {
                return edge_ns(reading) <= transfer.begin_ns;
            });
        for (auto end = edge; end != edges.end(); ++end) {
            const std::uint64_t begin_ns = edge_ns(*(end - 1));
            if (begin_ns >= transfer.end_ns && begin_ns > transfer.begin_ns)
                return;
            NvlinkWindow &into = windows[static_cast<std::size_t>(end - edges.begin()) - 1];
            into.modelled_tx_bytes =
                plus(into.modelled_tx_bytes,
                     part_of(transfer.tx_bytes, transfer, begin_ns, edge_ns(*end)));
            into.modelled_rx_bytes =
                plus(into.modelled_rx_bytes,
                     part_of(transfer.rx_bytes, transfer, begin_ns, edge_ns(*end)));
        }
    }

    std::span<const NvlinkReading> readings_;
    std::vector<ModelledTransfer> transfers_;
    NvlinkReconcileOptions options_;
    std::vector<Crossing> crossings_; // by reading
};

bool is_within(std::int64_t unexplained, std::uint64_t bound) {
    const std::uint64_t size = unexplained < 0
                                   ? std::uint64_t{0} - static_cast<std::uint64_t>(unexplained)
                                   : static_cast<std::uint64_t>(unexplained);
    return size <= bound;
}

} // namespace

std::vector<NvlinkWindow> reconcile_nvlink(std::span<const NvlinkReading> readings,
                                           std::span<const ModelledTransfer> transfers,
                                           const NvlinkReconcileOptions &options) {
    return WindowMaker(readings, transfers, options).run();
}

NvlinkTotals total_of(std::span<const NvlinkWindow> windows) {
    NvlinkTotals totals;
    for (const NvlinkWindow &window : windows) {
        ++totals.windows;
        totals.idle_edges += window.has_idle_edges ? 1 : 0;
        totals.lower_bounds += window.is_lower_bound ? 1 : 0;
        totals.within_bound +=
            is_within(window.unexplained_tx_bytes(), window.bound_tx_bytes) &&
                    is_within(window.unexplained_rx_bytes(), window.bound_rx_bytes)
                ? 1
                : 0;
        totals.modelled_tx_bytes = plus(totals.modelled_tx_bytes, window.modelled_tx_bytes);
        totals.modelled_rx_bytes = plus(totals.modelled_rx_bytes, window.modelled_rx_bytes);
        totals.measured_tx_bytes = plus(totals.measured_tx_bytes, window.measured_tx_bytes);
        totals.measured_rx_bytes = plus(totals.measured_rx_bytes, window.measured_rx_bytes);
    }
    if (!windows.empty()) {
        totals.bound_tx_bytes = windows.size() == 1 ? windows.front().bound_tx_bytes
                                                    : plus(windows.front().bound_tx_bytes,
                                                           windows.back().bound_tx_bytes);
        totals.bound_rx_bytes = windows.size() == 1 ? windows.front().bound_rx_bytes
                                                    : plus(windows.front().bound_rx_bytes,
                                                           windows.back().bound_rx_bytes);
    }
    return totals;
}

} // namespace collwire::gpu
