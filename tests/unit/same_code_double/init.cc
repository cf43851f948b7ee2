// SPDX-License-Identifier: Apache-2.0
// A test double of NCCL with all that collwire has to find in a build. It communicates nothing.
// With a definition one thing in it is another: OTHER_FIELD, OTHER_CASES, OTHER_VARIABLE.
#include <cstddef>
#include <cstdint>

#define API extern "C" __attribute__((visibility("default")))
#define SEPARATE __attribute__((noinline, noclone, used))

struct ncclProxyState {
    std::uint64_t filler[3];
    void *proxyOps;
};
struct ncclComm {
    std::uint64_t startMagic;
    std::uint64_t commHash;
    int rank;
    int nRanks;
    int cudaDev;
    int before;
    int sizes[4];
    ncclProxyState *proxyState;
};
struct ncclAsyncJob {
    ncclComm *comm;
};
struct ncclInfo {
    int coll;
    ncclComm *comm;
};

#ifdef OTHER_CASES
constexpr int FIRST = 5, SECOND = 4;
#else
constexpr int FIRST = 4, SECOND = 5;
#endif

char ncclLastError[1024] = "";
int first_total = 1;
int second_total = 2;

SEPARATE std::int64_t ncclParamIbTc() {
    static std::int64_t cache = INT64_MIN;
    if (__atomic_load_n(&cache, __ATOMIC_RELAXED) == INT64_MIN)
        __atomic_store_n(&cache, 106, __ATOMIC_RELAXED);
    return cache;
}

SEPARATE int ncclProxyStart(ncclComm *comm) {
    return comm->proxyState->proxyOps != nullptr ? comm->sizes[1] : 0;
}

SEPARATE int size_of(ncclComm *comm, int coll) {
    int *sizes = comm->sizes;
    switch (coll) {
    case 0:
    case FIRST:
        return sizes[0] * 3 + ncclProxyStart(comm);
    case 1:
        return sizes[1] / 5 - 7;
    case 2:
    case SECOND:
        return sizes[2] ^ sizes[3];
    case 3:
        return static_cast<int>(ncclParamIbTc());
    case 6:
        sizes[2] = 9;
        return 1;
    default:
        return -1;
    }
}

SEPARATE int ncclEnqueueCheck(ncclInfo *info) {
#ifdef OTHER_VARIABLE
    second_total += info->coll;
    first_total += 1;
#else
    first_total += info->coll;
    second_total += 1;
#endif
    return size_of(info->comm, info->coll);
}

SEPARATE int ncclCommInitRankFunc(ncclAsyncJob *job) {
    first_total = 0;
    second_total = 0;
#ifdef OTHER_FIELD
    return job->comm->sizes[3];
#else
    return job->comm->sizes[2];
#endif
}

SEPARATE int commCleanup(ncclComm *comm) {
    comm->startMagic = 0;
    return first_total + second_total;
}

API const char *ncclGetLastError(const ncclComm *) {
    return ncclLastError;
}

API int ncclGetVersion(int *version) {
    if (version == nullptr)
        return 4;
    *version = 29907;
    return 0;
}
API int ncclCommUserRank(const ncclComm *comm, int *rank) {
    *rank = comm->rank;
    return 0;
}
API int ncclCommCount(const ncclComm *comm, int *count) {
    *count = comm->nRanks;
    return 0;
}
API int ncclCommCuDevice(const ncclComm *comm, int *device) {
    *device = comm->cudaDev;
    return 0;
}
API int ncclAllReduce(const void *, void *, std::size_t count, int, int, ncclComm *comm, void *) {
    ncclInfo info{static_cast<int>(count), comm};
    return ncclEnqueueCheck(&info);
}
API int ncclCommInitRank(ncclComm **comm, int, int) {
    ncclAsyncJob job{*comm};
    return ncclCommInitRankFunc(&job);
}
API int ncclCommDestroy(ncclComm *comm) {
    return commCleanup(comm);
}
