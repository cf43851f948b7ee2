/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel types that collwire's programs read, with the fields they read and no others. CO-RE
 * moves every offset to where the running kernel has it, so order and size here mean nothing. A
 * type that changed its shape over time has a flavour, name___what: libbpf ignores everything from
 * the three underscores on.
 */
#ifndef COLLWIRE_KERNEL_TYPES_H
#define COLLWIRE_KERNEL_TYPES_H

/* Tells bpf_tracing.h to use the kernel's names of the registers. */
#define __VMLINUX_H__

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type_used {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum bpf_update_flags {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

enum bpf_map_create_flags {
	BPF_F_NO_PREALLOC = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip,
		cs, flags, sp, ss;
};

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	struct task_struct *group_leader;
	__u64 start_boottime;
};

/* before Linux 5.5, and in some enterprise kernels */
struct task_struct___real_start_time {
	__u64 real_start_time;
};

#pragma clang attribute pop

#endif
