/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What only mlx5's own drivers know: queue pairs made through DEVX, which ib_core does not see, and
 * events of the cable or optical module. docs/sources/mlx5.md lists the probes, their cost and what
 * they miss. Loaded and verified against the kernel's mlx5 modules; never run on the hardware.
 */
#include "shared_maps.h"
#include "calls.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/qp_records.h"
#include "collwire/mlx5_prm.h"
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct uverbs_attr_bundle {
	struct ib_ucontext *context;
};

struct kobject {
	const char *name;
};

struct device {
	struct kobject kobj;
};

/* These three are in the BTF of mlx5_core only. */
struct mlx5_core_dev {
	struct device *device;
};

struct mlx5_events {
	struct mlx5_core_dev *dev;
};

struct mlx5_event_nb {
	void *ctx;
};

#pragma clang attribute pop

/* A thread inside the DEVX call that makes objects. */
struct devx_call {
	__u32 dev_index;
	__u32 reserved;
	char device[CW_NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64); /* pid_tgid */
	__type(value, struct devx_call);
} devx_calls SEC(".maps");

struct devx_key {
	__u64 mlx5_device;
	__u32 qpn;
	__u32 reserved;
};

struct devx_qp {
	struct cw_live_qp live;
	char device[CW_NAME_BYTES];
	char comm[CW_COMM_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct devx_key);
	__type(value, struct devx_qp);
} devx_qps SEC(".maps");

/*
 * A command in flight. mlx5_cmd_exec calls mlx5_cmd_do on some kernels: then the outer one counts.
 */
struct command_call {
	__u64 mlx5_device;
	const void *in;
	const void *out;
	__u32 opcode;
	__u32 in_bytes;
	__u32 depth;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64); /* pid_tgid: commands wait for their answer */
	__type(value, struct command_call);
} command_calls SEC(".maps");

struct scratch {
	__u8 command[CW_MLX5_COMMAND_BYTES];
	struct devx_qp qp;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* DEVX */

static __always_inline int devx_enter(struct uverbs_attr_bundle *attrs)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct devx_call call = {.dev_index = ~0u};
	struct ib_ucontext *context;
	struct ib_device *device;

	if (bpf_core_field_exists(attrs->context)) {
		context = BPF_CORE_READ(attrs, context);
		device = BPF_CORE_READ(context, device);
		if (device) {
			call.dev_index = BPF_CORE_READ(device, index);
			BPF_CORE_READ_STR_INTO(&call.device, device, name);
		}
	}
	if (bpf_map_update_elem(&devx_calls, &thread, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

static __always_inline int devx_exit(void)
{
	__u64 thread = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&devx_calls, &thread);
	return 0;
}

SEC("fentry/mlx5_ib_handler_MLX5_IB_METHOD_DEVX_OBJ_CREATE")
int BPF_PROG(devx_fentry, struct uverbs_attr_bundle *attrs)
{
	return devx_enter(attrs);
}

SEC("fexit/mlx5_ib_handler_MLX5_IB_METHOD_DEVX_OBJ_CREATE")
int BPF_PROG(devx_fexit)
{
	return devx_exit();
}

SEC("kprobe/mlx5_ib_handler_MLX5_IB_METHOD_DEVX_OBJ_CREATE")
int BPF_KPROBE(devx_kprobe, struct uverbs_attr_bundle *attrs)
{
	return devx_enter(attrs);
}

SEC("kretprobe/mlx5_ib_handler_MLX5_IB_METHOD_DEVX_OBJ_CREATE")
int BPF_KRETPROBE(devx_kretprobe)
{
	return devx_exit();
}

/* commands */

static __always_inline int command_enter(const void *dev, const void *in, __u32 in_bytes,
					 const void *out)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct command_call call = {
		.mlx5_device = (__u64)dev, .in = in, .out = out, .in_bytes = in_bytes};
	struct command_call *outer;
	__u8 head[2];

	if (bpf_probe_read_kernel(head, sizeof(head), in))
		return 0;
	call.opcode = cw_be16(head);
	if (!cw_mlx5_is_qp_command(call.opcode))
		return 0;
	outer = bpf_map_lookup_elem(&command_calls, &thread);
	if (outer && outer->in == in) {
		outer->depth++;
		return 0;
	}
	if (bpf_map_update_elem(&command_calls, &thread, &call, BPF_ANY))
		count_loss(CW_LOSS_CALL_TABLE);
	return 0;
}

static __always_inline struct cw_qp_event *devx_event(enum cw_kind kind, const struct devx_qp *qp)
{
	struct cw_qp_event *e = RESERVE_RECORD(cw_qp_event, CW_KIND_QP_STATE, CW_LOSS_QP_EVENT);

	if (!e)
		return NULL;
	e->header.kind = kind;
	e->key = qp->live.key;
	e->tgid = qp->live.tgid;
	e->tid = (__u32)bpf_get_current_pid_tgid();
	e->start_boottime_ns = qp->live.start_boottime_ns;
	e->flags = CW_QP_DEVX;
	e->qp_type = qp->live.type;
	e->old_state = qp->live.state;
	e->new_state = qp->live.state;
	e->gid_type = CW_GID_UNKNOWN;
	__builtin_memcpy(e->device, qp->device, sizeof(e->device));
	__builtin_memcpy(e->comm, qp->comm, sizeof(e->comm));
	return e;
}

static __always_inline void created(struct scratch *s, struct devx_key *key)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct devx_call *devx = bpf_map_lookup_elem(&devx_calls, &thread);
	struct task_struct *task = (void *)bpf_get_current_task();
	struct devx_qp *qp = &s->qp;
	struct cw_qp_event *e;

	/* Every other queue pair goes through ib_core: bpf/qp.bpf.c records it there. */
	if (!devx)
		return;
	__builtin_memset(qp, 0, sizeof(*qp));
	qp->live.tgid = thread >> 32;
	if (!tgid_wanted(qp->live.tgid))
		return;
	qp->live.key.dev_index = devx->dev_index;
	qp->live.key.qpn = key->qpn;
	qp->live.key.generation_ns = bpf_ktime_get_ns();
	qp->live.start_boottime_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	qp->live.type = cw_mlx5_qp_type(s->command + CW_MLX5_QPC_AT);
	__builtin_memcpy(qp->device, devx->device, sizeof(qp->device));
	BPF_CORE_READ_STR_INTO(&qp->comm, task, group_leader, comm);
	if (bpf_map_update_elem(&devx_qps, key, qp, BPF_ANY))
		count_loss(CW_LOSS_QP_TABLE);
	e = devx_event(CW_KIND_QP_CREATE, qp);
	if (!e)
		return;
	e->old_state = 0xff;
	bpf_ringbuf_submit(e, 0);
}

static __always_inline void changed(struct scratch *s, struct devx_key *key, __u32 opcode,
				    int result)
{
	struct devx_qp *qp = bpf_map_lookup_elem(&devx_qps, key);
	struct cw_qp_event *e;

	if (!qp)
		return;
	e = devx_event(CW_KIND_QP_STATE, qp);
	if (e) {
		e->result = result;
		e->new_state = cw_mlx5_state_after(opcode);
		cw_mlx5_fill_event(e, opcode, s->command);
		bpf_ringbuf_submit(e, 0);
	}
	if (!result)
		qp->live.state = cw_mlx5_state_after(opcode);
}

static __always_inline void destroyed(struct devx_key *key)
{
	struct devx_qp *qp = bpf_map_lookup_elem(&devx_qps, key);
	struct cw_qp_event *e;

	if (!qp)
		return;
	e = devx_event(CW_KIND_QP_DESTROY, qp);
	if (e) {
		e->new_state = 0xff;
		bpf_ringbuf_submit(e, 0);
	}
	bpf_map_delete_elem(&devx_qps, key);
}

static __always_inline int command_exit(int result)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct command_call *call = bpf_map_lookup_elem(&command_calls, &thread);
	struct devx_key key = {};
	__u8 out[CW_MLX5_OUT_BYTES];
	struct scratch *s;
	__u32 zero = 0;
	__u32 opcode;

	if (!call)
		return 0;
	if (call->depth) {
		call->depth--;
		return 0;
	}
	s = bpf_map_lookup_elem(&scratch, &zero);
	if (!s)
		goto done;
	opcode = call->opcode;
	__builtin_memset(s->command, 0, sizeof(s->command));
	if (call->in_bytes >= CW_MLX5_COMMAND_BYTES)
		bpf_probe_read_kernel(s->command, CW_MLX5_COMMAND_BYTES, call->in);
	else
		bpf_probe_read_kernel(s->command, 16, call->in);
	if (bpf_probe_read_kernel(out, sizeof(out), call->out))
		goto done;
	/* mlx5_cmd_do reports a refusal of the firmware in the status, not always in its result. */
	if (!result && out[0])
		result = -5; /* EIO */
	key.mlx5_device = call->mlx5_device;
	key.qpn = opcode == CW_MLX5_CREATE_QP ? cw_be24(out + 9) : cw_be24(s->command + 9);
	if (opcode == CW_MLX5_CREATE_QP) {
		if (!result)
			created(s, &key);
	} else if (opcode == CW_MLX5_DESTROY_QP) {
		if (!result)
			destroyed(&key);
	} else {
		changed(s, &key, opcode, result);
	}
done:
	bpf_map_delete_elem(&command_calls, &thread);
	return 0;
}

SEC("fentry/mlx5_cmd_do")
int BPF_PROG(do_fentry, void *dev, void *in, int in_size, void *out)
{
	return command_enter(dev, in, in_size, out);
}

SEC("fexit/mlx5_cmd_do")
int BPF_PROG(do_fexit, void *dev, void *in, int in_size, void *out, int out_size, int result)
{
	return command_exit(result);
}

SEC("kprobe/mlx5_cmd_do")
int BPF_KPROBE(do_kprobe, void *dev, void *in, int in_size, void *out)
{
	return command_enter(dev, in, in_size, out);
}

SEC("kretprobe/mlx5_cmd_do")
int BPF_KRETPROBE(do_kretprobe, int result)
{
	return command_exit(result);
}

SEC("fentry/mlx5_cmd_exec")
int BPF_PROG(exec_fentry, void *dev, void *in, int in_size, void *out)
{
	return command_enter(dev, in, in_size, out);
}

SEC("fexit/mlx5_cmd_exec")
int BPF_PROG(exec_fexit, void *dev, void *in, int in_size, void *out, int out_size, int result)
{
	return command_exit(result);
}

SEC("kprobe/mlx5_cmd_exec")
int BPF_KPROBE(exec_kprobe, void *dev, void *in, int in_size, void *out)
{
	return command_enter(dev, in, in_size, out);
}

SEC("kretprobe/mlx5_cmd_exec")
int BPF_KRETPROBE(exec_kretprobe, int result)
{
	return command_exit(result);
}

/* cable and module */

/* nb lies in struct mlx5_event_nb at its start; data is an event queue entry, its event data at
 * byte 32. */
static __always_inline int on_port_module(struct mlx5_event_nb *nb, const void *entry)
{
	struct cw_module_event *e =
		RESERVE_RECORD(cw_module_event, CW_KIND_MODULE_EVENT, CW_LOSS_PORT_EVENT);
	__u8 data[8] = {};

	if (!e)
		return 0;
	bpf_probe_read_kernel(data, sizeof(data), entry + 32);
	e->module = data[1];
	e->status = data[3] & 0xf;
	e->error_type = data[6] & 0xf;
	if (bpf_core_type_exists(struct mlx5_event_nb) &&
	    bpf_core_type_exists(struct mlx5_events) &&
	    bpf_core_type_exists(struct mlx5_core_dev)) {
		struct mlx5_events *events = BPF_CORE_READ(nb, ctx);
		const char *name = BPF_CORE_READ(events, dev, device, kobj.name);

		bpf_probe_read_kernel_str(e->pci_address, sizeof(e->pci_address), name);
	}
	bpf_ringbuf_submit(e, 0);
	return 0;
}

SEC("fentry/port_module")
int BPF_PROG(module_fentry, void *nb, unsigned long type, void *entry)
{
	return on_port_module(nb, entry);
}

SEC("kprobe/port_module")
int BPF_KPROBE(module_kprobe, void *nb, unsigned long type, void *entry)
{
	return on_port_module(nb, entry);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
