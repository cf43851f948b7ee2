// SPDX-License-Identifier: Apache-2.0
#include "correlate/stall/call_text.h"

#include <fmt/format.h>

#include "correlate/capture/nccl_names.h"
#include "correlate/model/counters.h"
#include "correlate/nccl/describe.h"
#include "correlate/report/units.h"

namespace collwire::stall {

std::string call_text(std::uint8_t func, std::uint64_t count, std::uint8_t datatype) {
    const std::uint64_t each = capture::nccl_datatype_bytes(datatype);
    return each == 0 ? fmt::format("{} of {} elements", nccl::func_text(func), count)
                     : fmt::format("{} of {}", nccl::func_text(func),
                                   report::human_bytes(model::multiply_saturating(count, each)));
}

std::string variant_text(std::uint8_t func, std::uint64_t count, std::uint8_t datatype,
                         std::int32_t root) {
    std::string text = call_text(func, count, datatype);
    text += fmt::format(" {}", nccl::datatype_text(datatype));
    return nccl::has_root(func) ? text + fmt::format(", root {}", root) : text;
}

} // namespace collwire::stall
