// SPDX-License-Identifier: Apache-2.0
#include "correlate/verdict/verdict.h"

namespace collwire::verdict {

std::string_view code_name(Code code) {
    switch (code) {
    case Code::CallsDiffer:
        return "calls_differ";
    case Code::RankExited:
        return "rank_exited";
    case Code::NcclError:
        return "nccl_error";
    case Code::WaitCircle:
        return "wait_circle";
    case Code::RankNotCalled:
        return "rank_not_called";
    case Code::RankNotLaunched:
        return "rank_not_launched";
    case Code::RankWithoutCapture:
        return "rank_without_capture";
    case Code::TransferStalled:
        return "transfer_stalled";
    case Code::RanksNotComparable:
        return "ranks_not_comparable";
    case Code::NetworkInnocent:
        break;
    }
    return "network_innocent";
}

std::string_view severity_name(Severity severity) {
    return severity == Severity::Note ? "note" : "failure";
}

std::string_view confidence_name(Confidence confidence) {
    return confidence == Confidence::Certain ? "certain" : "probable";
}

} // namespace collwire::verdict
