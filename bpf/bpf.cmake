# SPDX-License-Identifier: Apache-2.0
# One object a source: see each .bpf.c for what it attaches to, what it costs and what it misses.
bpf_object(shared bpf/shared.bpf.c)
bpf_object(qp bpf/qp.bpf.c)
bpf_object(rxe_wire bpf/rxe_wire.bpf.c)
bpf_object(ports bpf/ports.bpf.c)
bpf_object(mlx5 bpf/mlx5.bpf.c)
bpf_object(mappings bpf/mappings.bpf.c)
bpf_object(gpu bpf/gpu.bpf.c)
bpf_object(nccl bpf/nccl.bpf.c)
bpf_object(socket_ends bpf/socket_ends.bpf.c)
bpf_object(verbs_post bpf/verbs_post.bpf.c)
bpf_object(verbs_qp bpf/verbs_qp.bpf.c)
