// SPDX-License-Identifier: Apache-2.0
// guarded_call.h
    .text
    .globl guarded_call
    .type guarded_call, @function
guarded_call:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    push %rdx
    push %rsi
    sub $8, %rsp
    stmxcsr (%rsp)
    mov %rdi, %rax
    mov %rsi, %rcx
    ldmxcsr 224(%rcx)
    cmpl $0, 228(%rcx)
    je 1f
    .set n, 0
    .irp v, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovdqu 256+n(%rcx), %ymm\v
    .set n, n+32
    .endr
1:
    .set n, 0
    .rept 16
    mov 96+n(%rcx), %rdx
    mov %rdx, -128+n(%rsp)
    .set n, n+8
    .endr
    mov 0(%rcx), %rbx
    mov 8(%rcx), %rbp
    mov 16(%rcx), %r12
    mov 24(%rcx), %r13
    mov 32(%rcx), %r14
    mov 40(%rcx), %r15
    mov 48(%rcx), %rdi
    mov 56(%rcx), %rsi
    mov 64(%rcx), %rdx
    mov 72(%rcx), %r10
    mov 80(%rcx), %r8
    mov 88(%rcx), %r9
    syscall
    mov 16(%rsp), %rcx
    mov %rbx, 0(%rcx)
    mov %rbp, 8(%rcx)
    mov %r12, 16(%rcx)
    mov %r13, 24(%rcx)
    mov %r14, 32(%rcx)
    mov %r15, 40(%rcx)
    mov %rdi, 48(%rcx)
    mov %rsi, 56(%rcx)
    mov %rdx, 64(%rcx)
    mov %r10, 72(%rcx)
    mov %r8, 80(%rcx)
    mov %r9, 88(%rcx)
    .set n, 0
    .rept 16
    mov -128+n(%rsp), %rdx
    mov %rdx, 96+n(%rcx)
    .set n, n+8
    .endr
    stmxcsr 224(%rcx)
    mov 8(%rsp), %rdx
    mov 228(%rdx), %esi
    mov %esi, 228(%rcx)
    test %esi, %esi
    je 2f
    .set n, 0
    .irp v, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovdqu %ymm\v, 256+n(%rcx)
    .set n, n+32
    .endr
    vzeroupper
2:  ldmxcsr (%rsp)
    add $24, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
    .size guarded_call, .-guarded_call
    .section .note.GNU-stack,"",@progbits
