// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_nccl/fake_nccl.h"

// What a probe at its entry would see: the registers that a function hands back as they were.
FAKE_API std::uint64_t fake_preserved[6];
std::uint64_t fake_preserved[6];

int ncclProxyStart(ncclComm *comm);
asm(".text\n"
    ".globl _Z14ncclProxyStartP8ncclComm\n"
    ".type _Z14ncclProxyStartP8ncclComm, @function\n"
    "_Z14ncclProxyStartP8ncclComm:\n"
    ".cfi_startproc\n"
    "push %rbp\n"
    ".cfi_def_cfa_offset 16\n"
    "mov fake_preserved@GOTPCREL(%rip), %rax\n"
    "mov %rbx, 0(%rax)\n"
    "mov %rbp, 8(%rax)\n"
    "mov %r12, 16(%rax)\n"
    "mov %r13, 24(%rax)\n"
    "mov %r14, 32(%rax)\n"
    "mov %r15, 40(%rax)\n"
    "xor %eax, %eax\n"
    "pop %rbp\n"
    ".cfi_def_cfa_offset 8\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size _Z14ncclProxyStartP8ncclComm, . - _Z14ncclProxyStartP8ncclComm\n");

// The plan is used after the call, so it is kept over it.
__attribute__((noinline)) int hostStreamPlanTask(ncclComm *comm, ncclKernelPlan *plan) {
    const int result = ncclProxyStart(comm);
    plan->persistent = result == 0;
    return result;
}

FAKE_API int fake_launch(ncclComm *comm, ncclKernelPlan *plan) {
    return hostStreamPlanTask(comm, plan) + 1;
}

FAKE_API int fake_enumerators(ncclPattern_t pattern, ncclFunc_t function) {
    return static_cast<int>(pattern) + static_cast<int>(function);
}
