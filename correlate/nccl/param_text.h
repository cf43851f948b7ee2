// SPDX-License-Identifier: Apache-2.0
// Values of NCCL's parameters for people to read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace collwire::nccl {

// "4194304"; "not set (-2)" where the value is what NCCL puts for a parameter that nobody set, and
// goes on to choose by itself.
[[nodiscard]] std::string param_text(std::string_view name, std::int64_t value);

} // namespace collwire::nccl
