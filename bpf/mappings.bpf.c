/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Files that a process maps to execute code from, each at its first mapping in any process: a
 * library may be loaded at any moment (dlopen). For the recorder alone, never in a capture. A
 * process makes a few such mappings in its life. The recorder removes a file from seen_files when
 * it could not read it.
 */
#include "shared_maps.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "collwire/gpu_records.h"
#include "collwire/recorder_records.h"
#include "collwire/tables.h"
#include "collwire/verbs.h"

#define PROT_EXEC 4

/* Smaller files hold no library that the recorder searches for, but these two. */
const volatile __u64 least_file_bytes = 0;
const volatile bool wants_guest_library = false;
const volatile bool wants_libibverbs = false;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cw_file_key);
	__type(value, __u8);
} seen_files SEC(".maps");

#define MOST_NAME_BYTES 32

struct file_name {
	char text[MOST_NAME_BYTES];
};

/* By the beginning of its name: a version may follow. */
#define STARTS_WITH(name, wanted)                                                                  \
	({                                                                                         \
		const char w__[] = wanted;                                                         \
		bool same__ = true;                                                                \
		__u32 i__;                                                                         \
                                                                                                   \
		_Pragma("unroll") for (i__ = 0; i__ < sizeof(w__) - 1; i__++) same__ =             \
			same__ && (name)->text[i__] == w__[i__];                                   \
		same__;                                                                            \
	})

static __always_inline bool is_wanted_by_name(struct file *file)
{
	struct file_name name = {};

	if (!wants_guest_library && !wants_libibverbs)
		return false;
	bpf_probe_read_kernel_str(&name, sizeof(name),
				  BPF_CORE_READ(file, f_path.dentry, d_name.name));
	return (wants_guest_library && STARTS_WITH(&name, CW_GPU_LIBRARY)) ||
	       (wants_libibverbs && STARTS_WITH(&name, CW_LIBIBVERBS));
}

static __always_inline int on_mapping(struct file *file, unsigned long prot)
{
	struct cw_file_key key = {};
	struct cw_file_mapped *e;
	struct inode *inode;
	__u64 size;
	__u8 one = 1;

	if (!file || !(prot & PROT_EXEC) || !tgid_wanted(bpf_get_current_pid_tgid() >> 32))
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	size = (__u64)BPF_CORE_READ(inode, i_size);
	if (size < least_file_bytes && !is_wanted_by_name(file))
		return 0;
	key.inode = BPF_CORE_READ(inode, i_ino);
	key.device = BPF_CORE_READ(inode, i_sb, s_dev);
	key.address = (__u64)inode;
	key.size = size;
	key.generation = BPF_CORE_READ(inode, i_generation);
	if (bpf_map_update_elem(&seen_files, &key, &one, BPF_NOEXIST))
		return 0;
	e = RESERVE_RECORD(cw_file_mapped, CW_KIND_FILE_MAPPED, CW_LOSS_NCCL_COMM);
	if (!e) {
		bpf_map_delete_elem(&seen_files, &key);
		return 0;
	}
	e->tgid = bpf_get_current_pid_tgid() >> 32;
	e->inode = key.inode;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/* int security_mmap_file(struct file *file, unsigned long prot, unsigned long flags) */
SEC("fentry/security_mmap_file")
int BPF_PROG(mmap_fentry, struct file *file, unsigned long prot, unsigned long flags)
{
	return on_mapping(file, prot);
}

/*
 * The same again: where the kernel preempts programs, the first one misses the calls of other
 * tasks (twice.h). The file that it saw is in seen_files.
 */
SEC("fentry/security_mmap_file")
int BPF_PROG(mmap_fentry_again, struct file *file, unsigned long prot, unsigned long flags)
{
	return on_mapping(file, prot);
}

SEC("kprobe/security_mmap_file")
int BPF_KPROBE(mmap_kprobe, struct file *file, unsigned long prot, unsigned long flags)
{
	return on_mapping(file, prot);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
