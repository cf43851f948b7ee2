// SPDX-License-Identifier: Apache-2.0
// A test double of NCCL for the recorder: a file with the functions that it probes and the types
// that it reads, and a list of communicators (ncclComms) that the test fills. It communicates
// nothing.
#include <cstddef>
#include <cstdint>

struct ncclProxyOps {
    void *pool;
    std::uint64_t reserved;
    int count, freeOp, nextOps, nextOpsEnd;
};
struct ncclProxyOp {
    void *connection;
    std::size_t nbytes;
    int next, root, nsteps, chunkSize;
    unsigned char channelId, pattern, protocol, sliceSteps, chunkSteps, dtype, redOp;
};
struct ncclProxyOpsPool {
    ncclProxyOp ops[64];
};
struct ncclProxyState {
    ncclProxyOps *proxyOps;
    void *ncclNet;
};
struct ncclProxyConnection {
    int send, transport;
    void *transportResources;
};
struct sendNetResources {
    void *netSendComm;
    int tpRank, tpRemoteRank, netDev, channelId, connIndex;
};
struct recvNetResources {
    void *netRecvComm;
    int tpRank, tpRemoteRank, netDev, channelId, connIndex;
};
struct ncclConnector {
    struct {
        int sameProcess;
        ncclProxyConnection *connection;
    } proxyConn;
    int connected;
};
struct ncclChannelPeer {
    ncclConnector send[2], recv[2];
};
struct ncclChannel {
    ncclChannelPeer **peers;
};
struct ncclComm {
    std::uint64_t startMagic, commHash;
    int rank, nRanks, localRank, localRanks, initState;
    ncclProxyState *proxyState;
    ncclChannel channels[64];
};
// That they are described in it.
__attribute__((visibility("default"))) sendNetResources ncclSendResources;
__attribute__((visibility("default"))) recvNetResources ncclRecvResources;
__attribute__((visibility("default"))) ncclProxyConnection ncclConnection;
struct ncclInfo {
    int coll;
    const void *sendbuff;
    void *recvbuff;
    std::size_t count;
    int datatype, op, root;
    ncclComm *comm;
    void *stream;
};
struct ncclCommInitRankAsyncJob {
    ncclComm *comm;
    ncclComm *parent;
};

// What is smaller is not taken for NCCL.
extern const unsigned char nccl_double_kernels[1 << 20];
const unsigned char nccl_double_kernels[1 << 20] = {1};

#define API extern "C" __attribute__((visibility("default"), noinline))

extern "C" {
__attribute__((visibility("default"))) ncclComm **ncclComms;
__attribute__((visibility("default"))) int nNcclComms;
}

__attribute__((visibility("default"), noinline)) int ncclEnqueueCheck(ncclInfo *info) {
    return info->coll + info->datatype + info->op + info->root +
           static_cast<int>(info->count + (info->sendbuff == info->recvbuff) +
                            (info->stream != nullptr) + (info->comm != nullptr));
}

int ncclProxyPost(int operations);
__attribute__((noinline)) int ncclProxyPost(int operations) {
    asm volatile("" : : "r"(operations) : "memory");
    return 0;
}

// The lists here never grow that long.
int ncclLocalOpAppend(int operations);
__attribute__((visibility("default"), noinline)) int ncclLocalOpAppend(int operations) {
    return operations == 1024 ? ncclProxyPost(operations) + 1 : 0;
}

__attribute__((visibility("default"), noinline)) int ncclProxyStart(ncclComm *comm) {
    int sum = 0;
    if (comm->proxyState == nullptr || comm->proxyState->ncclNet == nullptr)
        return 0;
    const ncclProxyOps &list = comm->proxyState->proxyOps[0];
    const auto *pool = static_cast<const ncclProxyOpsPool *>(list.pool);
    for (int i = list.nextOps; i != list.nextOpsEnd; i = pool->ops[i].next) {
        const ncclProxyOp &op = pool->ops[i];
        sum += op.channelId + op.pattern + op.protocol + op.sliceSteps + op.chunkSteps + op.dtype +
               op.redOp + op.root + op.nsteps + op.chunkSize + static_cast<int>(op.nbytes) +
               (op.connection != nullptr);
    }
    return sum;
}

__attribute__((visibility("default"), noinline)) int ncclCommInitRankFunc(void *job) {
    const auto *init = static_cast<const ncclCommInitRankAsyncJob *>(job);
    return init->comm == init->parent ? 1 : 0;
}

__attribute__((visibility("default"), noinline)) int commCleanup(ncclComm *comm) {
    return comm->initState + comm->rank + comm->nRanks + comm->localRank + comm->localRanks +
           static_cast<int>(comm->startMagic + comm->commHash);
}

API int ncclAllReduce(const void *sendbuff, void *recvbuff, std::size_t count, int datatype, int op,
                      ncclComm *comm, void *stream) {
    ncclInfo info{4, sendbuff, recvbuff, count, datatype, op, 0, comm, stream};
    return ncclEnqueueCheck(&info) + ncclProxyStart(comm) + nccl_double_kernels[count & 1];
}

API int ncclGetVersion(int *version) {
    *version = 22400;
    return 0;
}
