#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of official NCCL on each node, on the test double of CUDA. NCCL_LIBRARY: a libnccl.so.2; DOUBLE: where the double was
built; JOB_PLAN and JOB_OPTIONS: of its job program; NCCL_OVER=socket: without RDMA. NCCL_* besides are NCCL's own."""

import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import ADDRESS, NODE, NODES, OUT

ID_PORT = 20071


def environment(layouts):
    double = os.environ["DOUBLE"]
    result = dict(os.environ)
    result.update({
        "LD_LIBRARY_PATH": f"{double}:{os.path.dirname(os.environ['NCCL_LIBRARY'])}",
        "LD_PRELOAD": f"{double}/libcuda_double.so",
        "COLLWIRE_CUDA_LAYOUTS": layouts,
        "COLLWIRE_CUDA_LOG": f"{OUT}/double.json",
        "COLLWIRE_CUDA_HANG_S": "120",
        "NCCL_HOSTID": f"node{NODE}",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_P2P_DISABLE": "1",
        # 2.28 crashes where no RDMA device is an mlx5: its network that the GPU drives looks for one.
        "NCCL_GIN_ENABLE": "0",
        "NCCL_GIN_TYPE": "2",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_DEBUG_FILE": f"{OUT}/nccl.log",
    })
    if os.environ.get("NCCL_OVER") == "socket":
        result["NCCL_IB_DISABLE"] = "1"
    else:
        result.update({"NCCL_IB_HCA": "rxe0", "NCCL_IB_GID_INDEX": "1"})
    for name in ("NCCL_LIBRARY", "NCCL_OVER"):
        result.pop(name, None)
    return result


def main():
    layouts = f"{OUT}/layouts"
    os.mkdir(layouts)
    double = os.environ["DOUBLE"]
    subprocess.run([f"{double}/nccl_layout", os.environ["NCCL_LIBRARY"], layouts], check=True)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    words = [f"{double}/job", "--rank", str(NODE), "--ranks", str(NODES), "--id", f"tcp:{ADDRESS[0]}:{ID_PORT}", "--log", f"{OUT}/job.json",
             "--plan", os.environ.get("JOB_PLAN", "training"), *os.environ.get("JOB_OPTIONS", "").split()]
    sys.exit(subprocess.run(words, env=environment(layouts), check=False).returncode)


if __name__ == "__main__":
    main()
