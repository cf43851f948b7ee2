// SPDX-License-Identifier: Apache-2.0
#include "userspace/inject/inject.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cpuid.h>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/gpu_records.h"
#include "userspace/elf/elf_image.h"
#include "userspace/inject/carrier.h"
#include "userspace/inject/loan.h"
#include "userspace/inject/places.h"
#include "userspace/inject/sleepers.h"
#include "userspace/inject/target.h"
#include "userspace/inventory/files.h"
#include "userspace/process/process_view.h"

namespace collwire::inject {
namespace {

constexpr std::uint64_t NS_PER_MS = 1'000'000;
constexpr std::uint64_t SEARCH_NS = 3'000 * NS_PER_MS;
constexpr std::uint64_t LOAN_NS = 100 * NS_PER_MS;
constexpr std::uint64_t RETURN_NS = 10'000 * NS_PER_MS; // after a loan that was too long
constexpr std::uint64_t FILE_NS = 5'000 * NS_PER_MS;
constexpr std::uint64_t LOAD_NS = 30'000 * NS_PER_MS; // another thread may be in the loader
constexpr std::chrono::microseconds LOOK_AGAIN{100};
constexpr std::string_view ENTRY = "InitializeInjection";
// A spelling that is nobody else's: the C library compares names of loaded files.
constexpr std::string_view FD_FOLDER = "/proc//self/fd/";
constexpr std::string_view AGAIN = "Fix: try again, or start the job with `collwire run -- CMD`";

// The size of the extended registers in XSAVE's form; 0: the processor has no XSAVE.
std::uint64_t extended_bytes() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned OSXSAVE = 1u << 27;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & OSXSAVE) == 0)
        return 0;
    return __get_cpuid_count(0xd, 0, &a, &b, &c, &d) == 0 ? 0 : b;
}

template <std::size_t N> void copy_text(char (&into)[N], std::string_view text) {
    std::memcpy(into, text.data(), std::min(text.size(), N - 1));
}

Error failed(std::string what) {
    return error(ErrorKind::Failed, fmt::format("{}. {}", what, AGAIN));
}

// One injector at a time: two would choose the same room for code. Ends with the program.
class ProcessLock {
public:
    explicit ProcessLock(pid_t pid)
        : fd_(::open(fmt::format("/proc/{}", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
          is_held_(fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0) {}
    ProcessLock(const ProcessLock &) = delete;
    ProcessLock &operator=(const ProcessLock &) = delete;
    ~ProcessLock() {
        if (fd_ >= 0)
            ::close(fd_);
    }
    [[nodiscard]] bool is_held() const { return is_held_; }

private:
    int fd_;
    bool is_held_;
};

// The injector's end of the region that the carried code maps.
class Conversation {
public:
    Conversation(const process::ProcessView &view, std::uint64_t region)
        : view_(view), region_(region), start_ticks_(process::start_ticks(view.pid())) {}

    // False: not within that time.
    bool wait_for(const std::function<bool(const CarrierRegion &)> &is_true,
                  std::uint64_t limit_ns) {
        const std::uint64_t end_ns = monotonic_ns() + limit_ns;
        for (;;) {
            const auto now = view_.read<CarrierRegion>(region_);
            if (now) {
                last_ = *now;
                if (is_true(last_))
                    return true;
            }
            if (monotonic_ns() > end_ns || has_ended())
                return false;
            std::this_thread::sleep_for(LOOK_AGAIN);
        }
    }

    [[nodiscard]] bool has_ended() const {
        return !start_ticks_ || process::has_ended(view_.pid(), *start_ticks_);
    }

    void write(std::size_t offset, std::uint32_t value) const {
        const iovec from{&value, sizeof value};
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        const iovec into{reinterpret_cast<void *>(region_ + offset), sizeof value};
        const ssize_t ignored = ::process_vm_writev(view_.pid(), &from, 1, &into, 1, 0);
        static_cast<void>(ignored);
    }

    [[nodiscard]] const CarrierRegion &last() const { return last_; }

private:
    const process::ProcessView &view_;
    std::uint64_t region_;
    std::optional<std::uint64_t> start_ticks_;
    CarrierRegion last_{};
};

Result<void> fill_file(pid_t pid, int number, std::span<const std::byte> library) {
    const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
    const auto link = inventory::read_link(path);
    if (!link || !link->starts_with(std::string{"/memfd:"} + CW_GPU_LIBRARY))
        return failed(fmt::format("{} is not the file that was made for the library", path));
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const bool is_written = fd >= 0 && ::write(fd, library.data(), library.size()) ==
                                           static_cast<ssize_t>(library.size());
    const int code = errno;
    if (fd >= 0)
        ::close(fd);
    if (!is_written)
        return failed(fmt::format("{}: {}", path, std::strerror(code)));
    return {};
}

class Injector {
public:
    Injector(pid_t pid, std::span<const std::byte> library)
        : view_(pid), pid_(pid), library_(library) {}

    Result<Injection> run() {
        const ProcessLock lock{pid_};
        if (!lock.is_held() && process::start_ticks(pid_))
            return about(failed("another recorder injects into it"));
        if (auto checked = check_target(view_); !checked)
            return std::move(checked).failure();
        start_ticks_ = process::start_ticks(pid_).value_or(0);
        auto prepared = prepare();
        if (!prepared)
            return about(std::move(prepared).failure());
        auto done = borrow_a_thread();
        if (done)
            done = load();
        if (!done)
            return about(std::move(done).failure());
        return injection_;
    }

private:
    [[nodiscard]] Error about(Error failure) const {
        // Then its memory cannot be read, and anything may have failed.
        if (start_ticks_ != 0 && process::has_ended(pid_, start_ticks_))
            failure = exited();
        return std::move(failure).in(fmt::format("process {} gets no guest library", pid_));
    }

    Result<void> prepare() {
        auto functions = find_functions(view_);
        if (!functions)
            return std::move(functions).failure();
        const std::uint64_t extended = extended_bytes();
        if (extended > MAX_EXTENDED_BYTES)
            return error(ErrorKind::Unsupported, "this processor's registers are larger than is "
                                                 "known. Fix: use `collwire run -- CMD`");
        const auto code = find_code_room(
            view_, static_cast<std::uint64_t>(__stop_collwire_carrier - __start_collwire_carrier));
        const auto region = find_free_range(view_.mappings(), REGION_BYTES);
        if (!code || !region)
            return error(ErrorKind::Unsupported, "no file of it has unused room at the end of its "
                                                 "code. Fix: use `collwire run -- CMD`");
        code_ = *code;
        block_.region = *region;
        block_.region_bytes = REGION_BYTES;
        block_.has_xsave = extended != 0;
        block_.pthread_create = functions->pthread_create;
        block_.pthread_self = functions->pthread_self;
        block_.pthread_detach = functions->pthread_detach;
        block_.dlopen = functions->dlopen;
        block_.dlsym = functions->dlsym;
        block_.dlerror = functions->dlerror;
        block_.errno_location = functions->errno_location;
        copy_text(block_.file_name, CW_GPU_LIBRARY);
        copy_text(block_.entry_name, ENTRY);
        copy_text(block_.fd_folder, FD_FOLDER);
        return {};
    }

    Result<void> borrow_a_thread() {
        const std::uint64_t end_ns = monotonic_ns() + SEARCH_NS;
        std::string last;
        do {
            auto sleepers = find_sleepers(pid_);
            if (process::has_ended(pid_, start_ticks_))
                return exited();
            if (!sleepers) {
                last = sleepers.failure().message;
                continue;
            }
            for (const Sleeper &sleeper : *sleepers) {
                auto loan = borrow(pid_, sleeper.tid, code_, block_);
                if (!loan)
                    return std::move(loan).failure();
                if (loan->is_given) {
                    injection_ = {sleeper.tid, sleeper.name,
                                  std::string{name_of_system_call(sleeper.call.number)}, 0};
                    begin_ns_ = loan->begin_ns;
                    return {};
                }
                last = failed(fmt::format("thread {}: {}", sleeper.tid, loan->reason)).message;
            }
        } while (monotonic_ns() < end_ns);
        return error(ErrorKind::Failed, last);
    }

    Result<void> load() {
        Conversation with{view_, block_.region};
        const auto is_out = [](const CarrierRegion &region) { return region.is_out != 0; };
        if (!with.wait_for(is_out, LOAN_NS))
            return give_up(with);
        // The clock may have been set meanwhile.
        if (with.last().end_ns > begin_ns_)
            injection_.paused_ns = with.last().end_ns - begin_ns_;
        if (!with.wait_for([](const CarrierRegion &region) { return region.stage >= STAGE_FILE; },
                           FILE_NS))
            return cancel(with, "its new thread did not start within 5 s");
        if (with.last().fd < 0)
            return failed("it could not make a file in memory (memfd_create)");
        if (auto filled = fill_file(pid_, with.last().fd, library_); !filled) {
            with.write(offsetof(CarrierRegion, cancel), 1);
            return filled;
        }
        with.write(offsetof(CarrierRegion, go), 1);
        if (!with.wait_for([](const CarrierRegion &region) { return region.stage >= STAGE_LOADED; },
                           LOAD_NS))
            return cancel(with, "the library was not loaded within 30 s: another thread is in "
                                "the loader");
        const CarrierRegion end = with.last();
        with.write(offsetof(CarrierRegion, has_read), 1);
        if (end.stage == STAGE_FAILED)
            return failed(fmt::format("its loader said: {:.{}}", end.report,
                                      strnlen(end.report, sizeof end.report)));
        return {};
    }

    static Result<void> cancel(const Conversation &with, std::string_view what) {
        if (with.has_ended())
            return exited();
        with.write(offsetof(CarrierRegion, cancel), 1);
        return failed(std::string{what});
    }

    static Error exited() {
        return error(ErrorKind::Failed, "it has exited. Fix: name a process that runs");
    }

    // The borrowed thread has not come back: nothing may be forced on it. It comes back as soon as
    // it gets the lock or the CPU that it waits for, and then nothing is loaded.
    Result<void> give_up(Conversation &with) {
        with.write(offsetof(CarrierRegion, cancel), 1);
        const std::uint64_t begin_ns = monotonic_ns();
        const auto is_out = [](const CarrierRegion &region) { return region.is_out != 0; };
        if (with.wait_for(is_out, RETURN_NS)) {
            with.write(offsetof(CarrierRegion, cancel), 1);
            with.write(offsetof(CarrierRegion, has_read), 1);
            return failed(fmt::format(
                "thread {} came back after {} ms, later than the limit of 100 ms: nothing was "
                "loaded, all is as before",
                injection_.tid, (LOAN_NS + monotonic_ns() - begin_ns) / NS_PER_MS));
        }
        if (with.has_ended())
            return exited();
        return failed(fmt::format("thread {} has not come back from pthread_create for 10 s, or "
                                  "could not start a thread. It goes on by itself when it gets the "
                                  "lock or the CPU that it waits for; then nothing is loaded",
                                  injection_.tid));
    }

    process::ProcessView view_;
    pid_t pid_;
    std::span<const std::byte> library_;
    CarrierBlock block_;
    std::uint64_t code_ = 0;
    std::uint64_t start_ticks_ = 0;
    std::uint64_t begin_ns_ = 0;
    Injection injection_;
};

} // namespace

Result<void> check(pid_t pid) {
    process::ProcessView view{pid};
    return check_target(view);
}

Result<Injection> inject(pid_t pid, std::span<const std::byte> library) {
    return Injector{pid, library}.run();
}

Result<std::vector<std::byte>> read_guest_library(const std::string &path) {
    return elf::read_library_file(path);
}

} // namespace collwire::inject
