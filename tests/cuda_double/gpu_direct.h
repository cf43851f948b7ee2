// SPDX-License-Identifier: Apache-2.0
// GPUDirect RDMA for NET/Socket. The double's device memory is host memory, which sockets read and
// write; so the double says to NCCL that its NICs read and write device memory.
#pragma once

#include "tests/cuda_double/library.h"

namespace collwire::cuda_double {

void lend_device_memory_to_sockets(const Library &nccl);

} // namespace collwire::cuda_double
