/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The table of communicators of the processes that run this NCCL library file. */
#ifndef COLLWIRE_NCCL_COMMS_H
#define COLLWIRE_NCCL_COMMS_H

#include "own_stack.h"
#include "shared_maps.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_layout.h"
#include "collwire/nccl_tables.h"
#include "qp_table.h"

const volatile struct cw_nccl_layout layout = {};

/* ncclComm.startMagic, 2.21 and later. */
#define NCCL_MAGIC 0x0280028002800280ull

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct cw_nccl_comm_key);
	__type(value, struct cw_nccl_comm_entry);
} comms SEC(".maps");

/* Never written: new entries are copies of it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cw_nccl_comm_entry);
} no_comm SEC(".maps");

#define HAS(field) (layout.field != CW_NCCL_NO_FIELD)

/* Reads a field of NCCL; false: this build has no such field, or its memory is not mapped. */
#define READ_FIELD(into, base, field)                                                              \
	(HAS(field) && !bpf_probe_read_user(&(into), sizeof(into), (void *)((base) + layout.field)))

/* The same for a field that not every build has: false only if its memory is not mapped. */
#define READ_IF_HAD(into, base, field) (!HAS(field) || READ_FIELD(into, base, field))

static __always_inline __u64 mm_of_current(void)
{
	struct task_struct *task;

	/* Since Linux 5.11 without a call to read it. */
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)) {
		task = bpf_get_current_task_btf();
		return (__u64)task->mm;
	}
	task = (void *)bpf_get_current_task();
	return (__u64)BPF_CORE_READ(task, mm);
}

/*
 * The number of collectives that NCCL has started. Since 2.26 NCCL counts per communicator and
 * kind, before for all communicators that share their connections.
 */
static __always_inline bool read_launched(__u64 comm, __u64 *launched)
{
	__u64 shared;

	if (layout.seq_numbers_count && HAS(comm_seq_number)) {
		__u64 numbers[5];

		if (bpf_probe_read_user(numbers, sizeof(numbers),
					(void *)(comm + layout.comm_seq_number)))
			return false;
		*launched = numbers[0] + numbers[1] + numbers[2] + numbers[3] + numbers[4];
		return true;
	}
	return READ_FIELD(shared, comm, comm_shared_res) &&
	       READ_FIELD(*launched, shared, shared_coll_op_count);
}

/* The memory there is a communicator, as far as this build can check. */
static __always_inline bool is_comm(__u64 comm)
{
	__u64 magic = 0;

	if (!comm)
		return false;
	if (HAS(comm_start_magic))
		return READ_FIELD(magic, comm, comm_start_magic) && magic == NCCL_MAGIC;
	return READ_FIELD(magic, comm, comm_hash);
}

/* A word of an array of ints, if the array exists. `failed` is not 0 if it could not be read. */
static __always_inline __s32 int_at(__u64 array, __s64 i, __s32 otherwise, long *failed)
{
	__s32 value = otherwise;

	if (array)
		*failed |= bpf_probe_read_user(&value, sizeof(value), (void *)(array + i * 4));
	return value;
}

/*
 * The first `n` of an array of ints if it exists, else 0, 1, ... The only branch of all three loops
 * is their end: before Linux 5.15 the verifier follows every way through.
 */
static __always_inline bool read_ints(__u32 *into, __u64 n, __u64 array)
{
	__u32 i;

	if (array && n >= CW_NCCL_PROXIES)
		return !bpf_probe_read_user(into, CW_NCCL_PROXIES * sizeof(*into), (void *)array);
	if (array) {
		barrier_var(n);
		n &= CW_NCCL_PROXIES - 1; /* for the verifier */
		return !bpf_probe_read_user(into, n * sizeof(*into), (void *)array);
	}
	for (i = 0; i < CW_NCCL_PROXIES; i++)
		into[i] = i;
	return true;
}

/* Replaces each index by the array's value at that index. */
static __always_inline bool map_ints(__u32 *indices, __u64 n, __u64 array)
{
	long failed = 0;
	__u32 i;

	for (i = 0; i < CW_NCCL_PROXIES && i < n; i++) {
		__u32 value = 0;

		failed |= bpf_probe_read_user(&value, sizeof(value),
					      (void *)(array + (__s64)(__s32)indices[i] * 4));
		indices[i] = value;
	}
	return !failed;
}

static __always_inline bool are_run(const __u32 *indices, __u64 n)
{
	__u32 i, other = 0;

	for (i = 0; i < CW_NCCL_PROXIES && i < n; i++)
		other |= indices[i] ^ (indices[0] + i);
	return !other;
}

/*
 * For tests: the read that fails, the first `fail_times` times (COLLWIRE_TEST_FAIL_READ). With 0
 * the verifier removes the check.
 */
const volatile __u32 fail_read = CW_NCCL_READ_NONE;
const volatile __u32 fail_times = 0;
__u32 n_failed_on_purpose;

static __always_inline bool fails_on_purpose(__u32 read)
{
	if (fail_read != read || *(volatile __u32 *)&n_failed_on_purpose >= fail_times)
		return false;
	__sync_fetch_and_add(&n_failed_on_purpose, 1);
	return true;
}

/* Always false: the recorder finds in the entry which read failed, and fetches that memory. */
static __always_inline bool unread(struct cw_nccl_comm_entry *entry, __u32 read, __u64 address)
{
	entry->unread = read;
	entry->unread_at = address; /* 0: failed on purpose, where there is no array */
	return false;
}

#define FIND_FIELD(into, base, field, read)                                                        \
	((!fails_on_purpose(read) && READ_FIELD(into, base, field)) ||                             \
	 unread(entry, read, (base) + layout.field))

#define FIND_IF_HAD(into, base, field, read) (!HAS(field) || FIND_FIELD(into, base, field, read))

/*
 * For how long a communicator that owns the connections of another, and that cannot be read, may
 * still be there: the recorder reads it in that time. Then it has ended.
 */
#define OWNER_MAY_RETURN_NS 3000000000ull

/* The communicator that owns the connections of this one. False: not known yet. */
static __always_inline bool find_owner(struct cw_nccl_comm_entry *entry, __u64 comm, __u64 shared,
				       __u64 *top)
{
	__u64 owner = 0, magic = 0, now;

	*top = comm;
	if (shared && !FIND_IF_HAD(owner, shared, shared_owner, CW_NCCL_READ_OWNER))
		return false;
	if (!owner || owner == comm)
		return true;
	if (!HAS(comm_start_magic)) {
		if (READ_FIELD(magic, owner, comm_hash))
			*top = owner;
		return true;
	}
	if (FIND_FIELD(magic, owner, comm_start_magic, CW_NCCL_READ_OWNER_MAGIC)) {
		if (magic == NCCL_MAGIC)
			*top = owner;
		return true;
	}
	now = bpf_ktime_get_ns();
	if (!entry->owner_unread_ns)
		entry->owner_unread_ns = now;
	return now - entry->owner_unread_ns > OWNER_MAY_RETURN_NS;
}

#define NEIGHBOURS 64

/*
 * The other ranks of the node, of which none has a proxy's operation. Before Linux 5.15 the
 * verifier follows each branch of a loop: here its end is the only one. `entry->proxies` is its
 * scratch.
 */
static __always_inline bool find_neighbours(struct cw_nccl_comm_entry *entry, __u64 comm,
					    __u64 to_rank)
{
	__u64 neighbours = 0, far, bit;
	__s32 n = 0, own = -1;
	__u32 i;

	if (!to_rank || !READ_FIELD(n, comm, comm_local_ranks) ||
	    !READ_FIELD(own, comm, comm_rank) || n < 2)
		return true;
	if (!read_ints(entry->proxies, n, to_rank))
		return unread(entry, CW_NCCL_READ_RANKS_OF_NODE, to_rank);
	for (i = 0; i < CW_NCCL_PROXIES && i < (__u32)n; i++) {
		bit = entry->proxies[i] - entry->proxies[0];
		far = bit / NEIGHBOURS;
		far = (far | -far) >> 63; /* 1, unless it was 0 */
		barrier_var(far);
		neighbours |= (1ULL << (bit & (NEIGHBOURS - 1))) & (far - 1);
	}
	entry->first_of_node = entry->proxies[0];
	bit = (__s64)own - entry->first_of_node;
	if (bit < NEIGHBOURS)
		neighbours &= ~(1ULL << bit);
	entry->neighbours = neighbours;
	return true;
}

static __always_inline bool is_neighbour(const struct cw_nccl_comm_entry *entry, __s32 rank)
{
	__u64 bit = (__s64)rank - entry->first_of_node;

	return bit < NEIGHBOURS && entry->neighbours >> bit & 1;
}

/*
 * The entries of proxyOps that this communicator's operations may use: those of all local ranks of
 * the communicator that owns its connections, in the order of ncclProxyStart. A communicator that
 * shares connections (splitShare) may send through a rank outside of it. Entries are by local rank
 * of the owner; since 2.30.7, and in 2.30.3 and 2.30.4 if ranks of several cliques reach one
 * another, by its rank. Their number (peerArraySize) says which: it is that of local ranks, or that
 * of ranks. False: the memory that lists them is not mapped. Without proxy_ops the next launch
 * tries again.
 */
static __always_inline bool find_proxies(struct cw_nccl_comm_entry *entry, __u64 comm)
{
	__u64 state = 0, ops = 0, to_rank = 0, top = comm, shared = 0, array;
	__u64 top_ranks = 0, top_local_ranks = 0;
	__s32 local_rank = 0, local_ranks = 0, n_lists = 0, rank;
	bool by_rank = false;
	long failed = 0;
	__u64 n;

	if (!HAS(comm_proxy_state) || !HAS(proxy_state_ops) || !HAS(comm_local_rank) ||
	    !HAS(comm_local_ranks))
		return true;
	if (!FIND_FIELD(state, comm, comm_proxy_state, CW_NCCL_READ_PROXY_STATE))
		return false;
	entry->proxy_state = state;
	if (!state)
		return true;
	if (!FIND_FIELD(ops, state, proxy_state_ops, CW_NCCL_READ_PROXY_OPS))
		return false;
	if (!ops)
		return true;
	if (!FIND_FIELD(local_rank, comm, comm_local_rank, CW_NCCL_READ_LOCAL_RANK) ||
	    !FIND_IF_HAD(to_rank, comm, comm_local_rank_to_rank, CW_NCCL_READ_RANKS_OF_NODE) ||
	    !FIND_IF_HAD(top_ranks, comm, comm_top_parent_ranks, CW_NCCL_READ_PARENT_RANKS) ||
	    !FIND_IF_HAD(top_local_ranks, comm, comm_top_parent_local_ranks,
			 CW_NCCL_READ_PARENT_LOCAL_RANKS) ||
	    !FIND_IF_HAD(shared, comm, comm_shared_res, CW_NCCL_READ_SHARED) ||
	    !find_owner(entry, comm, shared, &top) ||
	    !FIND_FIELD(local_ranks, top, comm_local_ranks, CW_NCCL_READ_LOCAL_RANKS) ||
	    !FIND_IF_HAD(n_lists, state, proxy_state_lists, CW_NCCL_READ_LIST_COUNT) ||
	    !find_neighbours(entry, comm, to_rank))
		return false;
	if (HAS(proxy_state_lists))
		by_rank = n_lists != local_ranks;
	array = by_rank ? to_rank : 0;
	rank = int_at(array, local_rank, local_rank, &failed);
	if (failed || fails_on_purpose(CW_NCCL_READ_RANK_IN_NODE))
		return unread(entry, CW_NCCL_READ_RANK_IN_NODE, array + (__s64)local_rank * 4);
	array = by_rank ? top_ranks : top_local_ranks;
	entry->own = int_at(array, rank, rank, &failed);
	if (failed || fails_on_purpose(CW_NCCL_READ_OWN_PROXY))
		return unread(entry, CW_NCCL_READ_OWN_PROXY, array + (__s64)rank * 4);
	if (top != comm) {
		top_ranks = top_local_ranks = 0;
		if (!FIND_IF_HAD(to_rank, top, comm_local_rank_to_rank,
				 CW_NCCL_READ_RANKS_OF_PARENT_NODE))
			return false;
	}
	n = local_ranks < 0 ? 0 : local_ranks;
	entry->n_proxies = n;
	if (n > CW_NCCL_PROXIES)
		n = CW_NCCL_PROXIES;
	array = by_rank ? to_rank : top_local_ranks;
	if (fails_on_purpose(CW_NCCL_READ_PROXIES) || !read_ints(entry->proxies, n, array))
		return unread(entry, CW_NCCL_READ_PROXIES, array);
	if (by_rank && top_ranks && !map_ints(entry->proxies, n, top_ranks))
		return unread(entry, CW_NCCL_READ_PROXIES, top_ranks);
	entry->is_run = are_run(entry->proxies, n);
	entry->proxy_ops = ops;
	return true;
}

/* False: the record was dropped. Not inlined: its stack is free again afterwards. */
static __noinline long emit_comm(__u64 comm, const struct cw_nccl_comm_entry *entry, __u32 flags,
				 __u64 parent, __s32 color)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid(), name = 0, shared = 0, owner = 0;
	struct cw_nccl_comm *r = RESERVE_RECORD(cw_nccl_comm, CW_KIND_NCCL_COMM, CW_LOSS_NCCL_COMM);

	if (!r)
		return false;
	r->header.time_ns = entry->generation_ns;
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->comm = comm;
	r->start_boottime_ns = start_boottime(BPF_CORE_READ(task, group_leader));
	r->parent = parent;
	r->color = color;
	r->image_id = layout.image_id;
	r->flags = flags;
	r->proxy_state = entry->proxy_state;
	if (layout.calls_only)
		r->flags |= CW_NCCL_COMM_CALLS_ONLY;
	if (!HAS(comm_node))
		r->node = -1;
	READ_FIELD(r->comm_hash, comm, comm_hash);
	READ_FIELD(r->bus_id, comm, comm_bus_id);
	READ_FIELD(r->op_count, comm, comm_op_count);
	READ_FIELD(r->rank, comm, comm_rank);
	READ_FIELD(r->n_ranks, comm, comm_n_ranks);
	READ_FIELD(r->cuda_dev, comm, comm_cuda_dev);
	READ_FIELD(r->node, comm, comm_node);
	READ_FIELD(r->n_nodes, comm, comm_n_nodes);
	READ_FIELD(r->local_rank, comm, comm_local_rank);
	READ_FIELD(r->local_ranks, comm, comm_local_ranks);
	READ_FIELD(r->p2p_channels, comm, comm_p2p_channels);
	READ_FIELD(r->p2p_channels_per_peer, comm, comm_p2p_channels_per_peer);
	/* Its launches before the gate opens are not emitted: it is like a pre-existing one. */
	if (is_held())
		r->flags &= ~CW_NCCL_COMM_CREATED;
	else if (read_launched(comm, &r->launched))
		r->flags |= CW_NCCL_COMM_LAUNCHED;
	if (READ_FIELD(shared, comm, comm_shared_res) && READ_FIELD(owner, shared, shared_owner) &&
	    owner != comm)
		r->flags |= CW_NCCL_COMM_SHARED;
	if (READ_FIELD(name, comm, comm_name) && name)
		bpf_probe_read_user_str(r->name, sizeof(r->name), (void *)name);
	bpf_ringbuf_submit(r, 0);
	return true;
}

/*
 * 1: the memory that lists them is not mapped. Global: the verifier checks it once, and not with
 * each state of a caller.
 */
__weak __noinline long meet_proxies(__u64 comm)
{
	struct cw_nccl_comm_key key = {.comm = comm, .tgid = bpf_get_current_pid_tgid() >> 32};
	struct cw_nccl_comm_entry *entry = bpf_map_lookup_elem(&comms, &key);

	return entry && !find_proxies(entry, comm);
}

/*
 * Makes the entry of a communicator at its discovery and emits its record. Not inlined: its stack
 * is free again afterwards.
 */
static __noinline long meet_comm(__u64 comm, __u64 flags, __u64 parent, __u64 color)
{
	struct cw_nccl_comm_key key = {.comm = comm, .tgid = bpf_get_current_pid_tgid() >> 32};
	struct cw_nccl_comm_entry *entry, *nothing;
	__u32 zero = 0;

	if (!is_comm(comm))
		return 1;
	nothing = bpf_map_lookup_elem(&no_comm, &zero);
	if (!nothing || bpf_map_update_elem(&comms, &key, nothing, BPF_ANY)) {
		count_loss(CW_LOSS_NCCL_COMM);
		return 1;
	}
	entry = bpf_map_lookup_elem(&comms, &key);
	if (!entry)
		return 1;
	entry->mm = mm_of_current();
	entry->generation_ns = bpf_ktime_get_ns();
	(void)meet_proxies(comm);
	if (emit_comm(comm, entry, flags, parent, color))
		return 0;
	/* No record was emitted: it is discovered again at its next call or launch. */
	bpf_map_delete_elem(&comms, &key);
	return 1;
}

/* NULL: not a communicator, or the table is full, which is counted. */
static __always_inline struct cw_nccl_comm_entry *comm_entry(__u64 comm)
{
	struct cw_nccl_comm_key key = {.comm = comm, .tgid = bpf_get_current_pid_tgid() >> 32};
	struct cw_nccl_comm_entry *entry = bpf_map_lookup_elem(&comms, &key);

	/* After an exec the same address is another communicator. */
	if (entry && entry->mm == mm_of_current())
		return entry;
	/* The recorder has read it from memory and emitted its record. */
	if (entry && !entry->mm) {
		entry->mm = mm_of_current();
		return entry;
	}
	return meet_comm(comm, 0, 0, 0) ? NULL : bpf_map_lookup_elem(&comms, &key);
}

#endif
