/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The floor: what any uprobe costs. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct pt_regs;

SEC("uprobe")
int nothing(struct pt_regs *ctx) {
    (void)ctx;
    return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
