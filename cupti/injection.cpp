// SPDX-License-Identifier: Apache-2.0
// How the guest comes into a process: CUDA's driver loads the file that CUDA_INJECTION64_PATH names
// at its first call, and calls InitializeInjection.
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
constinit std::atomic<bool> is_started = false;
constinit pid_t own_process = 0;

void yield_to(const char *function) {
    guest.yield(function);
}

void look() {
    watch_neighbours(yield_to);
    guest.poll();
}

void *run(void *) {
    prctl(PR_SET_NAME, "collwire-gpu");
    while (guest.is_alive()) {
        const timespec pause = {0, guest.is_armed() ? ARMED_POLL_NS : POLL_NS};
        nanosleep(&pause, nullptr);
        look();
    }
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
    if (getpid() == own_process)
        guest.at_exit();
}

} // namespace collwire::cupti

// The name that the driver calls.
extern "C" COLLWIRE_EXPORT int InitializeInjection() { // NOLINT(readability-identifier-naming)
    using namespace collwire::cupti;
    if (is_started.exchange(true))
        return 1;
    own_process = getpid();
    // A recorder that waits for this process sees its first kernel.
    look();
    start_thread();
    return 1;
}
