/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records that a capture starts with: the node, its devices and processes, probes and sources.
 */
#ifndef COLLWIRE_NODE_RECORDS_H
#define COLLWIRE_NODE_RECORDS_H

#include "collwire/record.h"

enum cw_node_flags {
	CW_NODE_FIRST_SEGMENT =
		1 << 0, /* QP counters start at 0 here; later segments start with a snapshot */
	CW_NODE_WIRE = 1 << 1,	  /* wire bytes are counted per QP where the kernel can count */
	CW_NODE_POSTS = 1 << 2,	  /* posted bytes are counted per QP */
	CW_NODE_NCCL = 1 << 3,	  /* NCCL's operations are recorded */
	CW_NODE_SOCKETS = 1 << 4, /* bytes of NCCL's sockets are counted */
	CW_NODE_GPU = 1 << 5,	  /* kernels of GPUs are traced, all the time or in slices */
};

struct cw_node {
	struct cw_header header;
	__u64 session_id;      /* random, the same in every segment of one recording */
	__u32 segment;	       /* 0, 1, ... */
	__u32 flags;	       /* enum cw_node_flags */
	__u64 realtime_ns;     /* CLOCK_REALTIME at header.time_ns */
	__u64 boottime_ns;     /* CLOCK_BOOTTIME at header.time_ns */
	__u64 record_start_ns; /* monotonic; all probes were in place, and counting began */
	__u32 recorder_pid;
	__u32 n_cpus;
	char hostname[CW_NAME_BYTES];
	char boot_id[40];
	char kernel_release[72];
	char tool_version[32];
	char machine_id[40];
	__u64 sample_interval_ns; /* between two readings of a counter; 0: not known */
};

enum cw_link_layer {
	CW_LINK_UNKNOWN = 0,
	CW_LINK_INFINIBAND = 1,
	CW_LINK_ETHERNET = 2,
};

enum cw_device_flags {
	CW_DEVICE_FOREIGN_MODULE = 1 << 0, /* its kernel module is not part of the kernel package */
	CW_DEVICE_SOFTWARE = 1 << 1,	   /* rdma_rxe, siw: no hardware */
};

struct cw_device {
	struct cw_header header;
	__u32 dev_index;
	__u32 flags; /* enum cw_device_flags */
	__u64 node_guid;
	__s32 numa_node; /* -1: unknown or none */
	__u32 n_ports;
	char name[CW_NAME_BYTES];
	char driver[32];
	char pci_address[16]; /* empty: not a PCI device */
	char firmware[32];
	char board_id[32];
};

struct cw_port {
	struct cw_header header;
	__u32 dev_index;
	__u32 port;
	__u32 link_layer; /* enum cw_link_layer */
	__u32 state;	  /* enum ib_port_state: 1 down, 2 init, 3 armed, 4 active; 0: not known */
	__u32 phys_state; /* as the port's phys_state file numbers it; 0: not known */
	__u32 lid;
	__u32 sm_lid;
	__u32 active_mtu_bytes; /* 0: not known */
	__u64 rate_mbps;	/* 0: not known */
	__u32 ifindex;		/* of the netdev, 0: none */
	__u32 carrier;		/* 0 down, 1 up, 2 not known or no netdev */
	__u64 subnet_prefix;
	__u64 port_guid;
	__u8 mac[8];
	char netdev[CW_IFNAME_BYTES];
};

enum cw_gid_type {
	CW_GID_IB = 0,
	CW_GID_ROCE_V1 = 1,
	CW_GID_ROCE_V2 = 2,
	CW_GID_UNKNOWN = 255,
};

struct cw_gid {
	struct cw_header header;
	__u32 dev_index;
	__u32 port;
	__u32 gid_index;
	__u32 type; /* enum cw_gid_type */
	__u8 gid[16];
	char netdev[CW_IFNAME_BYTES];
};

/*
 * The place of a GPU, another accelerator or an RDMA device. The path is that of sysfs from the
 * host bridge on: "pci0000:00/0000:00:01.0/0000:01:00.0".
 */
struct cw_pci_function {
	struct cw_header header;
	__u32 vendor;	  /* PCI's number; 0: not known */
	__u32 class_code; /* 24 bits as PCI has them: 0x030200 is a 3D controller; 0: not known */
	__s32 numa_node;  /* -1: unknown or none */
	__u32 reserved;
	char pci_address[16]; /* "0000:01:00.0" */
	char path[256];	      /* empty: not known, or longer than this */
};

/* REALTIME and BOOTTIME against the MONOTONIC of every other record; at start and once a minute. */
struct cw_clock {
	struct cw_header header;
	__u64 realtime_ns;
	__u64 boottime_ns;
	__u64 uncertainty_ns; /* how long the three reads took */
};

enum cw_process_flags {
	CW_PROCESS_GONE =
		1 << 0, /* exited before it was read: only pid, start time and comm are known */
	CW_PROCESS_PARTIAL = 1 << 1, /* not permitted to read all of it */
	CW_PROCESS_START_ROUNDED =
		1 << 2, /* the start time is /proc's, rounded down to a clock tick (10 ms) */
};

struct cw_process {
	struct cw_header header;
	__u32 pid; /* thread group, in the init pid namespace */
	__u32 parent_pid;
	__u64 start_boottime_ns; /* of the thread group's leader; distinguishes re-used pids */
	__u32 uid;
	__s32 numa_node;     /* of the CPUs it may run on, -1: several or unknown */
	__u32 flags;	     /* enum cw_process_flags */
	__u32 namespace_pid; /* its pid in its own namespace; 0: not known */
	char comm[CW_COMM_BYTES];
	char executable[256];
	char argv0[256];
	char script[256]; /* the script that an interpreter runs, empty if none */
	char slurm_job[24];
	char slurm_step[24];
	char pod_uid[40];
	char container_id[72];
	char cgroup[256];
	char cmdline[1024]; /* arguments joined by a space; only with --full-cmdline */
};

enum cw_probe_kind {
	CW_PROBE_KPROBE = 1,
	CW_PROBE_KRETPROBE = 2,
	CW_PROBE_FENTRY = 3,
	CW_PROBE_FEXIT = 4,
	CW_PROBE_UPROBE = 5,
	CW_PROBE_TRACEPOINT = 6,
	CW_PROBE_URETPROBE = 7,
};

enum cw_probe_flags {
	CW_PROBE_PLACED = 1 << 0,
	CW_PROBE_EMULATED = 1 << 1, /* uprobe: the kernel emulates the instruction under it */
	/* Detached by the record's time, for record --budget: what it counts ends there. */
	CW_PROBE_TAKEN_OFF = 1 << 2,
};

struct cw_probe {
	struct cw_header header;
	__u32 probe_kind; /* enum cw_probe_kind */
	__u32 flags;	  /* enum cw_probe_flags */
	__u64 offset_bytes;
	__u32 expected_cost_ns;
	__u32 reserved;
	char source[32]; /* collwire's source: qp, rxe_wire, posts, ports, mlx5, mappings, nccl, gpu
			  */
	char function[CW_NAME_BYTES];
	char module_or_file[256];
	char instruction[64]; /* uprobe: disassembly of the instruction under it */
};

enum cw_source_state {
	CW_SOURCE_OFF = 0, /* not asked for */
	CW_SOURCE_ON = 1,
	CW_SOURCE_DEGRADED = 2,	   /* works, with something missing: see reason */
	CW_SOURCE_UNAVAILABLE = 3, /* cannot work here: see reason */
	CW_SOURCE_REFUSED = 4,	   /* would be wrong here: see reason */
};

/* The state of a source: distinguishes "not measured" from 0. */
struct cw_source {
	struct cw_header header;
	__u32 state;	 /* enum cw_source_state */
	__u32 dev_index; /* ~0: the whole node */
	char name[32];
	char reason[256];
};

/* The last record of a capture that was completed. */
struct cw_end {
	struct cw_header header;
	__u32 reason; /* 0 duration or command over, 1 signal, 2 rotated; 3 is reserved */
	__u32 exit_status;
};

CW_ASSERT_SIZE(cw_node, 320);
CW_ASSERT_SIZE(cw_device, 216);
CW_ASSERT_SIZE(cw_port, 104);
CW_ASSERT_SIZE(cw_gid, 64);
CW_ASSERT_SIZE(cw_pci_function, 304);
CW_ASSERT_SIZE(cw_clock, 40);
CW_ASSERT_SIZE(cw_process, 2272);
CW_ASSERT_SIZE(cw_probe, 456);
CW_ASSERT_SIZE(cw_source, 312);
CW_ASSERT_SIZE(cw_end, 24);

#endif
