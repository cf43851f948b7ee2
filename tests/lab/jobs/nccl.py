#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on the test double of CUDA, each under a recorder of its own on every node. NCCL_LIBRARY: a libnccl.so.2; DOUBLE:
where the double was built; NCCL_CASES: of tests/nccl/cases.py, with commas. What a case leaves is in $OUT/CASE."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "nccl")]

from cases import CASES
from lab_job import ADDRESS, Barrier, NODE, NODES, OUT, poll_until
from recording import Recorder

# Below the ephemeral ones; another one for each case.
FIRST_PORT = 20071
LIMIT_S = 600
# By all recorders.
ITERATIONS_RECORDED = 4


def write_topology(path, nics):
    """For NCCL_TOPO_FILE: it has no place for several devices without a PCI address, which software devices lack."""
    def pci(bus, kind, within):
        return (f'<pci busid="0000:{bus:02x}:00.0" class="{kind}" vendor="0x10de" device="0x2330" subsystem_vendor="0x10de" '
                f'subsystem_device="0x16c1" link_speed="32.0 GT/s PCIe" link_width="16">{within}</pci>')
    devices = [pci(0x1b, "0x030200", '<gpu dev="0" sm="90" rank="0" gdr="0"/>')]
    devices += [pci(0x2b + nic, "0x020700", f'<nic><net name="rxe{nic}" dev="{nic}"/></nic>') for nic in range(nics)]
    with open(path, "w", encoding="ascii") as file:
        file.write('<system version="1"><cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">'
                   f'{"".join(devices)}</cpu></system>')


def environment(case, directory, rank):
    double, library = os.environ["DOUBLE"], os.environ["NCCL_LIBRARY"]
    result = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    result.update({
        "LD_LIBRARY_PATH": f"{double}:{os.path.dirname(library)}",
        "LD_PRELOAD": f"{double}/libcuda_double.so",
        "COLLWIRE_CUDA_DEVICES": str(case.ranks_per_node),
        "COLLWIRE_CUDA_LAYOUTS": f"{OUT}/layouts",
        "COLLWIRE_CUDA_LOG": f"{directory}/double.{rank}",
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
        "NCCL_DEBUG_FILE": f"{directory}/nccl.{rank}.log",
    })
    if case.over_sockets:
        result["NCCL_IB_DISABLE"] = "1"
    else:
        result.update({"NCCL_IB_HCA": ",".join(f"rxe{nic}" for nic in range(case.nics)), "NCCL_IB_GID_INDEX": "1"})
    if case.nics > 1:
        result["NCCL_TOPO_FILE"] = f"{directory}/topology.xml"
        write_topology(result["NCCL_TOPO_FILE"], case.nics)
    result.update(case.environment)
    return result


class Ranks:
    """The processes of a case on this node."""

    def __init__(self, case, directory, port):
        self._directory, self._processes = directory, []
        self._ranks = [NODE * case.ranks_per_node + local for local in range(case.ranks_per_node)]
        for local, rank in enumerate(self._ranks):
            words = [f"{os.environ['DOUBLE']}/job", "--rank", str(rank), "--ranks", str(NODES * case.ranks_per_node),
                     "--id", f"tcp:{ADDRESS[0]}:{port}", "--device", str(local), "--plan", case.plan_path,
                     "--log", f"{directory}/job.{rank}", *case.job_options]
            with open(f"{directory}/output.{rank}", "w", encoding="utf-8") as output:
                self._processes.append(subprocess.Popen(words, env=environment(case, directory, rank), stdout=output,
                                                        stderr=subprocess.STDOUT))

    def iterations(self):
        """Of the plan, that are over on all ranks of this node."""
        def of_log(path):
            if not os.path.exists(path):
                return 0
            with open(path, encoding="utf-8") as log:
                return log.read().count('"event":"waited"')
        return min(of_log(f"{self._directory}/job.{rank}") for rank in self._ranks)

    def end(self):
        """The job agrees with itself to end."""
        self._processes[0].send_signal(signal.SIGTERM)

    def wait(self):
        """Exit statuses."""
        try:
            return [process.wait(timeout=LIMIT_S) for process in self._processes]
        finally:
            for process in self._processes:
                process.kill()


def run(case, barrier, port):
    directory = os.path.join(OUT, case.name)
    os.mkdir(directory)
    if case.late_s: # ends when it is told to
        ranks = Ranks(case, directory, port)
        poll_until(lambda: ranks.iterations() > 0, f"{case.name}: the job's middle")
        barrier.wait()
        time.sleep(case.late_s * NODE)
        recorder = Recorder(f"{case.name}/capture", *case.record)
        barrier.wait()
        goal = ranks.iterations() + ITERATIONS_RECORDED
        poll_until(lambda: ranks.iterations() >= goal, f"{case.name}: the job goes on")
        barrier.wait()
        if NODE == 0:
            ranks.end()
    else:
        recorder = Recorder(f"{case.name}/capture", "--nccl", os.environ["NCCL_LIBRARY"], *case.record)
        barrier.wait()
        ranks = Ranks(case, directory, port)
    statuses = ranks.wait()
    # Nobody's last packets may be missing.
    barrier.wait()
    status = recorder.stop()
    with open(os.path.join(directory, "result.json"), "w", encoding="utf-8") as file:
        json.dump({"ranks": statuses, "recorder": status, "said": recorder.said(), "ready_ns": recorder.ready_ns}, file, indent=1)
    print(f"{case.name}: ranks {statuses}, recorder {status}", flush=True)
    return status == 0 and not any(statuses)


def main():
    os.mkdir(f"{OUT}/layouts")
    subprocess.run([f"{os.environ['DOUBLE']}/nccl_layout", os.environ["NCCL_LIBRARY"], f"{OUT}/layouts"], check=True)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    barrier = Barrier()
    well = [run(CASES[name], barrier, FIRST_PORT + i) for i, name in enumerate(os.environ["NCCL_CASES"].split(","))]
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    main()
