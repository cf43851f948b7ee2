// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_nccl/fake_nccl.h"

struct ncclSocket {
    long somewhere;
    int fd;
};
int fake_socket_of_net(const ncclSocket *socket) {
    return socket->fd;
}

// One keeps a sum, the other the last size.
FAKE_API void sendProxyProgress(ncclProxySubArgs *sub, std::size_t size) {
    sub->transSize += size;
}
FAKE_API void recvProxyProgress(ncclProxySubArgs *sub, std::size_t size) {
    sub->transSize = size;
}
