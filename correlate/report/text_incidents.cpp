// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_incidents.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "correlate/nccl/describe.h"
#include "correlate/nccl/error_text.h"
#include "correlate/nccl/shared_incidents.h"
#include "correlate/report/comm_label.h"
#include "correlate/report/names.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Index;
using model::Model;
using model::NONE;
using nccl::IncidentUse;
using nccl::PortIncident;
using nccl::SharedIncident;

namespace {

constexpr std::size_t MOST_RANGES = 6, MOST_PROCESSES = 8;

std::string port_text(const Model &model, Index index) {
    const model::Port &port = model.ports[index];
    const model::Device &device = model.devices[port.device];
    std::string text =
        fmt::format("{} {} port {}", model.hosts[device.host].name, device.name, port.number);
    if (!port.switch_id.empty())
        text += fmt::format(" (at {}{}{})", port.switch_id, port.switch_port.empty() ? "" : " ",
                            port.switch_port);
    return text;
}

std::uint64_t realtime_of(const Model &model, const PortIncident &incident) {
    return model.hosts[model.devices[model.ports[incident.port].device].host].realtime_ns(
        incident.begin_ns);
}

// "down for 2.1 s, 3 times"
std::string down_text(const PortIncident &incident) {
    if (incident.times_down == 0)
        return {};
    std::string text = "down";
    if (incident.down_ns != 0)
        text += fmt::format(" for {}", short_duration(incident.down_ns));
    if (incident.times_down > 1)
        text += fmt::format(", {} times", incident.times_down);
    if (incident.is_down_at_end)
        text += ", until the recording ended";
    return text;
}

// "32 of 32 ports at leaf-3, within 0.4 s"
std::string shared_text(const Model &model, const SharedIncident &shared) {
    return fmt::format("{} of {} ports {}{}, within {}", grouped(shared.ports),
                       grouped(shared.known_ports), shared.switch_id.empty() ? "of " : "at ",
                       shared.switch_id.empty() ? model.hosts[shared.host].name : shared.switch_id,
                       short_duration(shared.spread_ns));
}

class IncidentTextWriter : private TextWriter {
public:
    IncidentTextWriter(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                       const TextOptions &options)
        : TextWriter(options), model_(model), guesses_(guesses) {}

    std::string run(const std::vector<PortIncident> &incidents) {
        if (incidents.empty())
            return {};
        title("Port incidents (UTC), and what used the port then");
        const std::vector<SharedIncident> together = nccl::find_shared_incidents(model_, incidents);
        const std::size_t few = std::min(together.size(), options_.rows);
        for (const SharedIncident &shared : std::span(together).first(few))
            wrapped(printable(fmt::format("  {}  together: {}", utc_time(shared.realtime_ns),
                                          shared_text(model_, shared))),
                    "                ", "1;31");
        more(together.size(), few, "incidents of several ports");
        const std::size_t shown = std::min(incidents.size(), options_.rows);
        for (std::size_t i = 0; i < shown; ++i)
            show(incidents[i]);
        more(incidents.size(), shown, "port incidents");
        return std::move(text_);
    }

private:
    void detail(std::string_view text) {
        wrapped(printable(fmt::format("                {}", text)), "                  ", "");
    }

    void show(const PortIncident &incident) {
        wrapped(printable(fmt::format("  {}  {}: {}", utc_time(realtime_of(model_, incident)),
                                      port_text(model_, incident.port), signs_text(incident))),
                "                ", incident.times_down == 0 ? "" : "1;31");
        detail(processes_text(incident));
        for (const IncidentUse &use : incident.uses)
            detail(use_text(use));
        if (incident.unplaced_connections != 0)
            detail(fmt::format("{} NCCL connection(s) of this host may use the port, too: their "
                               "queue pairs or sockets are not known",
                               incident.unplaced_connections));
        for (const Index i : incident.errors) {
            const nccl::NcclError &error = model_.nccl.errors[i];
            const model::Host &host = model_.hosts[model_.sessions[error.session].host];
            detail(fmt::format("error at {}: {}", utc_time(host.realtime_ns(error.time_ns)),
                               nccl::error_text(model_, error)));
        }
    }

    [[nodiscard]] std::string signs_text(const PortIncident &incident) const {
        std::map<std::string, std::uint64_t> kinds;
        std::map<std::string, std::uint64_t> counters; // that grew
        for (const Index i : incident.events) {
            const model::Event &event = model_.events[i];
            if (event.kind == "port_errors")
                for (const auto &[name, growth] : event.evidence)
                    counters[name] = model::add_saturating(counters[name], growth);
            else if (event.kind != "carrier_down" && event.kind != "carrier_up" &&
                     event.kind != "port_err" && event.kind != "port_active")
                ++kinds[event.kind];
        }
        std::vector<std::string> signs;
        if (std::string down = down_text(incident); !down.empty())
            signs.push_back(std::move(down));
        for (const auto &[kind, n] : kinds)
            signs.push_back(n == 1 ? kind : fmt::format("{} ({})", kind, n));
        for (const auto &[name, growth] : counters)
            signs.push_back(fmt::format("{} +{}", name, grouped(growth)));
        if (incident.times_down == 0)
            signs.push_back(
                fmt::format("within {}", short_duration(incident.end_ns - incident.begin_ns)));
        return fmt::format("{}", fmt::join(signs, "; "));
    }

    [[nodiscard]] std::string processes_text(const PortIncident &incident) const {
        if (incident.processes.empty())
            return "no process with queue pairs or NCCL's sockets on it was recorded";
        std::set<std::string> jobs;
        std::vector<std::string> pids;
        for (const Index i : incident.processes) {
            const model::Process &process = model_.processes[i];
            if (std::string job = job_title(process); !job.empty())
                jobs.insert(std::move(job));
            if (pids.size() < MOST_PROCESSES)
                pids.push_back(fmt::format("{}", process.pid));
            else if (pids.size() == MOST_PROCESSES)
                pids.emplace_back("...");
        }
        return fmt::format("used by {} process(es): pid {}{}", incident.processes.size(),
                           fmt::join(pids, ", "),
                           jobs.empty() ? "" : fmt::format("; {}", fmt::join(jobs, ", ")));
    }

    // "14 collective(s) (seq 1580-1593)"
    [[nodiscard]] std::string operations_text(const IncidentUse &use,
                                              const std::vector<Index> &operations) const {
        if (use.is_pair)
            return fmt::format("{} send(s) and receives", grouped(operations.size()));
        std::vector<std::uint64_t> numbers;
        numbers.reserve(operations.size());
        for (const Index i : operations)
            numbers.push_back(model_.nccl.collectives[i].seq);
        return fmt::format("{} collective(s) (seq {})", grouped(operations.size()),
                           number_ranges(std::move(numbers), MOST_RANGES));
    }

    [[nodiscard]] std::string use_text(const IncidentUse &use) const {
        std::string text;
        if (use.comm == NONE)
            text = "of no known communicator";
        else
            text = long_comm_label(model_.nccl.communicators[use.comm], guesses_[use.comm]);
        if (!use.ranks.empty())
            text += fmt::format(", rank(s) {}",
                                number_ranges({use.ranks.begin(), use.ranks.end()}, MOST_RANGES));
        text += ": ";
        if (use.running.empty())
            text += "no operation certainly ran then";
        else
            text += fmt::format("{} ran then", operations_text(use, use.running));
        if (!use.perhaps.empty())
            text += fmt::format(", and perhaps {}", operations_text(use, use.perhaps));
        return text + longest_text(use);
    }

    [[nodiscard]] std::string longest_text(const IncidentUse &use) const {
        if (use.longest == NONE)
            return {};
        const nccl::Operation &longest =
            (use.is_pair ? model_.nccl.p2p : model_.nccl.collectives)[use.longest];
        if (longest.least_duration_ns == 0)
            return {};
        std::string text = fmt::format(
            "; the longest, {}{}, took {}", nccl::func_text(longest.func),
            use.is_pair ? fmt::format(" from rank {} to {}", longest.source, longest.destination)
                        : fmt::format(" {}", longest.seq),
            short_duration(longest.least_duration_ns));
        if (longest.most_duration_ns == 0)
            text += " or more, its end is not known";
        else if (longest.most_duration_ns != longest.least_duration_ns)
            text += fmt::format(" to {}", short_duration(longest.most_duration_ns));
        if (use.usual_ns != 0)
            text += fmt::format(" (the median of {} others: {} at most)", grouped(use.usual_of),
                                short_duration(use.usual_ns));
        return text;
    }

    const Model &model_;
    const std::vector<roles::RoleGuess> &guesses_;
};

} // namespace

std::string incidents_text(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                           const std::vector<PortIncident> &incidents, const TextOptions &options) {
    return IncidentTextWriter(model, guesses, options).run(incidents);
}

std::string incidents_line(const Model &model, const std::vector<PortIncident> &incidents) {
    if (incidents.empty())
        return {};
    // The one that met most operations, of those the one that was down longest.
    const auto weight = [](const PortIncident &incident) {
        std::size_t operations = 0;
        for (const IncidentUse &use : incident.uses)
            operations += use.running.size();
        return std::pair(operations, incident.down_ns);
    };
    const PortIncident &worst = *std::max_element(
        incidents.begin(), incidents.end(),
        [&](const PortIncident &a, const PortIncident &b) { return weight(a) < weight(b); });
    const std::string down = down_text(worst);
    std::string text = fmt::format("{}: {} at {}", port_text(model, worst.port),
                                   down.empty() ? model.events[worst.events.front()].kind : down,
                                   utc_time(realtime_of(model, worst)));
    if (const std::size_t operations = weight(worst).first; operations != 0)
        text += fmt::format(", while {} operation(s) used it", grouped(operations));
    if (incidents.size() > 1)
        text += fmt::format("; and {} more incident(s)", grouped(incidents.size() - 1));
    const std::vector<SharedIncident> all = nccl::find_shared_incidents(model, incidents);
    const auto most = std::ranges::max_element(all, {}, &SharedIncident::ports);
    if (most != all.end())
        text = fmt::format("{}, at {}; {}", shared_text(model, *most), utc_time(most->realtime_ns),
                           text);
    return printable(text);
}

} // namespace collwire::report
