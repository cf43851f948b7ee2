// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_errors.h"

#include <fmt/format.h>

#include <map>
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

    // "12:00:01.500", or "before 12:00:01.500" where it was there already.
    [[nodiscard]] std::string time_of(const NcclError &error) const {
        return (error.was_there ? "before " : "") +
               utc_time(host_of(error).realtime_ns(error.time_ns));
    }

    // "rank 1 of dp (0x1122334455667788) on node2 pid 812"
    [[nodiscard]] std::string who(const NcclError &error) const {
        std::string text;
        if (error.instance != NONE) {
            const nccl::Instance &instance = model_.nccl.instances[error.instance];
            const std::string name = instance.comm == NONE
                                         ? std::string{}
                                         : model_.nccl.communicators[instance.comm].name;
            text =
                fmt::format("rank {} of {}{} on ", instance.record.rank,
                            name.empty() ? nccl::hash_text(instance.record.comm_hash) : name,
                            error.also.empty() ? ""
                                               : fmt::format(" (and of {} other communicator(s))",
                                                             error.also.size()));
        }
        return text + fmt::format("{} pid {}", host_of(error).name, error.tgid);
    }

    void show(const NcclError &error) {
        const auto order = nccl::error_order_name(error.order);
        wrapped("  " + printable(fmt::format("{}  {}{}: {}", time_of(error), who(error),
                                             order.empty() ? "" : fmt::format(" ({})", order),
                                             nccl::error_text(model_, error))),
                "                ", error.order == nccl::ErrorOrder::Follows ? "" : "1;31");
    }

    // All ranks tend to say the same.
    void warnings() {
        std::map<std::string, std::size_t> known;
        std::vector<std::pair<const NcclError *, std::size_t>> kinds; // and how often
        for (const NcclError &error : model_.nccl.errors) {
            if (error.kind != ErrorKind::Warning)
                continue;
            const auto [at, is_new] = known.try_emplace(error.text, kinds.size());
            if (is_new)
                kinds.emplace_back(&error, 0);
            ++kinds[at->second].second;
        }
        if (kinds.empty())
            return;
        title("NCCL's warnings (UTC), the first of each");
        std::size_t shown = 0;
        for (; shown < kinds.size() && shown < options_.rows; ++shown) {
            const auto &[error, times] = kinds[shown];
            wrapped("  " + printable(fmt::format(
                               "{}  {}{}: {}", time_of(*error), who(*error),
                               times == 1 ? "" : fmt::format(" and {} more times", times - 1),
                               error->text)),
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
