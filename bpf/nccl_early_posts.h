/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Operations that NCCL gives to a proxy before their launch, because its list is full: the lists at
 * the launch no longer contain them.
 */
#ifndef COLLWIRE_NCCL_EARLY_POSTS_H
#define COLLWIRE_NCCL_EARLY_POSTS_H

#include "nccl_connections.h"

/* Threads that gave operations of a launch to a proxy before the launch. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u8);
} early_posts SEC(".maps");

__u64 n_early_posts; /* 0: no thread is looked up */

static __always_inline void note_early_post(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u8 one = 1;

	if (!tgid_wanted(id >> 32))
		return;
	__sync_fetch_and_add(&n_early_posts, 1);
	bpf_map_update_elem(&early_posts, &id, &one, BPF_ANY);
}

static __always_inline bool has_posted_early(__u64 id)
{
	return *(volatile __u64 *)&n_early_posts && !bpf_map_delete_elem(&early_posts, &id);
}

#endif
