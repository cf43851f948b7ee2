// SPDX-License-Identifier: Apache-2.0
#include "probes.h"

// The layout of a note: the documentation of SystemTap's user-space probes (version 3).
#if defined(__x86_64__)
#define FIRST_ARGUMENT "8@%%rdi"
#elif defined(__aarch64__)
#define FIRST_ARGUMENT "8@x0"
#else
#error "probes.cpp: no argument register for this processor"
#endif

#define PROBE_SITE(name, semaphore, arguments)                                                     \
    "990: nop\n"                                                                                   \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                   \
    ".balign 4\n"                                                                                  \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                             \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b\n"                                                                           \
    ".8byte _.stapsdt.base\n"                                                                      \
    ".8byte " semaphore "\n"                                                                       \
    ".asciz \"collwire\"\n"                                                                        \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"" arguments "\"\n"                                                                   \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"                                                                                \
    ".ifndef _.stapsdt.base\n"                                                                     \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                        \
    ".weak _.stapsdt.base\n"                                                                       \
    ".hidden _.stapsdt.base\n"                                                                     \
    "_.stapsdt.base: .space 1\n"                                                                   \
    ".size _.stapsdt.base, 1\n"                                                                    \
    ".popsection\n"                                                                                \
    ".endif\n"

__attribute__((section(".probes"), used)) volatile unsigned short collwire_gpu_arm_semaphore = 0;

__attribute__((noinline, used)) void collwire_gpu_arm() {
    asm volatile(PROBE_SITE("gpu_arm", "collwire_gpu_arm_semaphore", "")::: "memory");
}

__attribute__((noinline, used)) void collwire_gpu_batch(const cw_gpu_batch *batch) {
    asm volatile(PROBE_SITE("gpu_batch", "0", FIRST_ARGUMENT)::"r"(batch) : "memory");
}
