// SPDX-License-Identifier: Apache-2.0
// What the injector and the code that it carries into a process share. The code is one section of
// this program, without references to others; it runs at any address. docs/inject.md
#pragma once

#include <cstddef>
#include <cstdint>

namespace collwire::inject {

inline constexpr std::size_t MAX_FUNCTION_NAME = 24;
inline constexpr std::size_t MAX_REPORT = 256;

// At the start of the carried code, which reads it and never writes it. The offsets are those of
// carrier.cpp's assembly.
struct CarrierBlock {
    std::uint64_t region = 0; // address of the CarrierRegion
    std::uint64_t region_bytes = 0;
    std::uint64_t has_xsave = 0;
    std::uint64_t signal_mask = 0;
    std::uint64_t flags = 0;
    std::uint64_t rsp = 0;
    std::uint64_t restart_rip = 0; // continues the system call
    std::uint64_t restart_rax = 0;
    std::uint64_t interrupted_rip = 0; // returns EINTR from it
    std::uint64_t interrupted_rax = 0;
    std::uint64_t rbx = 0, rbp = 0, rdi = 0, rsi = 0, rdx = 0, r8 = 0, r9 = 0, r10 = 0, r11 = 0,
                  r12 = 0, r13 = 0, r14 = 0, r15 = 0;
    std::uint64_t restart = 0; // enum Restart
    std::uint64_t pthread_create = 0, pthread_self = 0, pthread_detach = 0, dlopen = 0, dlsym = 0,
                  dlerror = 0, errno_location = 0;
    char file_name[MAX_FUNCTION_NAME] = {};  // of the memfd
    char entry_name[MAX_FUNCTION_NAME] = {}; // the function of the library to call
    char fd_folder[MAX_FUNCTION_NAME] = {};  // before the number of the memfd
};

// What a handled signal does to the interrupted system call (arch/x86/kernel/signal.c).
enum Restart : std::uint64_t {
    RESTART_ALWAYS,      // ERESTARTNOINTR
    RESTART_BY_SA_FLAGS, // ERESTARTSYS
    RESTART_NEVER,       // ERESTARTNOHAND, ERESTART_RESTARTBLOCK, EINTR
};

enum Stage : std::uint32_t {
    STAGE_NONE,
    STAGE_THREAD, // the new thread runs
    STAGE_FILE,   // `fd` is an empty memfd
    STAGE_LOADED, // the library's function has returned
    STAGE_FAILED, // `report` says why
};

// Mapped by the carried code: this, the saved extended registers, the borrowed thread's stack.
struct CarrierRegion {
    std::uint64_t block = 0;
    std::uint32_t stage = STAGE_NONE;
    std::uint32_t is_out = 0;   // the borrowed thread is on its own stack again
    std::uint32_t go = 0;       // from the injector: the memfd has the library
    std::uint32_t cancel = 0;   // from the injector: load nothing
    std::uint32_t has_read = 0; // from the injector: the region may go
    std::int32_t fd = -1;
    std::int32_t thread_error = 0;
    std::int32_t helper_tid = 0;
    std::uint64_t end_ns = 0; // of the borrowed thread's run, CLOCK_REALTIME
    std::uint64_t thread = 0;
    char report[MAX_REPORT] = {};
};

inline constexpr std::uint64_t EXTENDED_AT = 4096; // from the start of the region
inline constexpr std::uint64_t MAX_EXTENDED_BYTES = 16384;
inline constexpr std::uint64_t REGION_BYTES = 256 << 10; // the rest is the stack

} // namespace collwire::inject

// The section (its start has the block), and its first instruction.
extern "C" {
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
extern const unsigned char __start_collwire_carrier[];
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
extern const unsigned char __stop_collwire_carrier[];
extern const unsigned char collwire_carrier_block[];
extern const unsigned char collwire_carrier_entry[];
}
