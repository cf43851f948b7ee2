// SPDX-License-Identifier: Apache-2.0
// ncclNetSocket is NCCL's table of functions for NET/Socket. Three of its pointers are replaced,
// and NCCL's code stays as it is.
#include "tests/cuda_double/gpu_direct.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

constexpr int kSuccess = 0;      // ncclSuccess
constexpr int kHostMemory = 1;   // NCCL_PTR_HOST
constexpr int kDeviceMemory = 2; // NCCL_PTR_CUDA

// How ncclNetProperties_t begins, from its version 4 on.
struct NicProperties {
    const char *name;
    const char *pci_path;
    std::uint64_t guid;
    int pointer_kinds;
};

using GetProperties = int (*)(int nic, NicProperties *properties);
using Register = int (*)(void *connection, void *begin, std::size_t bytes, int kind, void **handle);
GetProperties real_get_properties = nullptr;
Register real_register = nullptr;

int get_properties(int nic, NicProperties *properties) {
    const int result = real_get_properties(nic, properties);
    if (result != kSuccess)
        return result;
    if (properties->pointer_kinds != kHostMemory)
        fatal(fmt::format("NET/Socket's NIC {} has pointers of kind {}, where host memory alone is "
                          "expected. Fix: unset COLLWIRE_CUDA_GDR",
                          nic, properties->pointer_kinds));
    properties->pointer_kinds |= kDeviceMemory;
    return kSuccess;
}

int register_memory(void *connection, void *begin, std::size_t bytes, int kind, void **handle) {
    return real_register(connection, begin, bytes, kind == kDeviceMemory ? kHostMemory : kind,
                         handle);
}

// What recv() has written is in memory: there is nothing to wait for, which no request means.
int flush(void *, int, void **, int *, void **, void **request) {
    *request = nullptr;
    return kSuccess;
}

void **entry_of(const Library &nccl, const Symbol &table, std::string_view function) {
    // A symbol has its address as a number. NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto **entries = reinterpret_cast<void **>(table.address);
    for (std::size_t i = 0; i < table.size_bytes / sizeof(void *); i++) {
        const std::string name = nccl.function_name_at(entries[i]);
        if (name.compare(0, name.find('('), function) == 0)
            return entries + i;
    }
    fatal(fmt::format("{} has no {} in NET/Socket's table. Fix: unset COLLWIRE_CUDA_GDR",
                      nccl.path(), function));
}

template <class Function> Function exchange(void **entry, Function replacement) {
    const auto real = reinterpret_cast<Function>(*entry);
    *entry = reinterpret_cast<void *>(replacement);
    return real;
}

} // namespace

void lend_device_memory_to_sockets(const Library &nccl) {
    const Symbol *table = nccl.find("ncclNetSocket");
    if (table == nullptr || table->is_function)
        fatal(fmt::format("{} has no ncclNetSocket. Fix: unset COLLWIRE_CUDA_GDR", nccl.path()));
    real_get_properties =
        exchange(entry_of(nccl, *table, "ncclNetSocketGetProperties"), &get_properties);
    real_register = exchange(entry_of(nccl, *table, "ncclNetSocketRegMr"), &register_memory);
    exchange(entry_of(nccl, *table, "ncclNetSocketIflush"), &flush);
}

} // namespace collwire::cuda_double
