// SPDX-License-Identifier: Apache-2.0
#include "loader.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif

extern "C" void *collwire_old_dlopen(const char *, int) noexcept;
extern "C" void *collwire_old_dlsym(void *, const char *) noexcept;
__asm__(".symver collwire_old_dlopen,dlopen@" FIRST_VERSION);
__asm__(".symver collwire_old_dlsym,dlsym@" FIRST_VERSION);

namespace collwire::cupti {
namespace {

constexpr const char *OWN_CHOICE =
    "COLLWIRE_CUPTI"; // environment: the libcupti to load where the process has none

struct Search {
    const char *first = nullptr;
    bool is_ambiguous = false;
};

const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int visit(dl_phdr_info *object, size_t, void *data) {
    auto &search = *static_cast<Search *>(data);
    const char *name = object->dlpi_name;
    if (!name || strncmp(base_name(name), "libcupti.so", 11) != 0)
        return 0;
    if (search.first)
        search.is_ambiguous = true;
    else
        search.first = name;
    return 0;
}

void *open_any(bool only_mapped) {
    bool is_ambiguous = false;
    if (const char *mapped = mapped_libcupti(is_ambiguous))
        return open_library(mapped, RTLD_LAZY | RTLD_NOLOAD);
    if (only_mapped)
        return nullptr;
    if (const char *chosen = getenv(OWN_CHOICE))
        return open_library(chosen, RTLD_LAZY | RTLD_LOCAL);
    // A newer libcupti than the driver does not work.
    const bool is_old_driver = cuda_driver_major() == 12;
    constexpr const char *NEW[] = {"libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13",
                                   "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13"};
    constexpr const char *OLD[] = {"libcupti.so.12", "/usr/local/cuda/lib64/libcupti.so.12",
                                   "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12"};
    if (!is_old_driver)
        for (const char *name : NEW)
            if (void *handle = open_library(name, RTLD_LAZY | RTLD_LOCAL))
                return handle;
    for (const char *name : OLD)
        if (void *handle = open_library(name, RTLD_LAZY | RTLD_LOCAL))
            return handle;
    return nullptr;
}

template <class Function> bool find(void *handle, const char *name, Function &function) {
    function = reinterpret_cast<Function>(find_symbol(handle, name));
    return function != nullptr;
}

} // namespace

void *open_library(const char *name, int flags) {
    return collwire_old_dlopen(name, flags);
}
void *find_symbol(void *handle, const char *name) {
    return collwire_old_dlsym(handle, name);
}

int cuda_driver_major() {
    void *cuda = open_library("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int (*get_version)(int *) = nullptr;
    int version = 0;
    if (!cuda || !find(cuda, "cuDriverGetVersion", get_version) || get_version(&version) != 0)
        return 0;
    return version / 1000;
}

bool is_cuda_ready() {
    constexpr int NOT_INITIALIZED = 3;
    void *cuda = open_library("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int (*get_count)(int *) = nullptr;
    int count = 0;
    return !cuda || !find(cuda, "cuDeviceGetCount", get_count) ||
           get_count(&count) != NOT_INITIALIZED;
}

const char *mapped_libcupti(bool &is_ambiguous) {
    Search search;
    dl_iterate_phdr(visit, &search);
    is_ambiguous = search.is_ambiguous;
    return search.first;
}

bool load_functions(Functions &functions, uint32_t &api_version, bool only_mapped) {
    void *handle = open_any(only_mapped);
    if (!handle)
        return false;
    find(handle, "cuptiSubscribe_v2", functions.subscribe_v2);
    const bool has_all =
        find(handle, "cuptiGetVersion", functions.get_version) &&
        find(handle, "cuptiGetTimestamp", functions.get_timestamp) &&
        find(handle, "cuptiSubscribe", functions.subscribe) &&
        find(handle, "cuptiUnsubscribe", functions.unsubscribe) &&
        find(handle, "cuptiActivityRegisterCallbacks", functions.register_callbacks) &&
        find(handle, "cuptiActivityRegisterTimestampCallback",
             functions.register_timestamp_callback) &&
        find(handle, "cuptiActivityEnable", functions.enable) &&
        find(handle, "cuptiActivityDisable", functions.disable) &&
        find(handle, "cuptiActivityEnableContext", functions.enable_context) &&
        find(handle, "cuptiActivityDisableContext", functions.disable_context) &&
        find(handle, "cuptiActivityFlushAll", functions.flush_all) &&
        find(handle, "cuptiActivityFlushPeriod", functions.flush_period) &&
        find(handle, "cuptiActivityGetNextRecord", functions.get_next_record) &&
        find(handle, "cuptiActivityGetNumDroppedRecords", functions.get_dropped) &&
        find(handle, "cuptiFinalize", functions.finalize);
    return has_all && functions.get_version(&api_version) == SUCCESS;
}

} // namespace collwire::cupti
