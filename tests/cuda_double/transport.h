// SPDX-License-Identifier: Apache-2.0
// Which of NCCL's transports a connection has: the name that NCCL itself gives to it.
#pragma once

#include <optional>
#include <string>

#include "tests/cuda_double/device_state.h"
#include "tests/cuda_double/host_communicator.h"

namespace collwire::cuda_double {

// "net", "shm", "p2p": ncclTransport's name in lower case, found through the transportComm of the
// host's ncclConnector. Nothing where NCCL's memory or the layout does not lead there.
std::optional<std::string> transport_of(const HostCommunicator &host, int channel, int peer,
                                        Direction direction, int index);

} // namespace collwire::cuda_double
