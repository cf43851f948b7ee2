// SPDX-License-Identifier: Apache-2.0
// Values of NCCL parameters as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace collwire::nccl {

// "4194304"; "not set (-2)" for NCCL's marker of an unset parameter, for which it chooses a value
// itself.
[[nodiscard]] std::string param_text(std::string_view name, std::int64_t value);

} // namespace collwire::nccl
