/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel types that collwire's programs read, with only the fields that they read. CO-RE moves
 * every offset to its place in the running kernel, so order and size here have no meaning. A type
 * that changed its shape over time has a flavour, name___what: libbpf ignores everything from the
 * three underscores on.
 */
#ifndef COLLWIRE_KERNEL_TYPES_H
#define COLLWIRE_KERNEL_TYPES_H

/* A program names all parameters of the function that it is attached to. */
#pragma clang diagnostic ignored "-Wunused-parameter"

/* Makes bpf_tracing.h use the kernel's names of the registers. */
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
	BPF_MAP_TYPE_PROG_ARRAY = 3,
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

enum bpf_ringbuf_flags {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

enum bpf_map_create_flags {
	BPF_F_NO_PREALLOC = 1,
};

/* uapi/linux/bpf.h */
struct bpf_pidns_info {
	__u32 pid;
	__u32 tgid;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip,
		cs, flags, sp, ss;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	struct task_struct *group_leader;
	__u64 start_boottime;
	void *mm;
	struct files_struct *files;
};

/* before Linux 5.5, and in some enterprise kernels */
struct task_struct___real_start_time {
	__u64 real_start_time;
};

/*
 * CO-RE needs an enum where the kernel has one. Only the values in use are here; unsigned, 32 bits.
 */
enum rdma_restrack_type {
	RDMA_RESTRACK_QP = 2,
};

enum bpf_func_id {
	BPF_FUNC_get_current_task_btf = 158,
};

enum rdma_driver_id {
	RDMA_DRIVER_MLX5 = 1,
	RDMA_DRIVER_IRDMA = 9,
	RDMA_DRIVER_HNS = 12,
	RDMA_DRIVER_RXE = 14,
	RDMA_DRIVER_MANA = 20,
};

enum rdma_ah_attr_type {
	RDMA_AH_ATTR_TYPE_IB = 1,
	RDMA_AH_ATTR_TYPE_ROCE = 2,
	RDMA_AH_ATTR_TYPE_OPA = 3,
};

enum ib_qp_state {
	IB_QPS_RESET = 0,
	IB_QPS_RTR = 2,
	IB_QPS_RTS = 3,
	IB_QPS_ERR = 6,
};

enum ib_qp_type {
	IB_QPT_GSI = 1,
	IB_QPT_RC = 2,
	IB_QPT_UC = 3,
	IB_QPT_UD = 4,
	IB_QPT_XRC_INI = 9,
	IB_QPT_XRC_TGT = 10,
};

enum ib_gid_type {
	IB_GID_TYPE_ROCE_UDP_ENCAP = 2,
};

enum ib_mtu {
	IB_MTU_256 = 1,
};

enum ib_event_type {
	IB_EVENT_QP_FATAL = 1,
	IB_EVENT_QP_REQ_ERR = 2,
	IB_EVENT_QP_ACCESS_ERR = 3,
};

struct super_block {
	unsigned int s_dev;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	long long i_size;
	__u32 i_generation;
	struct super_block *i_sb;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
	__u64 net_cookie; /* since Linux 5.12 */
};

typedef struct {
	struct net *net;
} possible_net_t;

struct rtnl_link_ops {
	const char *kind;
};

struct net_device {
	const struct rtnl_link_ops *rtnl_link_ops;
	int ifindex;
	char name[16];
	unsigned long state;
	possible_net_t nd_net;
	__u32 flags;
	__u32 priv_flags; /* a bit field since Linux 6.12: READ_INTEGER */
};

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	unsigned short skc_family;
	unsigned char skc_state;
	unsigned long skc_flags; /* bits by enum sock_flags */
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	struct in6_addr skc_v6_daddr; /* with CONFIG_IPV6 */
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
};

typedef struct {
	int owned;
} socket_lock_t;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	__u32 sk_protocol; /* __u16, a bit field before Linux 5.6: READ_INTEGER */
	void *sk_user_data;
};

struct inet_sock {
	__be16 inet_sport;
};

struct tcp_sock {
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 packets_out;
	__u32 segs_out;
	__u32 segs_in;
	__u32 total_retrans;
	__u32 srtt_us; /* of eighths */
	__u32 mss_cache;
};

struct socket {
	struct sock *sk;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	char cb[48];
	void (*destructor)(struct sk_buff *skb);
	__u32 len;
	int skb_iif;
	__be16 vlan_proto;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

union ib_gid {
	__u8 raw[16];
};

struct rdma_restrack_entry {
	struct task_struct *task;
	enum rdma_restrack_type type;
	__u32 id;
};

struct ib_device_ops {
	enum rdma_driver_id driver_id;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct ib_port_data {
	struct net_device *netdev;
};

struct ib_device {
	struct ib_device_ops ops;
	struct ib_port_data *port_data; /* by port number, from 0 */
	char name[64];
	__u32 index;
	refcount_t refcount;
};

struct ib_ucontext {
	struct ib_device *device;
};

struct ib_pd {
	struct rdma_restrack_entry res;
};

struct ib_uobject {
	__u64 user_handle;
};

struct ib_gid_attr {
	union ib_gid gid;
	enum ib_gid_type gid_type;
	__u16 index;
};

struct ib_global_route {
	union ib_gid dgid;
	__u32 flow_label;
	__u8 sgid_index;
	__u8 hop_limit;
	__u8 traffic_class;
};

struct ib_ah_attr {
	__u16 dlid;
};

struct roce_ah_attr {
	__u8 dmac[6];
};

struct opa_ah_attr {
	__u32 dlid;
};

struct rdma_ah_attr {
	struct ib_global_route grh;
	__u8 sl;
	__u8 static_rate;
	__u8 ah_flags;
	enum rdma_ah_attr_type type;
	union {
		struct ib_ah_attr ib;
		struct roce_ah_attr roce;
		struct opa_ah_attr opa;
	};
};

struct ib_qp_attr {
	enum ib_qp_state qp_state;
	enum ib_mtu path_mtu;
	__u32 qkey;
	__u32 rq_psn;
	__u32 sq_psn;
	__u32 dest_qp_num;
	struct rdma_ah_attr ah_attr;
	__u16 pkey_index;
	__u8 max_rd_atomic;
	__u8 min_rnr_timer;
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
};

struct ib_qp {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_qp *real_qp;
	/* really struct ib_uqp_object, which only the modules' own BTF knows; a struct ib_uobject
	 * is its first member */
	struct ib_uobject *uobject;
	const struct ib_gid_attr *av_sgid_attr;
	__u32 qp_num;
	enum ib_qp_type qp_type;
	__u32 port; /* __u8 before Linux 5.13: READ_INTEGER */
	struct rdma_restrack_entry res;
};

struct ib_event {
	struct ib_device *device;
	union {
		struct ib_qp *qp;
		__u32 port_num; /* __u8 before Linux 5.13 */
	} element;
	enum ib_event_type event;
};

#pragma clang attribute pop

/* An integer field whose size differs between kernels. */
#define READ_INTEGER(pointer, field) BPF_CORE_READ_BITFIELD_PROBED(pointer, field)

#endif
