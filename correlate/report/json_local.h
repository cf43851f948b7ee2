// SPDX-License-Identifier: Apache-2.0
// Bytes between ranks of one node, modelled from launches.
#pragma once

#include <vector>

#include "correlate/model/model.h"
#include "correlate/nccl/parts.h"
#include "correlate/report/json_sections.h"

namespace collwire::report {

// null: no recorded communicator has several ranks on a node.
[[nodiscard]] Json local_json(const model::Model &model);
// The fields of an operation.
void add_local(Json &json, const model::Model &model, const nccl::Operation &operation);
[[nodiscard]] Json local_parts_json(const model::Model &model,
                                    const std::vector<nccl::LocalPart> &parts);

} // namespace collwire::report
