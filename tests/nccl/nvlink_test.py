#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Modelled bytes of NCCL's P2P against NVLink counters: official NCCL on the test double of CUDA, all ranks on one node, NVML on its own double. The counters
are what the double of CUDA moved over P2P, so they contain nothing of collwire's. They are also made to count bytes of no operation: these stay unexplained.

nvlink_test.py --collwire FILE --build DIRECTORY --nvml FILE --version VERSION [--keep DIRECTORY]"""

import collections
import json
import os
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import double_job

RANKS = 4
FIRST_BUS = 0x1B
KIB = 1024
MOST_DIFFERENCE = 0.02
# Bytes that another application moves on the GPU of rank 0, in a pause of the job.
FOREIGN_KIB = 50_000
# Windows in pairs: an operation that a busy machine delays for longer than collwire assumes.
MOST_OUTSIDE = 2
# NVLink connects pairs of GPUs. NVML does not know of one pair, and says of the others that they are not connected.
UNKNOWN = {0, 3}
P2P_OK, P2P_NOT_SUPPORTED, P2P_UNKNOWN = 0, 5, 6
# Pauses in which counters are read while nothing moves, and a stretch without a pause.
APART = "world allreduce 768KiB\nworld allgather 128KiB\nworld sendrecv 96KiB\nwait\nsleep 2000ms\n"
CLOSE = "world allreduce 512KiB\nwait\nsleep 100ms\n"
SCRIPT = f"loop\n{APART * 4}{CLOSE * 20}sleep 2500ms\n"


def p2p_status(rank, peer):
    if {rank, peer} == UNKNOWN:
        return P2P_UNKNOWN
    return P2P_OK if rank // 2 == peer // 2 else P2P_NOT_SUPPORTED


class Counters(threading.Thread):
    """Counts what the ranks' kernels moved over P2P, as their log grows, into NVML's double."""

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.directory, self.state = directory, f"{directory}/nvml"
        self.read = [0] * RANKS
        self.moved = {"send": [0] * RANKS, "recv": [0] * RANKS}
        self.by_transport, self.by_pair = collections.Counter(), collections.Counter()
        self.foreign_kib = 0
        self.ended = threading.Event()
        self.write()

    def write(self):
        lines = []
        for rank in range(RANKS):
            foreign = self.foreign_kib if rank == 0 else 0
            lines += [f"gpu 0000:{FIRST_BUS + rank:02x}:00.0 GPU-{rank}", "field 91 0 1 u32",
                      f"field 138 all {self.moved['send'][rank] // KIB + foreign}", f"field 139 all {self.moved['recv'][rank] // KIB}"]
            lines += [f"peer {peer} {p2p_status(rank, peer)}" for peer in range(RANKS) if peer != rank]
        with open(f"{self.state}.next", "w", encoding="utf-8") as state:
            state.write("\n".join(lines) + "\n")
        os.rename(f"{self.state}.next", self.state)

    def count(self):
        for rank in range(RANKS):
            try:
                with open(f"{self.directory}/truth.{rank}", encoding="utf-8") as log:
                    log.seek(self.read[rank])
                    text = log.read()
            except FileNotFoundError:
                continue
            whole = text[: text.rfind("\n") + 1]
            self.read[rank] += len(whole.encode())
            for line in whole.splitlines():
                for connection in json.loads(line)["connections"]:
                    self.by_transport[connection["transport"]] += connection["bytes"]
                    if connection["transport"] != "p2p":
                        continue
                    if connection["direction"] == "send":
                        self.by_pair[rank, connection["peer"]] += connection["bytes"]
                    # A GPU counts NVLink's bytes alone. The model takes what it does not know for NVLink.
                    if p2p_status(rank, connection["peer"]) != P2P_NOT_SUPPORTED:
                        self.moved["send" if connection["direction"] == "send" else "recv"][rank] += connection["bytes"]

    def run(self):
        while not self.ended.wait(0.02):
            self.count()
            self.write()

    def end(self):
        self.ended.set()
        self.join()
        self.count()
        self.write()


def wait_for_reading(collwire, capture):
    """Until the capture has a reading of each GPU from now on: the recorder waits for its last one for half a second only."""
    since_ns, end = time.monotonic_ns(), time.monotonic() + one_machine.PATIENCE_S
    gpus = set()
    while len(gpus) < RANKS:
        assert time.monotonic() < end, f"readings of GPUs {gpus}"
        time.sleep(0.1)
        dumped = subprocess.run([collwire, "dump", "--kind", "nvlink_sample", capture], stdout=subprocess.PIPE, check=False).stdout
        gpus = {sample["gpu"] for sample in map(json.loads, dumped.splitlines()) if sample.get("read_begin_ns", 0) >= since_ns}


def report_of(collwire, capture, path):
    done = subprocess.run([collwire, "report", capture, "--json", path], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode in (0, one_machine.LOST), done.returncode
    with open(path, encoding="utf-8") as file:
        return json.load(file), done.stdout


def check_edges(local, counters):
    """Problems of bytes from GPU to GPU, and of what they went over."""
    problems = []
    wires = {P2P_OK: "nvlink", P2P_NOT_SUPPORTED: "pcie", P2P_UNKNOWN: None}
    found = {(edge["src_rank"], edge["dst_rank"]): edge["payload_bytes"] for edge in local["edges"]}
    if found != dict(counters.by_pair):
        problems.append(f"bytes from GPU to GPU {found}, moved {dict(counters.by_pair)}")
    problems += [f"{edge}, not over {wires[status]}" for edge in local["edges"] for status in [p2p_status(edge["src_rank"], edge["dst_rank"])]
                 if (edge["transport"], edge["wire"]) != ("p2p", wires[status])]
    for status, wire in wires.items():
        moved = sum(n for pair, n in counters.by_pair.items() if p2p_status(*pair) == status)
        of_operations = sum(of["wires"].get(wire, {}).get("payload_bytes", 0) for of in local["operations"])
        print(f"{moved} B over {wire or 'what NVML does not know'}")
        if not moved or (wire and of_operations != moved):
            problems.append(f"{wire}: {of_operations} B of operations, {moved} B moved")
    return problems


def check_gpu(rank, gpu, counters, foreign_bytes):
    """Returns (summary, problems)."""
    problems = []
    sums = {f"{kind}_{way}": sum(window[f"{kind}_{way}_bytes"] for window in gpu["windows"])
            for kind in ("modelled", "measured", "unexplained") for way in ("tx", "rx")}
    for way, direction, foreign in (("tx", "send", foreign_bytes), ("rx", "recv", 0)):
        moved = counters.moved[direction][rank]
        if abs(sums[f"modelled_{way}"] - moved) > moved * MOST_DIFFERENCE:
            problems.append(f"rank {rank} {way}: {sums[f'modelled_{way}']} B modelled, {moved} B moved")
        if abs(sums[f"measured_{way}"] - moved - foreign) > 2 * KIB:
            problems.append(f"rank {rank} {way}: {sums[f'measured_{way}']} B measured, {moved} B moved and {foreign} B of others")
        if abs(sums[f"unexplained_{way}"] - foreign) > moved * MOST_DIFFERENCE:
            problems.append(f"rank {rank} {way}: {sums[f'unexplained_{way}']} B unexplained, {foreign} B were of others")
    idle = [window for window in gpu["windows"] if window["idle_edges"]]
    outside = [window for window in idle if abs(window["unexplained_tx_bytes"]) > window["bound_tx_bytes"]]
    if len(outside) > MOST_OUTSIDE + (1 if foreign_bytes else 0):
        problems.append(f"rank {rank}: windows with idle edges and unexplained bytes: {outside}")
    if len(idle) < 4:
        problems.append(f"rank {rank}: {len(idle)} windows with idle edges of {len(gpu['windows'])}")
    if gpu["includes"] != "payload" or gpu["lower_bound"] or any(window["modelled_is_lower_bound"] for window in gpu["windows"]):
        problems.append(f"rank {rank}: {gpu['includes']}, {gpu['lower_bound']}")
    return f"rank {rank}: {sums}, {len(idle)} of {len(gpu['windows'])} windows with idle edges", problems


def run(arguments, library, directory):
    job = double_job.Job(library, arguments.build, RANKS, ranks_per_node=RANKS,
                         environment={"COLLWIRE_CUDA_P2P": "nvlink", "NCCL_P2P_DISABLE": "0", "COLLWIRE_CUDA_BUSID": f"{FIRST_BUS:x}"})
    plan = f"{directory}/plan"
    with open(plan, "w", encoding="utf-8") as file:
        file.write(SCRIPT)
    counters = Counters(directory)
    os.environ.update({"LD_LIBRARY_PATH": os.path.dirname(arguments.nvml), "COLLWIRE_NVML_DOUBLE": counters.state})
    counters.start()
    with one_machine.Recorder(arguments.collwire, f"{directory}/capture", "--nccl", library, "--local-launches") as recorder:
        double_job.run_job(job, directory, "job", ["--plan", plan])
        counters.end()
        counters.foreign_kib = FOREIGN_KIB
        counters.write()
        wait_for_reading(arguments.collwire, f"{directory}/capture")
    assert recorder.status == 0, recorder.said()
    report, text = report_of(arguments.collwire, f"{directory}/capture", f"{directory}/report.json")
    gpus = report["nvlink"]["gpus"]
    assert counters.by_transport["p2p"] and set(counters.by_transport) == {"p2p"}, counters.by_transport
    problems = check_edges(report["local"], counters)
    assert len(gpus) == RANKS and all(gpu["windows"] for gpu in gpus), gpus
    for rank, gpu in enumerate(gpus):
        summary, found = check_gpu(rank, gpu, counters, FOREIGN_KIB * KIB if rank == 0 else 0)
        print(summary)
        problems += found
    if "NVLink" not in text:
        problems.append("the text report has no NVLink")
    assert not problems, "\n".join(problems)


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--nvml", {"required": True})), run))
