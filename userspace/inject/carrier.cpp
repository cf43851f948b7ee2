// SPDX-License-Identifier: Apache-2.0
// The code that runs in the other process. Part 1 runs on the borrowed thread, between a system
// call that was interrupted and its restart: it maps a region, starts a thread, and puts every
// register back. Part 2 is that thread: it loads the library.
#include "userspace/inject/carrier.h"

#include <csignal>
#include <ctime>
#include <sys/mman.h>
#include <sys/syscall.h>

namespace collwire::inject {

static_assert(offsetof(CarrierBlock, region_bytes) == 8 && offsetof(CarrierBlock, has_xsave) == 16);
static_assert(offsetof(CarrierBlock, signal_mask) == 24 && offsetof(CarrierBlock, flags) == 32);
static_assert(offsetof(CarrierBlock, rsp) == 40 && offsetof(CarrierBlock, restart_rip) == 48);
static_assert(offsetof(CarrierBlock, interrupted_rip) == 64 && offsetof(CarrierBlock, rbx) == 80);
static_assert(offsetof(CarrierBlock, r15) == 176 && sizeof(CarrierBlock) == 320);
static_assert(offsetof(CarrierRegion, is_out) == 12 && sizeof(CarrierRegion) <= EXTENDED_AT);
static_assert(EXTENDED_AT == 4096 && REGION_BYTES == 262144);

} // namespace collwire::inject

// The thread's own stack is never used. Nothing after `popfq` changes the flags.
__asm__(R"(
    .pushsection collwire_carrier,"ax",@progbits
    .balign 64
    .globl collwire_carrier_block
    .hidden collwire_carrier_block
collwire_carrier_block:
    .skip 320
    .globl collwire_carrier_entry
    .hidden collwire_carrier_entry
collwire_carrier_entry:
    cld
    movl $9, %eax                               # mmap
    movq collwire_carrier_block(%rip), %rdi
    movq collwire_carrier_block+8(%rip), %rsi
    movl $3, %edx                               # readable, writable
    movl $0x100022, %r10d                       # private, anonymous, MAP_FIXED_NOREPLACE
    movq $-1, %r8
    xorl %r9d, %r9d
    syscall
    movq collwire_carrier_block(%rip), %r12
    movq collwire_carrier_block+48(%rip), %r13  # where the thread continues
    movq collwire_carrier_block+56(%rip), %r14  # with this in %rax
    cmpq %r12, %rax
    jne 5f
    leaq 262144(%r12), %rsp
    leaq 4096(%r12), %rbp
    cmpq $0, collwire_carrier_block+16(%rip)
    je 1f
    movl $-1, %eax
    movl $-1, %edx
    xsave64 (%rbp)
    jmp 2f
1:  fxsave64 (%rbp)
2:  movq %r12, %rdi
    leaq collwire_carrier_block(%rip), %rsi
    call collwire_carrier_borrow
    movl %eax, %ebx
    cmpq $0, collwire_carrier_block+16(%rip)
    je 3f
    movl $-1, %eax
    movl $-1, %edx
    xrstor64 (%rbp)
    jmp 4f
3:  fxrstor64 (%rbp)
4:  testl $1, %ebx
    cmovnzq collwire_carrier_block+64(%rip), %r13
    cmovnzq collwire_carrier_block+72(%rip), %r14
    testl $2, %ebx
    jnz 6f
    pushq collwire_carrier_block+32(%rip)
    popfq
    movq collwire_carrier_block+40(%rip), %rsp
    movl $1, 12(%r12)                           # region.is_out
    jmp 5f
6:  movq collwire_carrier_block+40(%rip), %rsp
    movl $11, %eax                              # munmap: there is no other thread to do it
    movq %r12, %rdi
    movl $262144, %esi
    syscall
5:  movq collwire_carrier_block+40(%rip), %rsp
    movq collwire_carrier_block+80(%rip), %rbx
    movq collwire_carrier_block+88(%rip), %rbp
    movl $14, %eax                              # rt_sigprocmask(SIG_SETMASK, block.signal_mask)
    movl $2, %edi
    leaq collwire_carrier_block+24(%rip), %rsi
    movl $0, %edx
    movl $8, %r10d
    syscall
    movq %r13, %rcx
    movq %r14, %rax
    movq collwire_carrier_block+96(%rip), %rdi
    movq collwire_carrier_block+104(%rip), %rsi
    movq collwire_carrier_block+112(%rip), %rdx
    movq collwire_carrier_block+120(%rip), %r8
    movq collwire_carrier_block+128(%rip), %r9
    movq collwire_carrier_block+136(%rip), %r10
    movq collwire_carrier_block+144(%rip), %r11
    movq collwire_carrier_block+152(%rip), %r12
    movq collwire_carrier_block+160(%rip), %r13
    movq collwire_carrier_block+168(%rip), %r14
    movq collwire_carrier_block+176(%rip), %r15
    jmpq *%rcx                                  # %rcx is free: a system call overwrites it
    .popsection
)");

#define CARRIED __attribute__((section("collwire_carrier"), noinline, used, visibility("hidden")))
#define INLINED __attribute__((always_inline)) inline

namespace collwire::inject {
namespace {

constexpr int TICK_NS = 500'000;
// By the clock, not in ticks: a tick is longer where other threads have the CPUs.
constexpr std::uint64_t FILE_NS = 10'000'000'000, READ_NS = FILE_NS, OUT_NS = 60'000'000'000;

// The kernel's struct sigaction.
struct KernelAction {
    std::uint64_t handler;
    std::uint64_t flags;
    std::uint64_t restorer;
    std::uint64_t mask;
};

INLINED long call(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
    long result = number;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

template <class T> INLINED long address(T *pointer) {
    return reinterpret_cast<long>(pointer);
}

template <class Function> INLINED Function function_at(std::uint64_t place) {
    return reinterpret_cast<Function>(place); // NOLINT(performance-no-int-to-ptr)
}

template <class T> INLINED T seen(const T &value) {
    return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}

template <class T> INLINED void show(T &value, T now) {
    __atomic_store_n(&value, now, __ATOMIC_RELEASE);
}

INLINED std::uint64_t now_ns(clockid_t clock) {
    timespec now;
    call(SYS_clock_gettime, clock, address(&now));
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

INLINED void rest() {
    timespec tick;
    tick.tv_sec = 0;
    tick.tv_nsec = TICK_NS;
    call(SYS_nanosleep, address(&tick));
}

// Whether a signal came meanwhile whose handler ends the system call with EINTR.
INLINED bool is_interrupted(const CarrierBlock &block) {
    std::uint64_t pending = 0;
    call(SYS_rt_sigpending, address(&pending), sizeof pending);
    pending &= ~block.signal_mask;
    for (int signal = 1; pending != 0; ++signal, pending >>= 1) {
        if ((pending & 1) == 0)
            continue;
        KernelAction action;
        if (call(SYS_rt_sigaction, signal, 0, address(&action), sizeof action.mask) != 0 ||
            action.handler <= 1) // default or ignored: no handler
            continue;
        if (block.restart == RESTART_NEVER ||
            (block.restart == RESTART_BY_SA_FLAGS && (action.flags & SA_RESTART) == 0))
            return true;
    }
    return false;
}

INLINED void copy(char *into, const char *from, std::size_t room) {
    std::size_t i = 0;
    for (; from && i + 1 < room && from[i] != 0; ++i)
        into[i] = from[i];
    into[i] = 0;
}

} // namespace
} // namespace collwire::inject

extern "C" {
CARRIED long collwire_carrier_borrow(collwire::inject::CarrierRegion *region,
                                     const collwire::inject::CarrierBlock *block);
CARRIED void collwire_carrier_wait(const std::uint32_t *flag, const std::uint32_t *other,
                                   std::uint64_t most_ns);
CARRIED void *collwire_carrier_load(void *argument);
}

// On the borrowed thread. Bit 0: the system call returns EINTR, else it is restarted. Bit 1: no
// thread was started.
long collwire_carrier_borrow(collwire::inject::CarrierRegion *region,
                             const collwire::inject::CarrierBlock *block) {
    using namespace collwire::inject;
    using Create = int (*)(std::uint64_t *, const void *, void *(*)(void *), void *);
    std::uint64_t all = ~std::uint64_t{0};
    // The injector has blocked them, unless it was killed before.
    call(SYS_rt_sigprocmask, SIG_SETMASK, address(&all), 0, sizeof all);
    region->block = static_cast<std::uint64_t>(address(block));
    int *error_number = function_at<int *(*)()>(block->errno_location)();
    const int before = *error_number;
    region->thread_error = function_at<Create>(block->pthread_create)(
        &region->thread, nullptr, collwire_carrier_load, region);
    *error_number = before;
    region->end_ns = now_ns(CLOCK_REALTIME);
    return (is_interrupted(*block) ? 1 : 0) | (region->thread_error != 0 ? 2 : 0);
}

// Until one of the two is set, or for so long.
void collwire_carrier_wait(const std::uint32_t *flag, const std::uint32_t *other,
                           std::uint64_t most_ns) {
    using namespace collwire::inject;
    const std::uint64_t begin_ns = now_ns(CLOCK_MONOTONIC);
    while (!seen(*flag) && !seen(*other) && now_ns(CLOCK_MONOTONIC) - begin_ns < most_ns)
        rest();
}

// On a thread of its own, which has all signals blocked as the borrowed one had.
void *collwire_carrier_load(void *argument) {
    using namespace collwire::inject;
    auto *region = static_cast<CarrierRegion *>(argument);
    const auto *block = function_at<const CarrierBlock *>(region->block);
    function_at<int (*)(std::uint64_t)>(block->pthread_detach)(
        function_at<std::uint64_t (*)()>(block->pthread_self)());
    region->helper_tid = static_cast<std::int32_t>(call(SYS_gettid));
    show<std::uint32_t>(region->stage, STAGE_THREAD);

    // CLOEXEC and NOEXEC_SEAL: the file is mapped, never executed. Linux before 6.3 has no such
    // flag.
    long fd = call(SYS_memfd_create, address(&block->file_name[0]), 1 | 8);
    if (fd < 0)
        fd = call(SYS_memfd_create, address(&block->file_name[0]), 1);
    region->fd = static_cast<std::int32_t>(fd);
    show<std::uint32_t>(region->stage, STAGE_FILE);
    if (fd >= 0)
        collwire_carrier_wait(&region->go, &region->cancel, FILE_NS);

    std::uint32_t stage = STAGE_FAILED;
    if (fd >= 0 && seen(region->go) && !seen(region->cancel)) {
        char path[MAX_FUNCTION_NAME + 12];
        copy(path, block->fd_folder, MAX_FUNCTION_NAME);
        char *end = path;
        while (*end)
            ++end;
        char digits[12];
        int n = 0;
        for (long rest_of = fd; n == 0 || rest_of > 0; rest_of /= 10)
            digits[n++] = static_cast<char>('0' + rest_of % 10);
        while (n > 0)
            *end++ = digits[--n];
        *end = 0;
        constexpr int NOW = 2;
        void *handle = function_at<void *(*)(const char *, int)>(block->dlopen)(path, NOW);
        void *start = handle ? function_at<void *(*)(void *, const char *)>(block->dlsym)(
                                   handle, block->entry_name)
                             : nullptr;
        if (start) {
            function_at<int (*)()>(static_cast<std::uint64_t>(address(start)))();
            stage = STAGE_LOADED;
        } else {
            copy(region->report, function_at<const char *(*)()>(block->dlerror)(), MAX_REPORT);
        }
    }
    if (fd >= 0)
        call(SYS_close, fd);
    show(region->stage, stage);
    collwire_carrier_wait(&region->has_read, &region->has_read, READ_NS);
    collwire_carrier_wait(&region->is_out, &region->is_out, OUT_NS);
    if (!seen(region->is_out))
        return nullptr; // the region stays
    call(SYS_munmap, address(region), REGION_BYTES);
    return nullptr;
}
