// SPDX-License-Identifier: Apache-2.0
// A double of NCCL's file that the programs can be loaded for: the functions that have probes, and
// the fields that cannot be done without.
#include <cstddef>
#include <cstdint>

struct ncclComm {
    std::uint64_t startMagic, commHash, busId, opCount;
    int rank, nRanks, cudaDev, node, nNodes, localRank, localRanks;
};

struct ncclInfo {
    int coll;
    const void *sendbuff;
    void *recvbuff;
    std::size_t count;
    int datatype, op, root;
    ncclComm *comm;
    void *stream;
};

struct ncclProxyOp {
    void *connection;
    std::int64_t nbytes;
    int next, nsteps, root, chunkSize;
    std::uint8_t sliceSteps, chunkSteps, channelId, dtype, redOp, coll, pattern, protocol;
};

struct ncclCommInitRankAsyncJob {
    ncclComm *comm, *parent;
    int color;
};

#define PROBED __attribute__((noinline, visibility("default")))
#define API extern "C" PROBED

volatile int double_calls;

PROBED int ncclProxyStart(ncclComm *comm) {
    double_calls = double_calls + comm->rank;
    return 0;
}

int ncclProxyPost(int operations);
__attribute__((noinline)) int ncclProxyPost(int operations) {
    double_calls = double_calls + operations;
    return 0;
}

// The doubles' lists never grow that long.
int ncclLocalOpAppend(int operations);
PROBED int ncclLocalOpAppend(int operations) {
    return operations == 1024 ? ncclProxyPost(operations) + 1 : 0;
}

PROBED int ncclEnqueueCheck(ncclInfo *info) {
    double_calls = double_calls + info->coll;
    return ncclProxyStart(info->comm);
}

PROBED int ncclCommInitRankFunc(ncclCommInitRankAsyncJob *job) {
    double_calls = double_calls + job->color;
    return 0;
}

PROBED int commCleanup(ncclComm *comm) {
    double_calls = double_calls - comm->rank;
    return 0;
}

API int ncclGetVersion(int *version) {
    *version = 29907;
    return 0;
}

API int ncclAllReduce(const void *sendbuff, void *recvbuff, std::size_t count, int datatype, int op,
                      ncclComm *comm, void *stream) {
    ncclInfo info{4, sendbuff, recvbuff, count, datatype, op, 0, comm, stream};
    return ncclEnqueueCheck(&info) + 1;
}

API int double_op(const ncclProxyOp *op) {
    return op->nsteps;
}
