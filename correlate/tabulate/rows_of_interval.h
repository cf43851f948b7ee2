// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "correlate/intervals/interval.h"
#include "correlate/intervals/sequence.h"
#include "correlate/model/model.h"

namespace collwire::tabulate {

// `model`: joined, of that part of the captures alone, where counters end inside it
// (capture::Window::is_one_of_many).
[[nodiscard]] intervals::Interval rows_of_interval(const model::Model &model,
                                                   const intervals::Bounds &bounds);

} // namespace collwire::tabulate
