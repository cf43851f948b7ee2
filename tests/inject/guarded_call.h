// SPDX-License-Identifier: Apache-2.0
// A system call with a known value in every register, and in the red zone, before and after it.
#pragma once

#include <cstdint>

namespace collwire::inject_test {

struct Registers {
    std::uint64_t general[12]; // rbx rbp r12 r13 r14 r15, rdi rsi rdx r10 r8 r9
    std::uint64_t red_zone[16];
    std::uint32_t mxcsr;
    std::uint32_t has_avx;
    alignas(32) std::uint8_t vectors[16][32];
};

// rax after the call. `before`: its rbx to r15, red zone, MXCSR and vectors are loaded, its last
// six general registers are the arguments. `after`: all as they are then.
extern "C" long guarded_call(long number, const Registers *before, Registers *after);

} // namespace collwire::inject_test
