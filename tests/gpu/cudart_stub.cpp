// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime for the linker alone: the job is built where there is no CUDA, and runs with
// what is preloaded: a real libcudart.so, or the test double.
#include "tests/cuda_double/fakecuda/cuda_runtime.h"

#define REFUSED(name, ...)                                                                         \
    cudaError_t name(__VA_ARGS__) {                                                                \
        return cudaErrorNotSupported;                                                              \
    }

extern "C" {

REFUSED(cudaSetDevice, int)
REFUSED(cudaDeviceSynchronize, void)
REFUSED(cudaMalloc, void **, size_t)
REFUSED(cudaFree, void *)
REFUSED(cudaMemcpy, void *, const void *, size_t, int)
REFUSED(cudaMemset, void *, int, size_t)
REFUSED(cudaStreamCreateWithFlags, cudaStream_t *, unsigned)
REFUSED(cudaStreamDestroy, cudaStream_t)
REFUSED(cudaStreamSynchronize, cudaStream_t)
REFUSED(cudaStreamBeginCapture, cudaStream_t, int)
REFUSED(cudaStreamEndCapture, cudaStream_t, cudaGraph_t *)
REFUSED(cudaGraphInstantiate, cudaGraphExec_t *, cudaGraph_t, unsigned long long)
REFUSED(cudaGraphLaunch, cudaGraphExec_t, cudaStream_t)
REFUSED(cudaGraphExecDestroy, cudaGraphExec_t)
REFUSED(cudaGraphDestroy, cudaGraph_t)

} // extern "C"
