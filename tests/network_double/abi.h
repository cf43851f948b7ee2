// SPDX-License-Identifier: Apache-2.0
// What NCCL takes from a network plugin of version 8 of its interface: 2.19 and later take it, up
// to 2.32 at least. By its ABI: names are ours.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collwire::network_double {

constexpr int SUCCESS = 0;      // ncclSuccess
constexpr int SYSTEM_ERROR = 2; // ncclSystemError
constexpr int PTR_HOST = 1;
constexpr std::size_t HANDLE_BYTES = 128; // that ranks give to one another

struct Properties {
    char *name;
    char *pci_path;
    std::uint64_t guid;
    int ptr_support;
    int reg_is_global;
    int speed_mbps;
    int port;
    float latency;
    int max_comms;
    int max_receives;
    int device_type; // 0: the host does it all
    int device_version;
};

struct Network {
    const char *name;
    int (*init)(void *logger);
    int (*devices)(int *n);
    int (*properties)(int device, Properties *into);
    int (*listen)(int device, void *handle, void **listener);
    int (*connect)(int device, void *handle, void **comm, void **device_comm);
    int (*accept)(void *listener, void **comm, void **device_comm);
    int (*reg_mr)(void *comm, void *data, std::size_t size, int type, void **mr);
    int (*reg_mr_dma_buf)(void *comm, void *data, std::size_t size, int type, std::uint64_t offset,
                          int fd, void **mr);
    int (*dereg_mr)(void *comm, void *mr);
    int (*isend)(void *comm, void *data, int size, int tag, void *mr, void **request);
    int (*irecv)(void *comm, int n, void **data, int *sizes, int *tags, void **mrs, void **request);
    int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *listener);
    int (*device_mr)(void *comm, void *mr, void **into);
    int (*receive_consumed)(void *comm, int n, void *request);
};

} // namespace collwire::network_double
