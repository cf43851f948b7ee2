// SPDX-License-Identifier: Apache-2.0
// A test double of NCCL: the names and shapes that a plan is read from, in other places than any
// NCCL has them. It communicates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

typedef enum {
    ncclPatternRing,
    ncclPatternTreeUp = 7,
    ncclPatternSend = 13,
} ncclPattern_t;

typedef enum { ncclFuncBroadcast = 0, ncclFuncAllReduce = 4 } ncclFunc_t;

struct ncclConfig_v99900 {
    std::size_t size;
    const char *commName;
};
typedef struct ncclConfig_v99900 ncclConfig_t;

struct fakeBase {
    std::uint64_t next;
    std::uint64_t done;
};
struct ncclProxyArgs : fakeBase {
    std::uint64_t opCount;
};

struct ncclChannel {
    void **peers;
    struct {
        int prev;
        int next;
    } ring;
};

struct ncclProxyState;

struct ncclComm {
    std::uint64_t startMagic;
    char padding[40];
    struct ncclChannel channels[64];
    std::uint64_t commHash;
    union {
        int rank;
        unsigned rank_bits;
    };
    int nRanks;
    int cudaDev;
    ncclConfig_t config;
    struct ncclProxyState *proxyState;
};

struct ncclKernelPlan {
    ncclProxyArgs *args;
    bool persistent;
};

struct ncclProxySubArgs {
    void *connection;
    std::uint64_t filler[5];
    std::size_t transSize;
};

#define FAKE_API extern "C" __attribute__((visibility("default")))
