# SPDX-License-Identifier: Apache-2.0
"""Ranks of one node that talk over P2P: CUDA IPC between processes, NVLink or PCI between devices."""

import os
import subprocess
import tempfile

from double_edges import check_algebra, check_transports, edges_of
from double_job import Job, run_job, run_late_load, version_of
from double_logs import check_logs

FIRST_WITH_ALL_TO_ALL = (2, 28)
# Sizes that ranks, channels and lines of LL divide without a rest; the largest take more than one step.
TRANSFERS = """
world sendrecv 384KiB
world allpairs 8KiB
world forward 96KiB
world backward 3KiB
"""
ALL_TO_ALL = """
world alltoall 48KiB
world gather 48KiB root 1
world scatter 48KiB root 1
"""
RING = """
world allgather 384KiB
world reducescatter 384KiB
world broadcast 768KiB root 1
world reduce 768KiB root 1
"""
ALL_REDUCE = """
world allreduce 3MiB
capture world 2
    world allreduce 3MiB
end
"""


def plan_of(algorithm, version):
    return "loop" + ALL_REDUCE + (RING + TRANSFERS + (ALL_TO_ALL if version >= FIRST_WITH_ALL_TO_ALL else "") if algorithm == "Ring" else "")


def peer_job(library, build, ranks, ranks_per_node, access="nvlink", **environment):
    return Job(library, build, ranks=ranks, ranks_per_node=ranks_per_node, environment={
        "COLLWIRE_CUDA_P2P": access, "NCCL_P2P_DISABLE": "0", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", **environment})


def check_edges(job, algorithm, inside="p2p"):
    with tempfile.TemporaryDirectory() as directory:
        plan = os.path.join(directory, "plan")
        with open(plan, "w", encoding="utf-8") as file:
            file.write(plan_of(algorithm, version_of(job.library)))
        run_job(job, directory, "job", ["--plan", plan])
        check_logs(directory, job.ranks)
        edges, posts = edges_of(directory, job.ranks)
        check_transports(directory, edges, job.ranks, job.ranks_per_node, inside)
        operations = check_algebra(directory, edges, posts, job.ranks)
        return f"{len(edges)} edges of {operations} operations, {inside} within a node, have NCCL's transport and the algebra's bytes"


def shapes_of(quick):
    """(ranks, ranks of a node, algorithm, protocol)"""
    if quick:
        return [(2, 2, "Ring", "LL"), (4, 2, "Ring", "Simple"), (3, 3, "Tree", "LL128")]
    return [(ranks, ranks_per_node, algorithm, protocol) for ranks, ranks_per_node in ((2, 2), (3, 3), (4, 4), (8, 8), (4, 2))
            for algorithm in ("Ring", "Tree") for protocol in ("Simple", "LL", "LL128")]


def check_memory(build):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_memory.py")
    done = subprocess.run(["/usr/bin/python3", script], capture_output=True, text=True, timeout=60, check=False, env={
        **os.environ, "LD_PRELOAD": f"{build}/libcuda_double.so", "COLLWIRE_CUDA_P2P": "nvlink", "COLLWIRE_CUDA_DEVICES": "2"})
    assert done.returncode == 0 and "all memory right" in done.stdout, done


def check_peers(library, build, quick):
    check_memory(build)
    yield "device memory that processes share: right"
    for ranks, ranks_per_node, algorithm, protocol in shapes_of(quick):
        job = peer_job(library, build, ranks, ranks_per_node, NCCL_ALGO=algorithm, NCCL_PROTO=protocol)
        yield f"{ranks} ranks, {ranks_per_node} a node, {algorithm} {protocol}: {check_edges(job, algorithm)}"
    job = peer_job(library, build, 4, 4)
    with tempfile.TemporaryDirectory() as directory:
        run_job(job, directory, "job", ["--plan", "everything"])
        calls = check_logs(directory, job.ranks)
    yield f"4 ranks on a node over P2P, plan everything: {calls} calls right, and in the log"
    if quick:
        return
    if version_of(library) != (2, 24, 3): # see check_plans
        with tempfile.TemporaryDirectory() as directory:
            run_job(peer_job(library, build, 2, 2), directory, "job", ["--plan", "abort"])
        yield "2 ranks on a node over P2P, plan abort: right"
    output = run_late_load(peer_job(library, build, 3, 3))
    assert "via P2P/direct pointer" in output, output
    yield "3 devices in a process over P2P: right"
    for name, job, inside in (
            ("the sender's memory is read", peer_job(library, build, 2, 2, NCCL_P2P_READ_ENABLE="1", NCCL_ALGO="Ring"), "p2p"),
            ("PCI alone", peer_job(library, build, 2, 2, "pci", NCCL_P2P_LEVEL="SYS", NCCL_ALGO="Ring"), "p2p"),
            ("no P2P", peer_job(library, build, 4, 2, "none", NCCL_ALGO="Ring"), "shm")):
        yield f"{name}: {check_edges(job, 'Ring', inside)}"
