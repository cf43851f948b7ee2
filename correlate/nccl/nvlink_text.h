// SPDX-License-Identifier: Apache-2.0
// NVLink failures as sentences.
#pragma once

#include <string>
#include <string_view>

#include "correlate/model/model.h"

namespace collwire::nccl {

// "GPU 0000:dc:00.0 on node1, link 4: Xid 149 (NETIR_LINK_EVT, fatal)"
[[nodiscard]] std::string xid_text(const model::Model &model, const XidError &error);
// Where it began, what followed, and the operations of that time.
[[nodiscard]] std::string nvlink_failure_text(const model::Model &model,
                                              const NvlinkFailureFacts &failure);
[[nodiscard]] std::string_view nvlink_cause_name(gpu::NvlinkCause cause);
// What the bytes of a GPU were read from, and what they include: "data (payload)".
[[nodiscard]] std::string_view nvlink_source_name(const gpu::NvlinkByteSource &source);

} // namespace collwire::nccl
