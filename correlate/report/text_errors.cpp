// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "correlate/nccl/describe.h"
#include "correlate/nccl/error_text.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Model;
using model::NONE;
using nccl::ErrorKind;
using nccl::NcclError;

namespace {

class ErrorTextWriter : private TextWriter {
public:
    ErrorTextWriter(const Model &model, const TextOptions &options)
        : TextWriter(options), model_(model) {}

    std::string run() {
        std::vector<const NcclError *> errors;
        for (const NcclError &error : model_.nccl.errors)
            if (error.kind != ErrorKind::Warning)
                errors.push_back(&error);
        if (!errors.empty())
            title("Errors (UTC)");
        std::size_t shown = 0;
        for (; shown < errors.size() && shown < options_.rows; ++shown)
            show(*errors[shown]);
        more(errors.size(), shown, "errors");
        warnings();
        return std::move(text_);
    }

private:
    [[nodiscard]] const model::Host &host_of(const NcclError &error) const {
        return model_.hosts[model_.sessions[error.session].host];
    }

    [[nodiscard]] std::string time_of(const NcclError &error) const {
        return utc_time(host_of(error).realtime_ns(error.time_ns));
    }

    [[nodiscard]] static std::string_view since(bool was_there) {
        return was_there ? ", already there when recording began" : "";
    }

    [[nodiscard]] std::string comm_of(const nccl::Instance &instance) const {
        const std::string name =
            instance.comm == NONE ? std::string{} : model_.nccl.communicators[instance.comm].name;
        return name.empty() ? nccl::hash_text(instance.record.comm_hash) : name;
    }

    // "rank 1 of dp on node2 pid 812"
    [[nodiscard]] std::string who(const NcclError &error) const {
        std::string text;
        if (error.instance != NONE) {
            const nccl::Instance &instance = model_.nccl.instances[error.instance];
            text =
                fmt::format("rank {} of {}{} on ", instance.record.rank, comm_of(instance),
                            error.also.empty() ? ""
                                               : fmt::format(" (and of {} other communicator(s))",
                                                             error.also.size()));
        }
        return text + fmt::format("{} pid {}", host_of(error).name, error.tgid);
    }

    void show(const NcclError &error) {
        const auto order = nccl::error_order_name(error.order);
        wrapped("  " +
                    printable(fmt::format("{}  {}{}{}: {}", time_of(error), who(error),
                                          order.empty() ? "" : fmt::format(" ({})", order),
                                          since(error.was_there), nccl::error_text(model_, error))),
                "                ", error.order == nccl::ErrorOrder::Follows ? "" : "1;31");
    }

    // "4 ranks (0-3 of world)" for equal warnings of several ranks, with their number if a rank
    // repeats one.
    [[nodiscard]] std::string who(const std::vector<const NcclError *> &alike) const {
        std::set<model::Index> comms;
        std::set<std::int32_t> ranks;
        for (const NcclError *error : alike) {
            const model::Index instance = error->instance;
            comms.insert(instance == NONE ? NONE : model_.nccl.instances[instance].comm);
            if (instance != NONE)
                ranks.insert(model_.nccl.instances[instance].record.rank);
        }
        if (comms.size() != 1 || *comms.begin() == NONE || ranks.size() == 1)
            return who(*alike.front()) +
                   (alike.size() == 1 ? "" : fmt::format(" and {} more times", alike.size() - 1));
        return fmt::format(
            "{} ranks ({} of {}){}", ranks.size(), number_ranges({ranks.begin(), ranks.end()}),
            comm_of(model_.nccl.instances[alike.front()->instance]),
            alike.size() == ranks.size() ? "" : fmt::format(", {} times", alike.size()));
    }

    // Ranks of one job often give the same warning.
    void warnings() {
        std::map<std::string, std::size_t> known;
        std::vector<std::vector<const NcclError *>> kinds;
        for (const NcclError &error : model_.nccl.errors) {
            if (error.kind != ErrorKind::Warning)
                continue;
            const auto [at, is_new] = known.try_emplace(error.text, kinds.size());
            if (is_new)
                kinds.emplace_back();
            kinds[at->second].push_back(&error);
        }
        if (kinds.empty())
            return;
        title("NCCL's warnings (UTC), the first of each");
        std::size_t shown = 0;
        for (; shown < kinds.size() && shown < options_.rows; ++shown) {
            const NcclError &error = *kinds[shown].front();
            const auto was_there = [](const NcclError *one) { return one->was_there; };
            wrapped("  " + printable(fmt::format(
                               "{}  {}{}: {}", time_of(error), who(kinds[shown]),
                               since(std::ranges::all_of(kinds[shown], was_there)), error.text)),
                    "                ", "");
        }
        more(kinds.size(), shown, "warnings");
    }

    const Model &model_;
};

} // namespace

std::string errors_text(const Model &model, const TextOptions &options) {
    return ErrorTextWriter(model, options).run();
}

} // namespace collwire::report
