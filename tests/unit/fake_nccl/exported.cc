// SPDX-License-Identifier: Apache-2.0
// NCCL's exported functions, of a build of which nothing else is known: stripped, of no version
// that there is.
#include <cstddef>

#define FAKE_API extern "C" __attribute__((visibility("default")))

constexpr long MAGIC = 0x0280028002800280;

struct ncclComm {
    long startMagic;
    char unused[320];
    unsigned long commHash;
    int rank;
    int nRanks;
    int cudaDev;
    int asyncResult;
};

namespace {

__attribute__((noinline)) int check(const ncclComm *comm) {
    return comm->startMagic == MAGIC ? 0 : 4;
}

} // namespace

// Reads a result first, as NCCL does of one that is not blocking.
#define GETTER(function, field)                                                                    \
    FAKE_API int function(const ncclComm *comm, int *value) {                                      \
        if (const int result = check(comm); result != 0)                                           \
            return result;                                                                         \
        if (comm->asyncResult != 0)                                                                \
            return comm->asyncResult;                                                              \
        *value = comm->field;                                                                      \
        return 0;                                                                                  \
    }

GETTER(ncclCommUserRank, rank)
GETTER(ncclCommCount, nRanks)
GETTER(ncclCommCuDevice, cudaDev)
// Hands on one of two.
FAKE_API int fakeTwoGetter(const ncclComm *comm, int *value) {
    asm volatile("" : : "r"(comm) : "memory");
    *value = comm->rank;
    asm volatile("" : : "r"(comm) : "memory");
    *value = comm->nRanks;
    return 0;
}

FAKE_API int ncclGetVersion(int *version) {
    *version = 29907;
    return 0;
}

FAKE_API char *ncclGetLastError(const ncclComm *) {
    static char text[1024];
    asm volatile("" : : "r"(text) : "memory");
    return text;
}

FAKE_API int ncclAllReduce(const void *send, void *, std::size_t count, int, int, ncclComm *comm,
                           void *) {
    return send == nullptr ? check(comm) : static_cast<int>(count);
}

FAKE_API int ncclCommDestroy(ncclComm *comm) {
    return check(comm);
}

// Begins with moving the stack, which the kernel does not emulate, and pushes then.
asm(R"(
    .globl ncclReduce
    .type ncclReduce, @function
ncclReduce:
    .cfi_startproc
    subq $8, %rsp
    pushq %rbx
    xorl %eax, %eax
    popq %rbx
    addq $8, %rsp
    ret
    .cfi_endproc
    .size ncclReduce, .-ncclReduce
)");
