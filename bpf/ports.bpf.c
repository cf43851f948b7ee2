/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Events of ports and devices: asynchronous RDMA events, every change of a netdev's carrier, and
 * RDMA devices that disappear. docs/sources/ports.md lists the probes, their cost and what they
 * miss.
 */
#include "shared_maps.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "collwire/port_records.h"

enum {
	LINK_STATE_NOCARRIER = 1 << 2, /* enum netdev_state_t: __LINK_STATE_NOCARRIER */
};

/* The recorder's network namespace, whose netdevs it knows; 0: all namespaces. */
const volatile __u32 recorder_netns = 0;

/* enum ib_event_type: those whose element is a port */
static __always_inline bool is_port_event(__u32 event)
{
	/* PORT_ACTIVE .. SM_CHANGE, CLIENT_REREGISTER, GID_CHANGE, DEVICE_SPEED_CHANGE */
	return (event >= 9 && event <= 13) || event == 17 || event == 18 || event == 20;
}

static __always_inline int on_dispatch(const struct ib_event *event)
{
	struct ib_device *device = BPF_CORE_READ(event, device);
	struct cw_async_event *e =
		RESERVE_RECORD(cw_async_event, CW_KIND_ASYNC_EVENT, CW_LOSS_PORT_EVENT);

	if (!e)
		return 0;
	e->dev_index = BPF_CORE_READ(device, index);
	e->event = BPF_CORE_READ(event, event);
	if (is_port_event(e->event))
		e->port = READ_INTEGER(event, element.port_num);
	BPF_CORE_READ_STR_INTO(&e->device, device, name);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

SEC("fentry/ib_dispatch_event")
int BPF_PROG(dispatch_fentry, const struct ib_event *event)
{
	return on_dispatch(event);
}

SEC("kprobe/ib_dispatch_event")
int BPF_KPROBE(dispatch_kprobe, const struct ib_event *event)
{
	return on_dispatch(event);
}

/* Drivers also call these functions without a change of state: those calls are skipped. */
static __always_inline int on_carrier(struct net_device *dev, bool up)
{
	bool was_up = !(BPF_CORE_READ(dev, state) & LINK_STATE_NOCARRIER);
	struct cw_carrier *e;
	struct net *net = BPF_CORE_READ(dev, nd_net.net);

	/* Before its registration a device has no index, and its carrier is not visible. */
	if (was_up == up || !BPF_CORE_READ(dev, ifindex))
		return 0;
	/* A container's eth0 is not the machine's, but may have the same index. */
	if (recorder_netns && bpf_core_field_exists(net->ns.inum) &&
	    BPF_CORE_READ(net, ns.inum) != recorder_netns)
		return 0;
	e = RESERVE_RECORD(cw_carrier, CW_KIND_CARRIER, CW_LOSS_PORT_EVENT);
	if (!e)
		return 0;
	e->ifindex = BPF_CORE_READ(dev, ifindex);
	e->up = up;
	if (bpf_core_field_exists(net->net_cookie))
		e->netns_cookie = BPF_CORE_READ(net, net_cookie);
	BPF_CORE_READ_STR_INTO(&e->netdev, dev, name);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

SEC("fentry/netif_carrier_on")
int BPF_PROG(carrier_on_fentry, struct net_device *dev)
{
	return on_carrier(dev, true);
}

SEC("kprobe/netif_carrier_on")
int BPF_KPROBE(carrier_on_kprobe, struct net_device *dev)
{
	return on_carrier(dev, true);
}

SEC("fentry/netif_carrier_off")
int BPF_PROG(carrier_off_fentry, struct net_device *dev)
{
	return on_carrier(dev, false);
}

SEC("kprobe/netif_carrier_off")
int BPF_KPROBE(carrier_off_kprobe, struct net_device *dev)
{
	return on_carrier(dev, false);
}

static __always_inline int on_unregister(struct ib_device *device)
{
	struct cw_device_gone *e;

	/* Already unregistered by another caller: the kernel returns at once as well. */
	if (!BPF_CORE_READ(device, refcount.refs.counter))
		return 0;
	e = RESERVE_RECORD(cw_device_gone, CW_KIND_DEVICE_GONE, CW_LOSS_PORT_EVENT);
	if (!e)
		return 0;
	e->dev_index = BPF_CORE_READ(device, index);
	BPF_CORE_READ_STR_INTO(&e->device, device, name);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

SEC("fentry/__ib_unregister_device")
int BPF_PROG(unregister_fentry, struct ib_device *device)
{
	return on_unregister(device);
}

SEC("kprobe/__ib_unregister_device")
int BPF_KPROBE(unregister_kprobe, struct ib_device *device)
{
	return on_unregister(device);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
