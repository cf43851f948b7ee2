// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/intervals/render.h"
#include "correlate/report/units.h"

namespace collwire::intervals {
namespace {

using report::grouped;
using report::printable;
using report::short_duration;

constexpr double NS_PER_S = 1e9, MEGA = 1e6, GIGA = 1e9, BITS = 8;
constexpr double LEAST_GB_A_SECOND = 0.1; // below: MB/s
constexpr double LEAST_SHARE = 0.0005;
constexpr std::uint64_t DAY_NS = 86'400'000'000'000;
constexpr std::string_view LINE = "{:<12}  {:>11}  {:>9}  {:>10}  {:<28}  {:<30}  {}";

double seconds_of(const rows::IntervalRow &row) {
    return static_cast<double>(row.end_realtime_ns - row.begin_realtime_ns) / NS_PER_S;
}

std::string rate_text(double bytes_a_second) {
    const bool is_fast = bytes_a_second >= LEAST_GB_A_SECOND * GIGA;
    return fmt::format("{:.3g} {}", bytes_a_second / (is_fast ? GIGA : MEGA),
                       is_fast ? "GB/s" : "MB/s");
}

std::string percent_text(double share) {
    return share > 0 && share < LEAST_SHARE ? "< 0.1 %" : fmt::format("{:.1f} %", share * 100);
}

// A sum of those that are known.
std::optional<double> sum_of(std::initializer_list<std::optional<std::uint64_t>> all) {
    std::optional<double> sum;
    for (const std::optional<std::uint64_t> &one : all)
        if (one)
            sum = sum.value_or(0) + static_cast<double>(*one);
    return sum;
}

std::optional<double> bytes_of(const rows::IntervalRow &row) {
    return sum_of({row.tx_wire_bytes, row.derived_tx_wire_bytes, row.tcp_tx_payload_bytes,
                   row.tcp_derived_tx_payload_bytes});
}

double bytes_of(const rows::IntervalTierRow &row) {
    return sum_of({row.tx_wire_bytes, row.derived_tx_wire_bytes, row.tcp_tx_payload_bytes})
        .value_or(0);
}

std::string sent_text(const rows::IntervalRow &row) {
    const std::optional<double> bytes = bytes_of(row);
    return bytes ? rate_text(*bytes / seconds_of(row)) : "n/a";
}

std::string tiers_text(const Interval &interval) {
    double all = 0;
    for (const rows::IntervalTierRow &row : interval.tiers)
        all += bytes_of(row);
    std::vector<std::string> parts;
    for (const rows::IntervalTierRow &row : interval.tiers)
        if (const double bytes = bytes_of(row); bytes > 0)
            parts.push_back(
                fmt::format("{} {:.0f} %",
                            rows::Vocabulary<rows::Tier>::words[static_cast<std::size_t>(row.tier)],
                            bytes / all * 100));
    return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, ", "));
}

// The port with the largest share of its rate, in one direction.
std::string busiest_text(const Interval &interval) {
    const rows::IntervalPortRow *busiest = nullptr;
    double most = -1;
    for (const rows::IntervalPortRow &row : interval.ports) {
        const double share =
            row.rate_mbps == 0
                ? -1
                : static_cast<double>(std::max(row.tx_wire_bytes, row.rx_wire_bytes)) * BITS /
                      (static_cast<double>(row.rate_mbps) * MEGA) / seconds_of(interval.row);
        if (share > most) {
            most = share;
            busiest = &row;
        }
    }
    return busiest == nullptr ? "n/a"
                              : fmt::format("{} {} {}", printable(busiest->host),
                                            printable(busiest->device), percent_text(most));
}

std::string waiting_text(const rows::IntervalRow &row) {
    const std::uint64_t known = row.waited_for_rank + row.transferred;
    if (known + row.unclear == 0)
        return "-";
    if (known == 0)
        return "unclear";
    std::string text = fmt::format("{} of {}", grouped(row.waited_for_rank), grouped(known));
    if (row.waited_ns != 0)
        text += fmt::format(", {}", short_duration(row.waited_ns));
    return text;
}

} // namespace

std::string TextLines::head() const {
    const std::string title =
        fmt::format("{} to {}, in intervals of {}", report::utc(recorded_.begin_ns),
                    report::utc(recorded_.end_ns), short_duration(recorded_.every_ns));
    const std::string columns =
        fmt::format(fmt::runtime(LINE), "time (UTC)", "collectives", "sends", "sent", "by tier",
                    "busiest NIC, of its rate", "waited for a rank");
    return fmt::format("{}\n{}\n\n{}\n", title, recorded_.local,
                       style_.color ? fmt::format("\033[1m{}\033[0m", columns) : columns);
}

std::string TextLines::line(const Interval &interval) {
    const rows::IntervalRow &row = interval.row;
    std::string text;
    if (const std::uint64_t day = row.begin_realtime_ns / DAY_NS; day != day_) {
        if (day_ != 0)
            text += report::utc(row.begin_realtime_ns).substr(0, sizeof("2026-11-21") - 1) + "\n";
        day_ = day;
    }
    lost_records_ = std::max(lost_records_, interval.lost_records);
    lacks_bytes_ = lacks_bytes_ || row.qps_without_bytes != 0;
    if (row.hosts == 0)
        return text + fmt::format("{:<12}  nothing was recorded\n",
                                  report::utc_time(row.begin_realtime_ns));
    text += fmt::format(fmt::runtime(LINE), report::utc_time(row.begin_realtime_ns),
                        grouped(row.collectives), grouped(row.sends), sent_text(row),
                        tiers_text(interval), busiest_text(interval), waiting_text(row)) +
            "\n";
    text += notes(interval);
    most_hosts_ = std::max(most_hosts_, row.hosts);
    return text;
}

std::string TextLines::notes(const Interval &interval) const {
    const rows::IntervalRow &row = interval.row;
    std::vector<std::string> all;
    if (row.hosts < most_hosts_)
        all.push_back(fmt::format("recorded on {} of {} hosts", row.hosts, most_hosts_));
    if (row.late_ranks != 0)
        all.push_back(fmt::format(
            "late: rank {} of {} ({}, pid {}), {} calls, {} after the median rank{}",
            *row.late_rank, interval.late_label, printable(*row.late_host), *row.late_pid,
            grouped(*row.late_calls), short_duration(*row.late_median_ns),
            row.late_ranks == 1 ? "" : fmt::format("; {} more ranks", row.late_ranks - 1)));
    if (row.worst_incident)
        all.push_back("port: " + printable(*row.worst_incident));
    if (row.errors != 0)
        all.push_back(fmt::format("{} error(s) of NCCL", grouped(row.errors)));
    std::string text;
    for (const std::string &note : all)
        text += style_.color ? fmt::format("              \033[1;31m{}\033[0m\n", note)
                             : fmt::format("              {}\n", note);
    return text;
}

std::string TextLines::end() const {
    std::string text =
        "\nsent: whole frames of queue pairs, measured or computed, and the payload of "
        "NCCL's sockets\n"
        "waited for a rank: collectives of which half of the time or more passed "
        "before the last rank called, of those where clocks and ends show it, and "
        "for how long in sum\n"
        "more of one interval: the same command with --from and --to in place of "
        "--every\n";
    if (lacks_bytes_)
        text += "the bytes of some queue pairs are not known: what was sent is a lower bound\n";
    if (lost_records_ != 0)
        text += fmt::format("{} records were lost: counts and bytes are lower bounds from the "
                            "first loss on\n",
                            grouped(lost_records_));
    return text;
}

} // namespace collwire::intervals
