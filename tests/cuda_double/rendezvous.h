// SPDX-License-Identifier: Apache-2.0
// How the ranks of the test program agree on NCCL's unique id.
#pragma once

#include <string>

#include "tests/cuda_double/fakecuda/nccl.h"

// `place`: file:PATH, or tcp:HOST:PORT where rank 0 listens. A port below the ephemeral ones: a
// client that connects to itself would take the port from rank 0.
ncclUniqueId agree_on_id(const std::string &place, int rank, int ranks);

[[noreturn]] void give_up(const std::string &text);
void require(ncclResult_t result, const char *what);
