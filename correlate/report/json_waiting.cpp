// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/json_waiting.h"

#include <nlohmann/json.hpp>

#include "correlate/nccl/describe.h"

namespace collwire::report {

namespace {

Json percentiles_json(const nccl::BoundedPercentiles &of) {
    if (of.n == 0)
        return nullptr;
    return {{"n", of.n},
            {"least_p50_ns", of.least_p50_ns},
            {"most_p50_ns", of.most_p50_ns},
            {"least_p95_ns", of.least_p95_ns},
            {"most_p95_ns", of.most_p95_ns}};
}

} // namespace

Json waiting_json(const nccl::WaitingTimes &times) {
    Json last_ranks = Json::array();
    for (const auto &[rank, operations] : times.last_ranks)
        last_ranks.push_back({{"rank", rank}, {"operations", operations}});
    return {{"comm", times.comm},
            {"op", nccl::func_text(times.func)},
            {"size_bytes", known(times.size_bytes)},
            {"algorithm", text_or_null(nccl::algorithm_text(times.algorithm))},
            {"protocol", text_or_null(nccl::protocol_text(times.protocol))},
            {"waited", times.for_rank},
            {"transferred", times.for_the_rest},
            {"unclear", times.unclear},
            {"spread", percentiles_json(times.spread)},
            {"transfer", percentiles_json(times.transfer)},
            {"sum_waited_ns", times.sum_waited_ns},
            {"last_ranks", std::move(last_ranks)}};
}

} // namespace collwire::report
