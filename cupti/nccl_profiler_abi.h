// SPDX-License-Identifier: Apache-2.0
// The part of NCCL's profiler interface that the guest reads, versions 3 to 7. Sources: NVIDIA/nccl
// src/include/plugin/profiler/profiler_v3.h to profiler_v6.h (v2.26.5-1 to v2.30.7-1), and for
// version 7 the debug information of NCCL 2.31.2 and 2.32.3. tests/cupti/profiler_abi_test.py
// compares these layouts with the debug information of the official libraries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collwire::cupti::nccl {

// Bits of the activation mask, and types of events.
enum Event : uint64_t {
    GROUP = 1 << 0, // one execution of a kernel plan
    COLLECTIVE = 1 << 1,
    TRANSFER = 1 << 2, // a send or receive
    KERNEL_CHANNEL = 1 << 6,
    GROUP_API = 1 << 8,      // version 5 and later
    KERNEL_LAUNCH = 1 << 11, // version 5 and later
};

constexpr int KERNEL_CHANNEL_STOP = 22; // a state; version 4 and later
constexpr int FIRST_VERSION = 3, LAST_VERSION = 7;
// Of this version on the marks of a communicator that ran without the trace are out of step (NCCL
// 2.31.2 and 2.32.3 on the test double of CUDA; their source is not public).
constexpr int FIRST_FROM_START_ALONE = 7;
constexpr int FIRST_WITH_GPU_TIMES = 4, FIRST_WITH_API_EVENTS = 5;

// Version 3 has the communicator in each event.
struct CollectiveV3 {
    const char *name;
    uint64_t comm_hash;
    uint64_t sequence;
    const char *function;
    const void *from;
    void *to;
    size_t count;
};

struct CollectiveV4 {
    uint64_t sequence;
    const char *function;
    const void *from;
    void *to;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels;
};

struct TransferV3 {
    const char *name;
    uint64_t comm_hash;
    const char *function;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
};

struct TransferV4 {
    const char *function;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
    uint8_t channels;
};

struct KernelChannel {
    uint8_t channel;
    uint64_t gpu_ns; // version 4 and later: the GPU's global timer
};

struct Description {
    uint64_t type; // up to version 4 its first byte alone
    void *parent;
    int rank;
    union {
        CollectiveV3 collective_v3;
        CollectiveV4 collective;
        TransferV3 transfer_v3;
        TransferV4 transfer;
        KernelChannel kernel;
    };
};

// The argument of a state, version 4 and later. Of KERNEL_CHANNEL_STOP: the GPU's global timer.
union StateArguments {
    uint64_t gpu_ns;
};

using Init3 = int (*)(void **context, int *mask);
using Init4 = int (*)(void **context, int *mask, const char *name, uint64_t comm_hash, int nodes,
                      int ranks, int rank, void *log);
using Init5 = int (*)(void **context, uint64_t comm_hash, int *mask, const char *name, int nodes,
                      int ranks, int rank, void *log);

template <class Init> struct Plugin {
    const char *name;
    Init init;
    int (*start)(void *context, void **handle, const Description *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, const StateArguments *arguments);
    int (*finalize)(void *context);
};

static_assert(offsetof(Description, parent) == 8 && offsetof(Description, rank) == 16 &&
              offsetof(Description, kernel) == 24);
static_assert(sizeof(Plugin<Init5>) == 48);

} // namespace collwire::cupti::nccl
