#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL with NVLink SHARP under the test double of CUDA: NVLS_TREE between nodes, NVLS on one. Every element is checked; the double's log equals the
definition of the algorithm, for each channel and head; the messages that NCCL gave to send() are those of the log.

nvls_test.py --build DIRECTORY [--nccl libnccl.so.2 ...] [--version VERSION ...] [--quick] [--only PART] [--only-full]

A NIC makes a head. The NICs are addresses of lo with names of their own, in a network namespace of the test."""

import argparse
import collections
import dataclasses
import os
import subprocess
import sys
import tempfile
import time

from double_job import Job, fetched, lines_of, output_of, run_job, version_of
from nvls_algebra import expected_of, shape_of

SKIPPED = 77
INSIDE = "COLLWIRE_NVLS_TEST_INSIDE"
MOST_NICS = 4
TYPE_BYTES = {"int32": 4, "uint64": 8, "float16": 2, "float32": 4, "bfloat16": 2}
# The hardware reduces these; of float32 it knows the sum alone.
REDUCTIONS = [("float32", "sum"), ("int32", "max"), ("bfloat16", "sum"), ("uint64", "min"), ("float16", "max")]
FIRST_WITH_ALL_GATHER = (2, 24)
MIB = 1 << 20
BESIDE_BYTES = 40000 # of a channel: NCCL does not cut all channels alike


@dataclasses.dataclass
class Case:
    nodes: int
    ranks_per_node: int
    nics: int
    channels: int
    has_cu_mem: bool = False # NCCL's own buffers, too, are cuMem's

    @property
    def algorithm(self):
        return "NVLS" if self.nodes == 1 else "NVLS_TREE"

    @property
    def ranks(self):
        return self.nodes * self.ranks_per_node

    def __str__(self):
        memory = " with cuMem" if self.has_cu_mem else ""
        return f"{self.nodes} x {self.ranks_per_node} ranks, {self.nics} NICs, {self.channels} channels, {self.algorithm}{memory}"


def sizes_of(case):
    """Bytes. Around a chunk and around a whole loop of all heads and channels, where the last loop is short for some heads, and where NCCL takes a larger
    chunk."""
    heads = case.ranks_per_node if case.nodes == 1 else min(case.nics, case.ranks_per_node)
    chunk = 16384 if case.nodes == 1 else 32768
    loop = heads * chunk * case.channels
    larger = [case.channels * heads * of_channel for of_channel in ((2 * 32768, 8 * 65536) if case.nodes == 1 else (65536, 4 * 131072))]
    around = [size + step for size in larger for step in (-BESIDE_BYTES * case.channels, BESIDE_BYTES * case.channels)]
    return [0, 4, 8, 1004, chunk - 4, chunk + 4, loop - 4, loop + 4, loop + chunk + 20, 999996, 4 * MIB, *around]


def script_of(case, version):
    text = ""
    for i, size in enumerate(sizes_of(case)):
        kind, reduction = REDUCTIONS[i % len(REDUCTIONS)]
        size -= size % TYPE_BYTES[kind]
        text += f"world allreduce {size}B {kind} {reduction}\n"
        if case.nodes > 1:
            continue
        if version >= FIRST_WITH_ALL_GATHER:
            text += f"world allgather {size}B {kind}\n"
        text += f"world reducescatter {size}B {kind} {reduction}\n"
    return text


def job_of(library, build, case):
    names = ",".join(["lo"] + [f"lo{i}" for i in range(1, case.nics)])
    return Job(library, build, ranks=case.ranks, ranks_per_node=case.ranks_per_node, limit_s=300, environment={
        "COLLWIRE_CUDA_P2P": "nvlink", "COLLWIRE_CUDA_NVLS": "1", "NCCL_P2P_DISABLE": "0", "NCCL_GRAPH_REGISTER": "0",
        "NCCL_CUMEM_ENABLE": str(int(case.has_cu_mem)),
        "NCCL_ALGO": case.algorithm.replace("NVLS_TREE", "NVLSTree"), "NCCL_NVLS_NCHANNELS": str(case.channels),
        "NCCL_SOCKET_IFNAME": f"={names}", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH"})


def works_of(directory, rank):
    """[(call, kernel)]: no other work runs between them."""
    calls = [line for line in lines_of(f"{directory}/job.{rank}") if line["event"] == "call" and line["bytes"] > 0]
    kernels = lines_of(f"{directory}/truth.{rank}")
    assert len(calls) == len(kernels), f"rank {rank}: {len(calls)} calls, {len(kernels)} kernels"
    return list(zip(calls, kernels))


def parts_of(function, kernel):
    """channel -> its bytes: those of all heads, of AllGather and ReduceScatter those of one."""
    part = "gather" if function[0] == "AllGather" else "scatter"
    parts = collections.Counter()
    for moved in kernel["nvls"]:
        if moved["part"] == part and (function[0] == "AllReduce" or moved["head"] == 0):
            parts[moved["channel"]] += moved["bytes"]
    return parts


class Checker:
    def __init__(self, case, shape):
        self._case, self._shape = case, shape
        self.works = self.bytes = self.messages = 0
        self._steps = collections.Counter() # so far, of each connection
        self._most_channels = 0

    def check_work(self, rank, call, kernel):
        operation, *rest, protocol = kernel["works"][0]["function"].split("_")
        function = (operation, "_".join(rest))
        what = f"{self._case}, rank {rank}, {call['op']} of {call['count']} {call['datatype']}"
        assert len(kernel["works"]) == 1 and (function, protocol) == ((call["op"], self._case.algorithm), "SIMPLE"), f"{what}: {kernel['works']}"
        parts = parts_of(function, kernel)
        assert sum(parts.values()) == call["bytes"] == kernel["works"][0]["bytes"], f"{what}: {dict(parts)} of {call['bytes']}"
        expected = expected_of(self._shape, rank, function, parts, call["bytes"], call["bytes"] // call["count"])
        got = {(moved["channel"], moved["head"], moved["part"]): (moved["steps"], moved["bytes"]) for moved in kernel["nvls"]}
        assert got == expected.moved, f"{what}: {got}, not {expected.moved}"
        got = {crossed["channel"]: (crossed["to_bytes"], crossed["from_bytes"]) for crossed in kernel["switch"]}
        assert got == expected.switched, f"{what}: {got}, not {expected.switched}"
        self._check_connections(what, rank, kernel, expected)
        for moved in kernel["nvls"]:
            place = (rank, moved["channel"], moved["head"], moved["part"])
            assert moved["first_step"] == self._steps[place], f"{what}: {moved} begins after {self._steps[place]} steps"
            self._steps[place] += moved["steps"]
        self.works += 1
        self.bytes += call["bytes"]
        self._most_channels = max(self._most_channels, len(parts))
        return parts

    def _check_connections(self, what, rank, kernel, expected):
        got = {}
        for connection in kernel["connections"]:
            assert (connection["transport"], connection["protocol"], connection["connection"]) == ("net", "SIMPLE", 0), f"{what}: {connection}"
            got[connection["channel"], connection["peer"], connection["direction"]] = tuple(connection[name] for name in ("steps", "posts", "bytes"))
            place = (rank, connection["channel"], connection["peer"], connection["direction"])
            assert connection["first_step"] == self._steps[place], f"{what}: {connection} begins after {self._steps[place]} steps"
            self._steps[place] += connection["steps"]
        assert got == expected.connections, f"{what}: {got}, not {expected.connections}"

    def check_sent(self, rank, works, directory):
        """Messages and their bytes, as NCCL gave them to send()."""
        sends = [connection for _, kernel in works for connection in kernel["connections"] if connection["direction"] == "send"]
        in_log = (sum(send["posts"] for send in sends), sum(send["bytes"] for send in sends), 0)
        with open(f"{directory}/sent.{rank}", encoding="utf-8") as file:
            sent = next(tuple(int(word) for word in line.split()[1:]) for line in file if line.startswith("messages "))
        assert sent == in_log, f"{self._case}, rank {rank}: log {in_log}, send() {sent}"
        self.messages += in_log[0]

    def check_whole(self):
        assert self._most_channels == self._case.channels, f"{self._case}: {self._most_channels} channels in use"
        assert self._case.nodes == 1 or self.messages > 0


def check(library, build, case):
    version = version_of(library)
    job = job_of(library, build, case)
    with tempfile.TemporaryDirectory() as directory:
        script = f"{directory}/script"
        with open(script, "w", encoding="utf-8") as file:
            file.write(script_of(case, version))
        run_job(job, directory, "job", ["--plan", script])
        shape = shape_of(version, case.nodes, case.ranks, case.channels, "\n".join(output_of(directory, rank) for rank in range(case.ranks)))
        wanted = case.ranks_per_node if case.nodes == 1 else min(case.nics, case.ranks_per_node)
        assert len(shape.heads) == wanted, f"{case}: NCCL made {len(shape.heads)} heads"
        checker = Checker(case, shape)
        split = {}
        for rank in range(case.ranks):
            works = works_of(directory, rank)
            for number, (call, kernel) in enumerate(works):
                parts = checker.check_work(rank, call, kernel)
                assert split.setdefault(number, parts) == parts, f"{case}: ranks cut {call} differently"
            checker.check_sent(rank, works, directory)
        checker.check_whole()
    return checker


def cases_of(is_quick, version):
    if is_quick:
        return [Case(2, 3, 3, 2), Case(1, 3, 1, 2, True)]
    cases = [Case(2, 3, 3, channels) for channels in (1, 2, 3)]
    # A rank that is no head; four heads; a tree with a node in between, and with two below one.
    cases += [Case(2, 3, 2, 2), Case(2, 4, 4, 3), Case(3, 3, 3, 2), Case(4, 3, 2, 2)]
    cases += [Case(1, 4, 1, channels) for channels in (1, 2, 3)]
    cases += [Case(2, 3, 3, 2, True), Case(1, 4, 1, 2, True)]
    # 2.28 lets two devices have NVLS, and no longer one head.
    cases += [Case(2, 2, 2, 2), Case(1, 2, 1, 2)] if version >= (2, 28) else [Case(2, 3, 1, 2)]
    return cases


def enter_namespace(libraries, arguments):
    """Starts the test again with NICs of its own. Returns its exit status."""
    words = "ip link set lo up || exit 77; " + "".join(
        f"ip addr add 127.0.0.{i + 1}/8 dev lo label lo{i} || exit 77; " for i in range(1, MOST_NICS)) + 'exec "$@"'
    again = [word for library in libraries for word in ("--nccl", library)] + ["--build", arguments.build, "--only", arguments.only]
    again += ["--quick"] if arguments.quick else []
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    done = subprocess.run(["unshare", *rights, "--net", "sh", "-c", words, "sh", sys.executable, os.path.abspath(__file__), *again],
                          env={**os.environ, INSIDE: "1"}, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(done.stderr)
    if "unshare failed" in done.stderr or done.returncode == SKIPPED:
        print("skip: no network namespace")
        return SKIPPED
    return done.returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="where the double and its programs were built")
    parser.add_argument("--nccl", action="append", default=[])
    parser.add_argument("--version", action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="without it COLLWIRE_FULL=1 decides")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    arguments = parser.parse_args()
    is_full = os.environ.get("COLLWIRE_FULL") == "1"
    if arguments.only_full and not is_full:
        print("skip: runs with COLLWIRE_FULL=1")
        return SKIPPED
    try:
        libraries = [os.path.realpath(library) for library in arguments.nccl + [fetched(version) for version in arguments.version]]
    except RuntimeError as problem:
        print(f"skip: {problem}")
        return SKIPPED
    if os.environ.get(INSIDE) != "1":
        return enter_namespace(libraries, arguments)
    for library in libraries:
        version = version_of(library)
        for case in cases_of(arguments.quick or (not is_full and not arguments.only), version):
            if arguments.only not in str(case):
                continue
            begin = time.monotonic()
            checker = check(library, os.path.realpath(arguments.build), case)
            print(f"{'.'.join(map(str, version))}: {case}: {checker.works} works of {checker.bytes} bytes as the algebra has them, {checker.messages} "
                  f"messages as send() had them ({time.monotonic() - begin:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
