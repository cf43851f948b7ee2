// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2 for the linker alone: the test program is built where no NCCL is installed, and runs
// with the official library that LD_LIBRARY_PATH names.
#include "tests/cuda_double/fakecuda/nccl.h"

extern "C" {

const char *ncclGetErrorString(ncclResult_t) {
    return "this is the stub of libnccl. Fix: LD_LIBRARY_PATH to an official one";
}
const char *ncclGetLastError(ncclComm_t) {
    return "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *) {
    return ncclInternalError;
}
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int) {
    return ncclInternalError;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *) {
    return ncclInternalError;
}
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *) {
    return ncclInternalError;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
    return ncclInternalError;
}
ncclResult_t ncclGetVersion(int *) {
    return ncclInternalError;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
    return ncclInternalError;
}
ncclResult_t ncclCommDestroy(ncclComm_t) {
    return ncclInternalError;
}
ncclResult_t ncclGroupStart() {
    return ncclInternalError;
}
ncclResult_t ncclGroupEnd() {
    return ncclInternalError;
}
ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t) {
    return ncclInternalError;
}
ncclResult_t ncclAllGather(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
    return ncclInternalError;
}
ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, cudaStream_t) {
    return ncclInternalError;
}
ncclResult_t ncclBroadcast(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                           cudaStream_t) {
    return ncclInternalError;
}
ncclResult_t ncclReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                        cudaStream_t) {
    return ncclInternalError;
}
ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
    return ncclInternalError;
}
ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
    return ncclInternalError;
}

} // extern "C"
