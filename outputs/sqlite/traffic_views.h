// SPDX-License-Identifier: Apache-2.0
// Views of a job's traffic: what it calls, how large and how long, between which GPUs, over which
// tiers at which time, and how regularly.
#pragma once

#include <span>

#include "outputs/sqlite/views.h"

namespace collwire::sqlite {

[[nodiscard]] std::span<const View> traffic_views();

} // namespace collwire::sqlite
