// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_nccl/fake_nccl.h"

// Laid out otherwise in another unit: nothing of it is known.
struct ncclSocket {
    int fd;
};
int fake_socket_of_init(const ncclSocket *socket) {
    return socket->fd;
}

// As NCCL_PARAM makes them: read at the first use.
__attribute__((noinline)) std::int64_t ncclParamIbTc() {
    static std::int64_t cache = INT64_MIN;
    if (__atomic_load_n(&cache, __ATOMIC_RELAXED) == INT64_MIN)
        __atomic_store_n(&cache, 106, __ATOMIC_RELAXED);
    return cache;
}
FAKE_API long fake_ib_tc() {
    return ncclParamIbTc();
}

FAKE_API int ncclGetVersion(int *version) {
    if (version == nullptr)
        return 4;
    *version = 29907;
    return 0;
}

FAKE_API int ncclCommUserRank(const ncclComm *comm, int *rank) {
    *rank = comm->rank;
    return 0;
}

// Reads what is not the number of ranks: DWARF and code that do not agree.
FAKE_API int ncclCommCount(const ncclComm *comm, int *count) {
    *count = comm->cudaDev;
    return 0;
}

FAKE_API int ncclAllReduce(const void *, void *, std::size_t count, int, int, ncclComm *comm,
                           void *) {
    return comm->config.size > count ? 1 : 0;
}
