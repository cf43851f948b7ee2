// SPDX-License-Identifier: Apache-2.0
// NCCL's part of the JSON report.
#pragma once

#include "correlate/nccl/describe.h"
#include "correlate/nccl/network_plugins.h"
#include "correlate/nccl/parts.h"
#include "correlate/report/json_sections.h"

namespace collwire::report {

[[nodiscard]] Json nccl_image_json(const model::Model &model, const nccl::Image &image);
[[nodiscard]] Json network_json(const model::Model &model, const nccl::NetworkUse &use);
// `parts` null: without parts.
[[nodiscard]] Json collective_json(const model::Model &model, const nccl::Operation &operation,
                                   const nccl::Parts *parts);
[[nodiscard]] Json p2p_json(const model::Model &model, const nccl::Operation &operation,
                            const nccl::Parts *parts);
[[nodiscard]] Json matrix_json(const nccl::MatrixKey &key, const nccl::MatrixCell &cell);
[[nodiscard]] Json identity_json(const model::Model &model);
[[nodiscard]] Json control_json(const model::Model &model);
[[nodiscard]] Json unjoined_json(const model::Model &model, const nccl::UnlistedLaunches &unjoined);
[[nodiscard]] Json replays_json(const model::Model &model, const nccl::UnlistedLaunches &replays);
[[nodiscard]] Json other_calls_json(const nccl::OtherCalls::value_type &calls);
[[nodiscard]] Json finding_json(const nccl::Finding &finding);
// A queue pair's role for NCCL.
void add_nccl(Json &qp_json, const model::Model &model, model::Index qp);

} // namespace collwire::report
