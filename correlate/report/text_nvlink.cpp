// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_nvlink.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "correlate/capture/nvlink_names.h"
#include "correlate/nccl/describe.h"
#include "correlate/nccl/nvlink_text.h"
#include "correlate/report/table.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Model;

namespace {

constexpr std::uint16_t GET_STATE = 165;
constexpr std::size_t TREND_PARTS = 6;

class NvlinkTextWriter : private TextWriter {
public:
    NvlinkTextWriter(const Model &model, const TextOptions &options)
        : TextWriter(options), model_(model), nvlink_(model.nccl.nvlink) {}

    std::string run() {
        const bool has_links = std::ranges::any_of(nvlink_.gpus, [this](const auto &gpu) {
            return from(gpu).record.links != 0 || from(gpu).history.samples() != 0;
        });
        if (!has_links && nvlink_.errors.empty())
            return {};
        title("NVLink");
        failures();
        gpus();
        counters();
        other_errors();
        return std::move(text_);
    }

private:
    [[nodiscard]] const nccl::GatheredNvlink &from(const nccl::NvlinkGpu &gpu) const {
        return model_.nccl.gathered.nvlink_gpus[gpu.gathered];
    }
    [[nodiscard]] std::string name_of(const nccl::NvlinkGpu &gpu) const {
        return printable(model_.hosts[gpu.host].name) + " " +
               nccl::bus_id_text(from(gpu).record.bus_id);
    }

    void failures() {
        std::size_t shown = 0;
        for (const nccl::NvlinkFailureFacts &failure : nvlink_.failures) {
            if (shown == options_.rows)
                break;
            const nccl::XidError &first = nvlink_.errors[failure.failure.first];
            wrapped(fmt::format("  {} {}", utc_time(first.realtime_ns),
                                printable(nccl::nvlink_failure_text(model_, failure))),
                    "    ", shown++ == 0 ? "1;31" : "31");
        }
        more(nvlink_.failures.size(), shown, "failures");
    }

    [[nodiscard]] static std::string links_text(const nccl::GatheredNvlink &gpu) {
        std::size_t active = 0, known = 0;
        for (std::uint16_t link = 0;
             link < std::min<std::uint32_t>(gpu.record.links, gpu.history.MAX_LINKS); ++link)
            if (const auto state = gpu.history.value(GET_STATE, link)) {
                ++known;
                active += *state == 1 ? 1 : 0;
            }
        return known == 0 ? fmt::format("{}", gpu.record.links)
                          : fmt::format("{} of {} up", active, gpu.record.links);
    }

    // "1.20 GiB (2.1 %)"; a minus: modelled and not measured.
    [[nodiscard]] static std::string unexplained_text(std::uint64_t measured,
                                                      std::uint64_t modelled) {
        const bool is_less = measured < modelled;
        const std::uint64_t size = is_less ? modelled - measured : measured - modelled;
        return fmt::format("{}{} ({})", is_less ? "-" : "", human_bytes(size),
                           share(size, std::max(measured, modelled)));
    }

    void gpus() {
        Table table({{"GPU"},
                     {"links"},
                     {"counter", Align::Left, false, 3},
                     {"sent", Align::Right},
                     {"received", Align::Right},
                     {"modelled sent", Align::Right},
                     {"unexplained", Align::Right},
                     {"windows", Align::Right, false, 1},
                     {"not read", Align::Right, false, 2}});
        std::size_t shown = 0, all = 0;
        bool is_any_modelled = false;
        for (const nccl::NvlinkGpu &gpu : nvlink_.gpus) {
            const nccl::GatheredNvlink &of = from(gpu);
            if (of.record.links == 0 && of.history.samples() == 0)
                continue;
            ++all;
            if (shown == options_.rows)
                continue;
            ++shown;
            const auto &source = of.history.byte_source();
            const auto bytes = [&](std::uint64_t measured) {
                return source ? (gpu.is_lower_bound ? ">= " : "") + human_bytes(measured)
                              : std::string("n/a");
            };
            std::string modelled = "n/a", unexplained = "n/a", windows = "n/a";
            if (gpu.windows && !gpu.windows->empty()) {
                const gpu::NvlinkTotals total = gpu::total_of(*gpu.windows);
                is_any_modelled = true;
                modelled = human_bytes(total.modelled_tx_bytes);
                unexplained = unexplained_text(total.measured_tx_bytes, total.modelled_tx_bytes);
                windows = fmt::format("{} of {}", total.within_bound, total.windows);
            }
            table.add({name_of(gpu), links_text(of),
                       source ? std::string(nccl::nvlink_source_name(*source)) : "not measured",
                       bytes(gpu.measured_tx_bytes), bytes(gpu.measured_rx_bytes), modelled,
                       unexplained, windows,
                       gpu.unmeasured_ns == 0 ? "-" : duration(gpu.unmeasured_ns)});
        }
        if (table.empty())
            return;
        text_ += table.text(width_);
        more(all, shown, "GPUs");
        if (is_any_modelled)
            wrapped(
                "  windows: those between idle moments, or of 10 s, whose unexplained bytes are "
                "within the bound of the method; \"with overhead\" and \"link bytes\" include "
                "NVLink's own protocol, which is not modelled",
                "  ", "");
    }

    // Each link's errors and recoveries over six parts of the recording.
    void counters() {
        Table table({{"GPU"},
                     {"link", Align::Right},
                     {"counter"},
                     {"increase", Align::Right},
                     {"over time, six parts", Align::Left, false, 1},
                     {""}});
        std::size_t shown = 0, all = 0;
        for (const nccl::NvlinkGpu &gpu : nvlink_.gpus) {
            const gpu::NvlinkHistory &history = from(gpu).history;
            for (const auto &[place, counter] : history.link_counters()) {
                if (counter.counter.increase() == 0)
                    continue;
                ++all;
                if (shown == options_.rows)
                    continue;
                ++shown;
                const auto parts = gpu::nvlink_trend(counter.growths, history.first_ns(),
                                                     history.last_ns(), TREND_PARTS);
                std::string trend;
                for (const std::uint64_t part : parts)
                    trend += fmt::format("{}{}", trend.empty() ? "" : " ", grouped(part));
                table.add({name_of(gpu), std::to_string(place.first),
                           std::string(capture::nvml_field_name(place.second)),
                           (counter.counter.restarts() == 0 ? "" : ">= ") +
                               grouped(counter.counter.increase()),
                           trend, gpu::is_rising(parts) ? "rising" : ""});
            }
        }
        if (!table.empty())
            text_ += table.text(width_);
        more(all, shown, "counters of links that grew");
    }

    // Errors of the driver that belong to no failure above.
    void other_errors() {
        std::set<std::size_t> in_failures;
        for (const nccl::NvlinkFailureFacts &failure : nvlink_.failures)
            in_failures.insert(failure.failure.errors.begin(), failure.failure.errors.end());
        std::size_t shown = 0;
        const std::size_t all = nvlink_.errors.size() - in_failures.size();
        for (std::size_t i = 0; i < nvlink_.errors.size() && shown < options_.rows; ++i) {
            if (in_failures.contains(i))
                continue;
            const nccl::XidError &error = nvlink_.errors[i];
            const bool is_before = (error.record.flags & CW_XID_BEFORE) != 0;
            wrapped(fmt::format("  {} {}{}", utc_time(error.realtime_ns),
                                printable(nccl::xid_text(model_, error)),
                                is_before ? ", before the recording" : ""),
                    "    ", "");
            ++shown;
        }
        more(all, shown, "other errors of the NVIDIA driver");
    }

    const Model &model_;
    const nccl::NvlinkFacts &nvlink_;
};

} // namespace

std::string nvlink_text(const Model &model, const TextOptions &options) {
    return NvlinkTextWriter(model, options).run();
}

} // namespace collwire::report
