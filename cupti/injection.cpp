// SPDX-License-Identifier: Apache-2.0
// How the guest comes into a process: CUDA's driver loads the file that CUDA_INJECTION64_PATH names
// at its first call, and calls InitializeInjection. NCCL loads the one that NCCL_PROFILER_PLUGIN
// names with its first communicator.
#include "injection.h"
#include "guest.h"
#include "loader.h"
#include "neighbours.h"
#include "probes.h"

#include <csignal>
#include <cstdint>
#include <ctime>
#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace collwire::cupti {
namespace {

// While armed: a tool that is loaded then is seen before it can ask for records.
constexpr long POLL_NS = 250'000'000, ARMED_POLL_NS = 20'000'000;

constinit Guest guest;
constinit NcclProfiler profiler;
constinit std::atomic<bool> has_thread = false;
// By the driver. A guest that NCCL alone has loaded never touches CUPTI.
constinit std::atomic<bool> is_injected = false;
constinit pid_t own_process = 0;

void yield_to(const char *function) {
    guest.yield(function);
}

void look() {
    if (is_injected.load(std::memory_order_acquire)) {
        watch_neighbours(yield_to);
        guest.poll();
    }
    poll_nccl_profiler();
}

bool is_needed() {
    return (is_injected.load(std::memory_order_acquire) && guest.is_alive()) || profiler.is_used();
}

void *run(void *) {
    prctl(PR_SET_NAME, "collwire-gpu");
    while (is_needed()) {
        const bool is_busy = guest.is_armed() || profiler.is_active();
        const timespec pause = {0, is_busy ? ARMED_POLL_NS : POLL_NS};
        nanosleep(&pause, nullptr);
        look();
    }
    has_thread = false;
    return nullptr;
}

// With all signals blocked, so that the program's handlers never run on the guest's thread.
void start_thread() {
    using Create = int (*)(unsigned long *, const void *, void *(*)(void *), void *);
    using Detach = int (*)(unsigned long);
    // A process without threads has no libpthread before glibc 2.34, and does not need the guest.
    auto create = reinterpret_cast<Create>(find_symbol(RTLD_DEFAULT, "pthread_create"));
    auto detach = reinterpret_cast<Detach>(find_symbol(RTLD_DEFAULT, "pthread_detach"));
    if (!create || !detach)
        return;
    uint64_t all = ~uint64_t{0}, before = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    unsigned long thread = 0;
    if (create(&thread, nullptr, run, nullptr) == 0)
        detach(thread);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
}

} // namespace

// A neighbour whose place the guest took, and that does not know: its requests and buffers are
// passed on.
void on_request(uint8_t **buffer, size_t *bytes, size_t *max_records) {
    const Receiver theirs = neighbours_receiver();
    if (theirs.request && !guest.is_receiving())
        return theirs.request(buffer, bytes, max_records);
    guest.lend(buffer, bytes, max_records);
}

void on_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
                  size_t valid_bytes) {
    const Receiver theirs = neighbours_receiver();
    if (theirs.completed && !guest.is_own(buffer))
        return theirs.completed(context, stream, buffer, bytes, valid_bytes);
    if (guest.is_own(buffer))
        guest.take_back(buffer, valid_bytes);
}

void on_exit_of_process() {
    if (!is_guest_process())
        return;
    guest.at_exit();
    profiler.at_exit();
}

NcclProfiler &nccl_profiler() {
    return profiler;
}

// CUPTI's records say more, and cost NCCL's proxy thread nothing.
void poll_nccl_profiler() {
    const bool has_cupti = is_injected.load(std::memory_order_acquire);
    const cw_gpu_state state = has_cupti ? guest.state() : CW_GPU_OFF;
    const bool is_cupti_out =
        !has_cupti || state == CW_GPU_YIELDED || state == CW_GPU_REFUSED || state == CW_GPU_FAILED;
    profiler.poll(collwire_gpu_arm_semaphore != 0 && is_cupti_out, state);
}

bool is_guest_process() {
    return getpid() == own_process;
}

void start_guest() {
    if (has_thread.exchange(true))
        return;
    own_process = getpid();
    // A recorder that waits for this process sees its first kernel.
    look();
    start_thread();
}

} // namespace collwire::cupti

// The name that the driver calls.
extern "C" COLLWIRE_EXPORT int InitializeInjection() { // NOLINT(readability-identifier-naming)
    using namespace collwire::cupti;
    if (!is_injected.exchange(true))
        start_guest();
    return 1;
}
