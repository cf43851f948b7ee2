// SPDX-License-Identifier: Apache-2.0
// GPUDirect RDMA for NET/Socket: device memory of the double is memory that sockets can read and
// write, so NCCL is told that its NICs can.
#pragma once

#include "tests/cuda_double/library.h"

namespace collwire::cuda_double {

void lend_device_memory_to_sockets(const Library &nccl);

} // namespace collwire::cuda_double
