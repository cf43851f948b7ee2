// SPDX-License-Identifier: Apache-2.0
// Bytes between ranks of one node, modelled from launches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "correlate/nccl/local_traffic.h"
#include "correlate/report/text_report.h"
#include "correlate/roles/facts.h"

namespace collwire::report {

// Empty: no recorded communicator has several ranks on a node.
[[nodiscard]] std::string local_text(const model::Model &model,
                                     const std::vector<roles::RoleGuess> &guesses,
                                     const TextOptions &options);

// "NVLink", "SHM"
[[nodiscard]] std::string_view local_transport_title(nccl::LocalTransport transport);

} // namespace collwire::report
