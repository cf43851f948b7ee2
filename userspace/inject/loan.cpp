// SPDX-License-Identifier: Apache-2.0
#include "userspace/inject/loan.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "userspace/inject/sleepers.h"
#include "userspace/process/process_view.h"

namespace collwire::inject {
namespace {

// The kernel's own results, include/linux/errno.h: user space sees them in a tracer only.
constexpr std::int64_t SYSTEM_CALL_RESTARTS = -512, NO_HANDLER_INTERRUPTS = -513,
                       NO_HANDLER_RESTARTS = -514, RESTART_BLOCK = -516;
// Until it stops, the thread waits for a CPU, and for nothing else: it is not kept from going on.
// To leave before would let a call that does not restart by itself return EINTR.
constexpr std::uint64_t STOP_LIMIT_NS = 10'000'000'000;
constexpr std::uint64_t SYSCALL_BYTES = 2; // 0f 05
constexpr std::array<unsigned char, 2> SYSCALL_CODE{0x0f, 0x05};
constexpr int SPINS = 2000;
constexpr int MOST_URGENT = -20;
constexpr int STOPPED_BY_US = SIGTRAP | (PTRACE_EVENT_STOP << 8);

long ptrace_call(long request, pid_t tid, std::uint64_t address, void *data) {
    // The declared type of the first argument differs between C libraries.
    return ::syscall(SYS_ptrace, request, tid, address, data);
}

struct PendingQuery {
    std::uint64_t offset = 0;
    std::uint32_t flags = 0;
    std::int32_t number = 0;
};

// Signals that wait for the thread, as a mask.
std::uint64_t pending_signals(pid_t tid) {
    constexpr int N = 32;
    std::uint64_t pending = 0;
    std::array<siginfo_t, N> infos;
    for (const std::uint32_t shared : {0u, 1u}) {
        PendingQuery query{0, shared, N};
        const long n = ptrace_call(PTRACE_PEEKSIGINFO, tid, reinterpret_cast<std::uint64_t>(&query),
                                   infos.data());
        for (long i = 0; i < n; ++i)
            pending |= std::uint64_t{1} << (infos[static_cast<std::size_t>(i)].si_signo - 1);
    }
    return pending;
}

void fill_in(CarrierBlock &block, const user_regs_struct &registers, std::uint64_t mask) {
    block.signal_mask = mask;
    block.flags = registers.eflags;
    block.rsp = registers.rsp;
    block.rbx = registers.rbx;
    block.rbp = registers.rbp;
    block.rdi = registers.rdi;
    block.rsi = registers.rsi;
    block.rdx = registers.rdx;
    block.r8 = registers.r8;
    block.r9 = registers.r9;
    block.r10 = registers.r10;
    block.r11 = registers.r11;
    block.r12 = registers.r12;
    block.r13 = registers.r13;
    block.r14 = registers.r14;
    block.r15 = registers.r15;
    const auto result = static_cast<std::int64_t>(registers.rax);
    block.restart_rip = registers.rip - SYSCALL_BYTES;
    block.restart_rax = result == RESTART_BLOCK ? SYS_restart_syscall : registers.orig_rax;
    block.interrupted_rip = registers.rip;
    block.interrupted_rax = static_cast<std::uint64_t>(-EINTR);
    block.restart = result == NO_HANDLER_INTERRUPTS  ? RESTART_ALWAYS
                    : result == SYSTEM_CALL_RESTARTS ? RESTART_BY_SA_FLAGS
                                                     : RESTART_NEVER;
}

// Writes to another process's memory, also where that process may not; closes itself. The tracer
// writes by the thread that it traces: some kernels allow no other.
class MemoryWriter {
public:
    explicit MemoryWriter(pid_t tid)
        : fd_(::open(fmt::format("/proc/{}/mem", tid).c_str(), O_RDWR | O_CLOEXEC)) {}
    MemoryWriter(const MemoryWriter &) = delete;
    MemoryWriter &operator=(const MemoryWriter &) = delete;
    ~MemoryWriter() {
        if (fd_ >= 0)
            ::close(fd_);
    }
    [[nodiscard]] bool write(std::uint64_t address, const void *bytes, std::size_t size) const {
        return ::pwrite(fd_, bytes, size, static_cast<off_t>(address)) ==
               static_cast<ssize_t>(size);
    }

private:
    int fd_;
};

// The tracer's part, on a thread of its own: when that ends, for whatever reason, the kernel
// detaches it.
class Tracer {
public:
    Tracer(pid_t pid, pid_t tid, std::uint64_t code, CarrierBlock block)
        : pid_(pid), tid_(tid), code_(code), block_(block), memory_(tid) {}

    Result<Loan> run() {
        // While a thread is stopped, this one must not wait for a CPU. Without the right: it may.
        const sched_param none{};
        ::sched_setscheduler(0, SCHED_OTHER, &none);
        ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), MOST_URGENT);
        if (ptrace_call(PTRACE_SEIZE, tid_, 0, nullptr) != 0) {
            const int code = errno;
            if (code == ESRCH)
                return Loan{false, 0, "it has exited"};
            return error(ErrorKind::NotPermitted,
                         fmt::format("thread {} may not be traced: {}. Fix: run as root, or lower "
                                     "/proc/sys/kernel/yama/ptrace_scope",
                                     tid_, std::strerror(code)));
        }
        // Unused bytes: no thread runs there. When this returns early, the kernel detaches.
        if (!memory_.write(
                code_, __start_collwire_carrier,
                static_cast<std::size_t>(__stop_collwire_carrier - __start_collwire_carrier)))
            return not_writable();
        Loan loan;
        loan.begin_ns = clock_ns(CLOCK_REALTIME);
        if (ptrace_call(PTRACE_INTERRUPT, tid_, 0, nullptr) != 0)
            return Loan{false, 0, "it has exited"};
        int status = 0;
        if (!wait_for_stop(status)) {
            loan.reason = "it did not stop within 10 s";
            return loan;
        }
        std::uint64_t signal = 0;
        Result<void> done;
        if (!WIFSTOPPED(status))
            return Loan{false, 0, "it has exited"};
        if (status >> 8 == STOPPED_BY_US)
            done = lend(loan);
        else if (status >> 16 == 0) // a signal is being delivered
            signal = static_cast<std::uint64_t>(WSTOPSIG(status));
        ptrace_call(PTRACE_DETACH, tid_, 0,
                    reinterpret_cast<void *>(signal)); // NOLINT(performance-no-int-to-ptr)
        if (!done)
            return std::move(done).failure();
        return loan;
    }

private:
    bool wait_for_stop(int &status) const {
        const std::uint64_t begin_ns = monotonic_ns();
        for (int i = 0;; ++i) {
            const pid_t got = ::waitpid(tid_, &status, __WALL | WNOHANG);
            if (got == tid_)
                return true;
            if (got < 0 && errno != EINTR)
                return false;
            if (monotonic_ns() - begin_ns > STOP_LIMIT_NS)
                return false;
            if (i < SPINS)
                std::this_thread::yield();
            else
                std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
    }

    [[nodiscard]] Error not_writable() const {
        return error(ErrorKind::NotPermitted,
                     fmt::format("the code of process {} cannot be written: {}. Fix: allow it "
                                 "(kernel parameter proc_mem.force_override)",
                                 pid_, std::strerror(errno)));
    }

    // The thread is stopped. Each change is one system call, and the thread is whole after each.
    Result<void> lend(Loan &loan) {
        user_regs_struct registers{};
        std::uint64_t mask = 0;
        if (ptrace_call(PTRACE_GETREGS, tid_, 0, &registers) != 0 ||
            ptrace_call(PTRACE_GETSIGMASK, tid_, sizeof mask, &mask) != 0) {
            loan.reason = "its registers could not be read";
            return {};
        }
        const auto result = static_cast<std::int64_t>(registers.rax);
        const bool restarts = result == SYSTEM_CALL_RESTARTS || result == NO_HANDLER_INTERRUPTS ||
                              result == NO_HANDLER_RESTARTS || result == RESTART_BLOCK;
        const bool is_deliverable = (pending_signals(tid_) & ~mask) != 0;
        const SystemCall call{registers.orig_rax,
                              {registers.rdi, registers.rsi, registers.rdx, registers.r10,
                               registers.r8, registers.r9}};
        // It does not restart by itself, and our stop was the reason for EINTR.
        const bool is_stopped_epoll =
            result == -EINTR && (call.number == SYS_epoll_wait || call.number == SYS_epoll_pwait);
        if (static_cast<std::int64_t>(registers.orig_rax) < 0 || is_deliverable ||
            (!restarts && !is_stopped_epoll)) {
            loan.reason = is_deliverable ? "a signal came" : "it woke up";
            return {};
        }
        user_regs_struct again = registers;
        again.rip -= SYSCALL_BYTES;
        again.rax = registers.orig_rax;
        again.orig_rax = ~std::uint64_t{0};
        std::string_view reason = reason_not_to_borrow(call);
        std::array<unsigned char, 2> code{};
        const process::ProcessView view{pid_};
        if (!view.read(registers.rip - SYSCALL_BYTES, std::as_writable_bytes(std::span{code})) ||
            code != SYSCALL_CODE)
            reason = "it did not come from a syscall instruction";
        if (reason.empty()) {
            fill_in(block_, registers, mask);
            if (!memory_.write(code_, &block_, sizeof block_)) {
                if (is_stopped_epoll)
                    ptrace_call(PTRACE_SETREGS, tid_, 0, &again);
                return not_writable();
            }
            user_regs_struct lent = registers;
            lent.rip = code_ + static_cast<std::uint64_t>(collwire_carrier_entry -
                                                          __start_collwire_carrier);
            lent.rax = 0;
            lent.orig_rax = ~std::uint64_t{0}; // the kernel restarts nothing
            if (ptrace_call(PTRACE_SETREGS, tid_, 0, &lent) == 0) {
                // So that no handler runs before the code has blocked them itself.
                std::uint64_t all = ~std::uint64_t{0};
                ptrace_call(PTRACE_SETSIGMASK, tid_, sizeof all, &all);
                loan.is_given = true;
                return {};
            }
            reason = "its registers could not be set";
        }
        loan.reason = reason;
        if (is_stopped_epoll)
            ptrace_call(PTRACE_SETREGS, tid_, 0, &again);
        return {};
    }

    pid_t pid_;
    pid_t tid_;
    std::uint64_t code_;
    CarrierBlock block_;
    MemoryWriter memory_;
};

} // namespace

Result<Loan> borrow(pid_t pid, pid_t tid, std::uint64_t code, const CarrierBlock &block) {
    Result<Loan> result = Loan{};
    std::thread{[&] { result = Tracer{pid, tid, code, block}.run(); }}.join();
    return result;
}

} // namespace collwire::inject
