/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of port and device events, and of port counters. */
#ifndef COLLWIRE_PORT_RECORDS_H
#define COLLWIRE_PORT_RECORDS_H

#include "collwire/record.h"

struct cw_async_event {
	struct cw_header header;
	__u32 dev_index;
	__u32 event; /* enum ib_event_type */
	__u32 port;  /* 0: not a port event */
	__u32 qpn;   /* 0: not a QP event */
	char device[CW_NAME_BYTES];
};

struct cw_carrier {
	struct cw_header header;
	__u32 ifindex;
	__u32 up;
	__u64 netns_cookie; /* 0: not known */
	char netdev[CW_IFNAME_BYTES];
};

/* mlx5_core's port module event: cable plugged, unplugged, in error. */
struct cw_module_event {
	struct cw_header header;
	__u32 module;
	__u32 status; /* 1 plugged, 2 unplugged, 3 error, 4 disabled */
	__u32 error_type;
	__u32 reserved;
	char pci_address[CW_NAME_BYTES];
};

struct cw_device_gone {
	struct cw_header header;
	__u32 dev_index;
	__u32 reserved;
	char device[CW_NAME_BYTES];
};

enum cw_counter_unit {
	CW_UNIT_UNKNOWN = 0,
	CW_UNIT_LINK_BYTES = 1, /* Ethernet header to the end of the payload or ICRC, no FCS */
	CW_UNIT_OCTETS_4 = 2,	/* InfiniBand port data: 4 octets a count, LRH to before VCRC */
	CW_UNIT_BYTES = 3,	/* bytes of another or undocumented extent */
	CW_UNIT_PACKETS = 4,
	CW_UNIT_EVENTS = 5,
	CW_UNIT_TICKS = 6,
};

enum cw_counter_source {
	CW_COUNTER_NETDEV = 1, /* /sys/class/net/IF/statistics, carrier_* */
	CW_COUNTER_PORT = 2,   /* .../ports/N/counters */
	CW_COUNTER_HW = 3,     /* .../ports/N/hw_counters */
	CW_COUNTER_ETHTOOL = 4,
};

struct cw_counter_def {
	struct cw_header header;
	__u32 id; /* unique in the capture */
	__u32 dev_index;
	__u32 port;
	__u16 unit;   /* enum cw_counter_unit */
	__u16 source; /* enum cw_counter_source */
	char name[CW_NAME_BYTES];
};

struct cw_counter_sample {
	__u32 id;
	__u32 reserved;
	__u64 value;
};

/* header, then n samples; read between read_begin_ns and header.time_ns. */
struct cw_counter_samples {
	struct cw_header header;
	__u64 read_begin_ns;
	__u32 n;
	__u32 reserved;
#ifndef __cplusplus
	struct cw_counter_sample samples[];
#endif
};

CW_ASSERT_SIZE(cw_async_event, 96);
CW_ASSERT_SIZE(cw_carrier, 48);
CW_ASSERT_SIZE(cw_module_event, 96);
CW_ASSERT_SIZE(cw_device_gone, 88);
CW_ASSERT_SIZE(cw_counter_def, 96);
CW_ASSERT_SIZE(cw_counter_sample, 16);
CW_ASSERT_SIZE(cw_counter_samples, 32);

#endif
