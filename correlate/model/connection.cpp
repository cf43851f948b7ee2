// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/connection.h"

#include <algorithm>

#include "collwire/qp_records.h"

namespace collwire::model {

Life life_of(const Model &model, const Qp &qp) {
    const Host &host = model.hosts[qp.host];
    const Session &session = model.sessions[qp.session];
    const std::uint64_t begin_ns =
        qp.has(CW_QP_PREEXISTING) ? session.begin_ns : qp.key.generation_ns;
    const std::uint64_t end_ns = qp.destroyed_ns != 0 ? qp.destroyed_ns : session.end_ns;
    const std::uint64_t begin_realtime_ns = host.rough_realtime_ns(begin_ns);
    return {begin_realtime_ns,
            std::max(begin_realtime_ns, host.rough_realtime_ns(std::max(begin_ns, end_ns)))};
}

bool are_apart(const Life &a, const Life &b, std::uint64_t slack_ns) {
    return a.begin_ns > add_saturating(b.end_ns, slack_ns) ||
           b.begin_ns > add_saturating(a.end_ns, slack_ns);
}

bool psns_contradict(const Qp &a, const Qp &b) {
    if (a.has(CW_QP_PREEXISTING) || b.has(CW_QP_PREEXISTING))
        return false;
    const auto differ = [](const Qp &from, const Qp &to) {
        return from.has(CW_QP_PSN_SQ) && to.has(CW_QP_PSN_RQ) &&
               ((from.address.sq_psn ^ to.address.rq_psn) & PSN_MASK) != 0;
    };
    return differ(a, b) || differ(b, a);
}

} // namespace collwire::model
