#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on the test double of CUDA, one after the other, each under one or more recorders on every node.

NCCL_LIBRARY: a libnccl.so.2. DOUBLE: where the double was built. NCCL_CASES: "CASE,CASE+CASE,..." of tests/nccl/cases.py (jobs_of). $OUT/CASE has the
capture of a case, and that of a job's first case the job's logs.
For a stripped library: COLLWIRE_CUDA_SYMBOLS and LAYOUTS, where the double finds symbols and layouts; C_LIBRARY, the directory of a newer C library, if
NCCL needs one; RECORD_OPTIONS, more options of the recorders, separated by spaces; RECORDER, a copy of collwire with other layout files beside it."""

import contextlib
import glob
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "nccl")]

from cases import jobs_of
from lab_job import ADDRESS, Alarm, Barrier, NODE, NODES, OUT, poll_until, read_growing
from recording import Recorder
from trap_watch import TrapWatch

# Below the ephemeral ports; a port of its own for each try of a job.
FIRST_PORT = 20071
LIMIT_S = 600
LOADER = "ld-linux-x86-64.so.2"
# rdma_rxe copies a peer's write into memory that NCCL polls. Linux since 6.4, on a CPU without FSRM, may copy from the end to the start: if that is
# interrupted, NCCL reads the number of a clear-to-send entry without the entry. A device writes the entry at once.
TORN_SAYS = re.compile(r"posted incorrect receive info: size \d+ addr 0 ")
TRIES = 3
# The recorder's exit status if its capture lacks something.
LOST = 5
# With all recorders attached.
ITERATIONS_RECORDED = 4
NICENESS = 10
# For several recorders, which end at once.
STOP_S = 180
# Until one sees an operation in flight.
INSPECTIONS = 20


def layouts():
    return os.environ.get("LAYOUTS", f"{OUT}/layouts")


def write_layout():
    if "LAYOUTS" not in os.environ:
        os.mkdir(layouts())
        subprocess.run([f"{os.environ['DOUBLE']}/nccl_layout", os.environ["NCCL_LIBRARY"], layouts()], check=True)


def write_topology(path, nics):
    """For NCCL_TOPO_FILE: NCCL cannot place several devices without a PCI address, and software devices have none."""
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
        "LD_LIBRARY_PATH": ":".join(filter(None, (double, os.path.dirname(library), os.environ.get("C_LIBRARY")))),
        "LD_PRELOAD": f"{double}/libcuda_double.so:{double}/libsend_counter.so",
        "SEND_COUNTER": f"{directory}/sent.{rank}",
        "COLLWIRE_CUDA_DEVICES": str(case.ranks_per_node),
        "COLLWIRE_CUDA_LAYOUTS": layouts(),
        "COLLWIRE_CUDA_LOG": f"{directory}/double.{rank}",
        "COLLWIRE_CUDA_HANG_S": "120",
        "NCCL_HOSTID": f"node{NODE}",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_P2P_DISABLE": "1",
        # 2.28's GPU-driven network searches for an mlx5 device and crashes if there is none.
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
    if case.plugin:
        result.update({"NCCL_NET_PLUGIN": "collwire-double", "NCCL_NET": "collwire-double",
                       "COLLWIRE_NETWORK_DOUBLE_LOG": f"{directory}/network.{rank}"})
    if case.nics > 1:
        result["NCCL_TOPO_FILE"] = f"{directory}/topology.xml"
        write_topology(result["NCCL_TOPO_FILE"], case.nics)
    if case.gpu:
        build = os.path.dirname(os.path.dirname(double))
        result.update({
            "LD_LIBRARY_PATH": f"{build}/tests/cupti_double/cuda13:{result['LD_LIBRARY_PATH']}",
            "CUDA_INJECTION64_PATH": f"{build}/libcollwire_cupti.so",
            "COLLWIRE_CUPTI_LOG": f"{directory}/cupti.{rank}",
            "COLLWIRE_CUPTI_OTHER_KERNELS": "1",
        })
    result.update(case.environment)
    return result


class Ranks:
    """The job's processes on this node."""

    def __init__(self, case, directory, port):
        self._name, self._directory, self.processes = f"{case.name}:{port}", directory, []
        self._ranks = [NODE * case.ranks_per_node + local for local in range(case.ranks_per_node)]
        for local, rank in enumerate(self._ranks):
            words = [f"{os.environ['C_LIBRARY']}/{LOADER}"] if "C_LIBRARY" in os.environ else []
            words += [f"{os.environ['DOUBLE']}/job", "--rank", str(rank), "--ranks", str(NODES * case.ranks_per_node),
                     "--id", f"tcp:{ADDRESS[0]}:{port}", "--device", str(local), "--plan", case.plan_path,
                     "--log", f"{directory}/job.{rank}", *case.job_options]
            with open(f"{directory}/output.{rank}", "w", encoding="utf-8") as output:
                self.processes.append(subprocess.Popen(words, env=environment(case, directory, rank), stdout=output,
                                                        stderr=subprocess.STDOUT))

    def iterations(self):
        """Iterations that all ranks of this node completed."""
        def of_log(path):
            if not os.path.exists(path):
                return 0
            return read_growing(path).count('"event":"waited"')
        return min(of_log(f"{self._directory}/job.{rank}") for rank in self._ranks)

    @contextlib.contextmanager
    def giving_way(self):
        """Lowers the priority of all threads in the block. They poll on the node's only CPU, and a recorder that attaches needs it."""
        def set_niceness(niceness):
            for process in self.processes:
                for thread in os.listdir(f"/proc/{process.pid}/task"):
                    with contextlib.suppress(ProcessLookupError): # the thread exited
                        os.setpriority(os.PRIO_PROCESS, int(thread), niceness)
        set_niceness(NICENESS)
        try:
            yield
        finally:
            set_niceness(0)

    def inspect(self):
        """Writes inspect.json: `collwire inspect` of the ranks, if possible with an operation in flight."""
        words = ["collwire", "inspect", "--json", *(str(process.pid) for process in self.processes)]
        for _ in range(INSPECTIONS):
            said = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
            if any(proxy["operations"] for process in json.loads(said)["processes"] for proxy in process["proxies"]):
                break
        with open(f"{self._directory}/inspect.json", "wb") as file:
            file.write(said)

    def end(self):
        """Asks the job to stop, on which its ranks agree."""
        self.processes[0].send_signal(signal.SIGTERM)

    def wait(self, alarm):
        """Returns the exit statuses. Kills the ranks if one of any node failed."""
        end_s = time.monotonic() + LIMIT_S
        while any(process.poll() is None for process in self.processes):
            if any(process.poll() for process in self.processes):
                alarm.tell(self._name)
            if alarm.heard(self._name) or time.monotonic() > end_s:
                for process in self.processes:
                    process.kill()
            time.sleep(0.1)
        statuses = [process.wait() for process in self.processes]
        if any(statuses):
            alarm.tell(self._name)
        return statuses

    def is_torn(self):
        def says(path):
            with open(path, encoding="utf-8", errors="replace") as log:
                return bool(TORN_SAYS.search(log.read()))
        return any(says(path) for path in glob.glob(f"{self._directory}/nccl.*.log"))


def run(cases, barrier, alarm, first_port):
    """Runs one job for all these cases. Repeats it after a torn entry of rdma_rxe, and keeps the failed try in $OUT/CASE.torn.N."""
    for attempt in range(TRIES):
        well, is_torn = run_once(cases, barrier, alarm, first_port + attempt)
        if not is_torn:
            break
        for case in cases:
            os.rename(os.path.join(OUT, case.name), os.path.join(OUT, f"{case.name}.torn.{attempt}"))
        print(f"{cases[0].name}: run again: NCCL read a clear-to-send entry that rdma_rxe had copied in part", flush=True)
    return well


def start_recorder(case, *options):
    return Recorder(f"{case.name}/capture", *options, *os.environ.get("RECORD_OPTIONS", "").split(), *case.record,
                    *(("--gpu",) if case.gpu else ()))


def attach_late(late, ranks, barrier):
    """Starts the recorders of these cases in the running job, on each node at another time. Returns them after ITERATIONS_RECORDED iterations."""
    case = late[0]
    poll_until(lambda: ranks.iterations() > 0, f"{case.name}: the job's first iteration")
    barrier.wait()
    time.sleep(case.late_s * NODE)
    with ranks.giving_way():
        recorders = [(case, start_recorder(case)) for case in late]
    barrier.wait()
    goal = ranks.iterations() + ITERATIONS_RECORDED
    poll_until(lambda: ranks.iterations() >= goal, f"{case.name}: {ITERATIONS_RECORDED} recorded iterations")
    if case.plugin:
        ranks.inspect()
    barrier.wait()
    return recorders


def run_once(cases, barrier, alarm, port):
    """Returns (whether all is well, whether rdma_rxe tore an entry on any node). Cases without `late_s` are recorded from the start."""
    job, directory = cases[0], os.path.join(OUT, cases[0].name)
    times_s = [time.monotonic()]
    for case in cases:
        os.mkdir(os.path.join(OUT, case.name))
    recorders = [(case, start_recorder(case, "--nccl", os.environ["NCCL_LIBRARY"])) for case in cases if not case.late_s]
    barrier.wait()
    times_s.append(time.monotonic())
    ranks = Ranks(job, directory, port)
    watch = TrapWatch([process.pid for process in ranks.processes], f"{directory}/traps") if job.is_sliced else None
    if late := [case for case in cases if case.late_s]:
        recorders += attach_late(late, ranks, barrier)
        if NODE == 0: # such a job runs until it is stopped
            ranks.end()
    statuses = ranks.wait(alarm)
    times_s.append(time.monotonic())
    if watch:
        watch.stop()
    # A recorder stops after the last packet of every node.
    is_torn = barrier.any(any(statuses) and ranks.is_torn())
    may_miss = os.environ.get("RECORDED_MAY_MISS_CALLS") == "1" # the report has the losses, and the test judges them
    is_well = not any(statuses)
    for _, recorder in recorders:
        recorder.process.send_signal(signal.SIGINT)
    for case, recorder in recorders:
        status = recorder.process.wait(timeout=STOP_S)
        with open(os.path.join(OUT, case.name, "result.json"), "w", encoding="utf-8") as file:
            json.dump({"ranks": statuses, "recorder": status, "said": recorder.said(), "ready_ns": recorder.ready_ns}, file, indent=1)
        print(f"{case.name}: ranks {statuses}, recorder {status}, ready after {recorder.started_s:.1f} s", flush=True)
        if status != 0:
            print(recorder.said(), flush=True)
        is_well = is_well and status in ((0, LOST) if may_miss else (0,))
    times_s.append(time.monotonic())
    print(f"{job.name}: recorders, job, end: {', '.join(f'{end - begin:.1f}' for begin, end in zip(times_s, times_s[1:]))} s", flush=True)
    return is_well, is_torn


def prepare():
    """Prepares this node for ranks. Returns the barrier of all nodes."""
    write_layout()
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return Barrier()


def run_each(names, first_port, run_one):
    """Calls run_one(name, barrier, port) for each of `names`, which are separated by commas."""
    barrier = prepare()
    for i, name in enumerate(names.split(",")):
        run_one(name, barrier, first_port + i)


def main():
    barrier = prepare()
    alarm = Alarm()
    well = [run(cases, barrier, alarm, FIRST_PORT + TRIES * i) for i, cases in enumerate(jobs_of(os.environ["NCCL_CASES"]))]
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    main()
