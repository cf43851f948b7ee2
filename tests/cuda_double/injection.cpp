// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/injection.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

std::atomic<bool> is_initialised{false};
std::atomic<bool> is_injected{false};
thread_local bool is_injecting = false;

// As the driver: a library that cannot be loaded does not keep the program from running.
void inject() {
    const char *path = std::getenv("CUDA_INJECTION64_PATH");
    if (path == nullptr || *path == '\0')
        return;
    void *handle = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        note(fmt::format("CUDA_INJECTION64_PATH: {}. Fix: the path of a library that loads",
                         ::dlerror()));
        return;
    }
    const auto start = reinterpret_cast<int (*)()>(::dlsym(handle, "InitializeInjection"));
    if (start == nullptr)
        note(fmt::format("{} has no InitializeInjection. Fix: a library for CUDA's injection",
                         path));
    else if (start() == 0)
        note(fmt::format("InitializeInjection of {} failed", path));
}

} // namespace

void initialise_cuda() {
    if (is_injected || is_injecting)
        return;
    static std::once_flag once;
    std::call_once(once, [] {
        is_injecting = true;
        is_initialised = true;
        inject();
        is_injecting = false;
        is_injected = true;
    });
}

bool is_cuda_initialised() {
    return is_initialised;
}

} // namespace collwire::cuda_double
