// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/text_waiting.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "correlate/nccl/describe.h"
#include "correlate/nccl/waiting.h"
#include "correlate/report/comm_label.h"
#include "correlate/report/names.h"
#include "correlate/report/table.h"
#include "correlate/report/text_writer.h"
#include "correlate/report/units.h"

namespace collwire::report {

using model::Model;
using nccl::WaitingTimes;

namespace {

std::string bounded_text(std::uint64_t n, std::uint64_t least_ns, std::uint64_t most_ns) {
    if (n == 0)
        return "n/a";
    return (most_ns - std::min(least_ns, most_ns) > most_ns / 10 ? "<= " : "") +
           short_duration(most_ns);
}

// The rank that was the last one most often.
std::string last_rank_text(const WaitingTimes &of) {
    if (of.last_ranks.empty())
        return of.for_rank == 0 ? "-" : "n/a";
    const auto most =
        std::ranges::max_element(of.last_ranks, {}, [](const auto &last) { return last.second; });
    return fmt::format("{} ({})", most->first, grouped(most->second));
}

class WaitingTextWriter : private TextWriter {
public:
    WaitingTextWriter(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                      const TextOptions &options)
        : TextWriter(options), nccl_(model.nccl), guesses_(guesses),
          all_(options.waiting != nullptr ? *options.waiting : nccl::find_waiting(model)) {
        std::erase_if(all_,
                      [](const WaitingTimes &of) { return of.for_rank + of.for_the_rest == 0; });
    }

    std::string run() {
        if (all_.empty())
            return {};
        title("Waiting for the last rank to call, and transfer from then on, the longest waits "
              "first");
        Table table({{"comm", Align::Left, true},
                     {"operation"},
                     {"size", Align::Right},
                     {"waiting", Align::Right},
                     {"transfer", Align::Right},
                     {"unclear", Align::Right},
                     {"wait p50", Align::Right},
                     {"wait p95", Align::Right, false, 1},
                     {"transfer p50", Align::Right},
                     {"transfer p95", Align::Right, false, 2},
                     {"last rank", Align::Left}});
        const std::size_t shown = std::min(all_.size(), options_.rows);
        for (std::size_t i = 0; i < shown; ++i)
            add(table, all_[i]);
        text_ += table.text(width_);
        wrapped("  waiting, transfer: collectives of which half of the time or more passed before "
                "the last rank called, or after it; unclear: the bounds of clocks and ends allow "
                "both. Ends are sampled without `--network-times`. Calls are those of hosts: a GPU "
                "that starts late counts as transfer",
                "  ", "");
        more(all_.size(), shown, "kinds of collectives");
        return std::move(text_);
    }

private:
    void add(Table &table, const WaitingTimes &of) {
        const auto &[n_waits, wait_least, wait_most, long_wait_least, long_wait_most] = of.spread;
        const auto &[n, least, most, long_least, long_most] = of.transfer;
        const nccl::Communicator &comm = nccl_.communicators[of.comm];
        table.add({fmt::format("{} {}", of.comm, short_comm_label(comm, guesses_[of.comm])),
                   nccl::func_text(of.func), human_bytes(of.size_bytes), grouped(of.for_rank),
                   grouped(of.for_the_rest), grouped(of.unclear),
                   bounded_text(n_waits, wait_least, wait_most),
                   bounded_text(n_waits, long_wait_least, long_wait_most),
                   bounded_text(n, least, most), bounded_text(n, long_least, long_most),
                   last_rank_text(of)});
    }

    const nccl::NcclFacts &nccl_;
    const std::vector<roles::RoleGuess> &guesses_;
    std::vector<WaitingTimes> all_;
};

} // namespace

std::string waiting_text(const Model &model, const std::vector<roles::RoleGuess> &guesses,
                         const TextOptions &options) {
    return WaitingTextWriter(model, guesses, options).run();
}

} // namespace collwire::report
