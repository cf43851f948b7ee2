#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""collwire's model of the bytes inside a node against the double's log, to the byte: official NCCL, all ranks on one node, shared memory.

local_edges_test.py --build DIRECTORY [--nccl libnccl.so.2 ...] [--version VERSION ...] [--quick] [--only-full]

The model gets what a recording has: the task of each launch (function, count, algorithm, protocol, number of channels) and the rings and trees. What it
must answer, the bytes of each connection on each channel, is the double's count of what NCCL's kernels put into the connections' FIFOs."""

import argparse
import collections
import dataclasses
import glob
import os
import re
import subprocess
import sys
import tempfile
import time

from double_job import Job, fetched, lines_of, run_job, version_of

SKIPPED = 77
FUNCTIONS = {"Broadcast": 0, "Reduce": 1, "AllGather": 2, "ReduceScatter": 3, "AllReduce": 4, "Send": 6, "Recv": 7}
ALGORITHMS = {"TREE": 0, "RING": 1}
PROTOCOLS = {"LL": 0, "LL128": 1, "SIMPLE": 2}
DATATYPES = {"ncclInt8": 0, "ncclFloat32": 7, "ncclBfloat16": 9}
TYPE_BYTES = {"ncclInt8": 1, "ncclFloat32": 4, "ncclBfloat16": 2}
# Data bytes of a chunk on a ring: enqueue.cc calcCollChunking, with NCCL's default buffers.
CHUNK_BYTES = {"LL": 32768, "LL128": 576000, "Simple": 2097152}
FIRST_WITH_CHANNELS = (2, 27)
# All channels are in use: their rings and trees show here.
PROBE = "world allreduce 4MiB float32 sum\n"


@dataclasses.dataclass
class Case:
    algorithm: str
    protocol: str
    ranks: int
    channels: int
    transport: str = "shm"

    def __str__(self):
        return f"{self.ranks} ranks, {self.channels} channels, {self.algorithm} {self.protocol} over {self.transport}"


def sizes_of(case):
    """Bytes."""
    chunk = CHUNK_BYTES[case.protocol]
    # 12,004: LL by the threshold of sends, or not. The last two are 20 bytes more than half a loop and a loop of three ranks on a channel: other sizes of a
    # chunk give other bytes there, and only there.
    return [0, 1, 8, 1001, 12004, chunk - 1, chunk + 1, 1048588, 4 << 20, *([3145748, 6291476] if case.protocol == "Simple" and case.ranks == 3 else [])]


def script_of(case, is_quick):
    """Every operation with every size; AllGather and ReduceScatter with the size for all ranks together."""
    text = PROBE
    for i, size in enumerate(sizes_of(case)):
        if is_quick and size > 2 << 20:
            continue
        kind = "int8" if size % 4 else "float32"
        text += f"world allreduce {size}B {kind} sum\n"
        if case.algorithm == "Tree":
            continue
        each = -(-size // case.ranks)
        each -= each % 4 if kind == "float32" else 0
        text += f"world allgather {each}B {kind}\nworld reducescatter {each}B {kind} sum\n"
        root = i % case.ranks
        text += f"world broadcast {size}B {kind} root {root}\nworld reduce {size}B {kind} sum root {(root + 1) % case.ranks}\n"
        text += f"world sendrecv {size}B {kind}\nworld allpairs {each}B {kind}\nworld selfsend {each}B {kind}\n"
    return text


class Group:
    """The calls of one launch, and its kernels."""

    def __init__(self):
        self.calls, self.kernels = [], []


def groups_of(calls, kernels):
    """Kernels are launched by the last call, or the last call of a group, before them."""
    groups, number = [], None
    starts = []
    for call in calls:
        if call["group"] is None or call["group"] != number:
            groups.append(Group())
        number = call["group"]
        groups[-1].calls.append(call)
        starts.append((call["at_realtime_ns"], groups[-1]))
    starts.sort(key=lambda start: start[0])
    for kernel in kernels:
        owners = [group for at_ns, group in starts if at_ns <= kernel["launched_ns"]]
        assert owners, f"a kernel before all calls: {kernel}"
        owners[-1].kernels.append(kernel)
    return groups


@dataclasses.dataclass
class Rank:
    number: int
    groups: list


def ranks_of(directory, ranks):
    for number in range(ranks):
        calls = [line for line in lines_of(f"{directory}/job.{number}") if line["event"] == "call"]
        yield Rank(number, groups_of(calls, lines_of(f"{directory}/truth.{number}")))


def neighbours_of(ranks):
    """channel -> rank -> ranks that it sends to, from the first AllReduce of each."""
    channels = collections.defaultdict(dict)
    for rank in ranks:
        for connection in rank.groups[0].kernels[0]["connections"]:
            if connection["direction"] == "send":
                channels[connection["channel"]].setdefault(rank.number, []).append(connection["peer"])
    return channels


def ring_of(next_of):
    order = [0]
    while len(order) < len(next_of):
        order.append(next_of[order[-1]][0])
    assert sorted(order) == list(range(len(next_of))), f"no ring: {next_of}"
    return order


def channel_lines(case, channels, rank):
    for number, sends in sorted(channels.items()):
        if case.algorithm == "Tree":
            peers = (sends[rank] + [-1, -1, -1])[:4]
            yield f"channel {number} -1 -1 0 {' '.join(str(peer) for peer in peers + [-1] * (4 - len(peers)))}"
            continue
        order = ring_of(sends)
        place = order.index(rank)
        yield f"channel {number} {order[place - 1]} {order[(place + 1) % len(order)]} {place} -1 -1 -1 -1"


def task_lines(group, has_channels):
    """One for each task of the launch; (function, peer) of each."""
    tasks = []
    used = collections.defaultdict(set)
    for kernel in group.kernels:
        for connection in kernel["connections"]:
            if connection["connection"] == 1:
                used[connection["direction"], connection["peer"]].add(connection["channel"])
            else:
                used["collective"].add(connection["channel"])
    for call in group.calls:
        size = TYPE_BYTES[call["datatype"]]
        if call["op"] in ("Send", "Recv"):
            channels = len(used["send" if call["op"] == "Send" else "receive", call["peer"]]) if has_channels else 0
            tasks.append(f"task {FUNCTIONS[call['op']]} 255 255 {call['count']} {DATATYPES[call['datatype']]} {call['count'] * size} {call['peer']} {channels}")
            continue
        if call["bytes"] == 0:
            continue
        function = next(work["function"] for kernel in group.kernels for work in kernel["works"])
        _, algorithm, protocol = function.split("_")
        channels = bin(int(group.kernels[0]["channel_mask"], 16)).count("1") if has_channels else 0
        root = call["root"] if call["root"] is not None else 0
        tasks.append(f"task {FUNCTIONS[call['op']]} {ALGORITHMS[algorithm]} {PROTOCOLS[protocol]} {call['count']} {DATATYPES[call['datatype']]} "
                     f"{call['bytes']} {root} {channels}")
    return tasks


def truth_of(rank, group):
    """(sender, receiver, channel) -> bytes; of sends and receives the sum of all channels, channel -1."""
    truth = collections.Counter()
    for kernel in group.kernels:
        for connection in kernel["connections"]:
            ends = (rank, connection["peer"]) if connection["direction"] == "send" else (connection["peer"], rank)
            truth[(*ends, -1 if connection["connection"] == 1 else connection["channel"])] += connection["bytes"]
    return +truth


def sums_of(edges):
    sums = collections.Counter()
    for (sender, receiver, _), carried in edges.items():
        sums[sender, receiver] += carried
    return +sums


class Compared:
    def __init__(self):
        self.launches = self.edges = self.bytes = self.unknown = 0


def compare(case, rank, group, answer, has_channels, compared):
    modelled, unknown = collections.Counter(), []
    for line in answer:
        words = line.split()
        if words[0] == "not":
            unknown.append(line)
        else:
            _, _, sender, receiver, channel, payload, data = words
            assert int(data) <= int(payload), line
            modelled[int(sender), int(receiver), int(channel)] += int(payload)
    compared.launches += 1
    if unknown:
        compared.unknown += 1
        # Before 2.27 LL and Simple are both possible for some sizes.
        assert not has_channels and all(call["op"] in ("Send", "Recv") for call in group.calls), (case, answer, group.calls)
        assert all(line.endswith("protocol not known") for line in unknown), (case, unknown)
        return
    truth = truth_of(rank, group)
    modelled = +modelled
    if any(channel == -1 for _, _, channel in modelled) and not any(channel == -1 for _, _, channel in truth):
        truth, modelled = sums_of(truth), sums_of(modelled)
    what = [f"{call['op']} {call['count']} {call['datatype']} root {call['root']}" for call in group.calls]
    assert modelled == truth, f"{case}, rank {rank}, {what}: the model has {dict(modelled)}, NCCL moved {dict(truth)}"
    compared.edges += len(truth)
    compared.bytes += sum(carried for (sender, *_), carried in truth.items() if sender == rank)


def ask(build, questions):
    done = subprocess.run([f"{build}/local_edges"], input="\n".join(questions) + "\n", capture_output=True, text=True, check=True)
    answers, answer = [], []
    for line in done.stdout.splitlines():
        if line == "end":
            answers.append(answer)
            answer = []
        else:
            answer.append(line)
    return answers


def p2p_channels_of(directory):
    """As NCCL prints them: of the communicator, and for one peer."""
    found = set()
    for path in glob.glob(f"{directory}/nccl.*.log"):
        with open(path, encoding="utf-8") as log:
            found |= set(re.findall(r"(\d+) p2p channels, (\d+) p2p channels per peer", log.read()))
    assert len(found) == 1, f"{len(found)} different numbers of channels in NCCL's logs"
    return " ".join(found.pop())


def check(library, build, case, is_quick):
    version = version_of(library)
    environment = {"NCCL_ALGO": case.algorithm, "NCCL_PROTO": case.protocol, "NCCL_MIN_NCHANNELS": str(case.channels),
                   "NCCL_MAX_NCHANNELS": str(case.channels), "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT"}
    if case.transport == "p2p":
        environment.update({"COLLWIRE_CUDA_P2P": "nvlink", "NCCL_P2P_DISABLE": "0"})
    job = Job(library, build, ranks=case.ranks, ranks_per_node=case.ranks, environment=environment, limit_s=900)
    has_channels = version >= FIRST_WITH_CHANNELS
    with tempfile.TemporaryDirectory() as directory:
        job.environment["NCCL_DEBUG_FILE"] = f"{directory}/nccl.%p.log"
        script = f"{directory}/script"
        with open(script, "w", encoding="utf-8") as file:
            file.write(script_of(case, is_quick))
        run_job(job, directory, "job", ["--plan", script])
        ranks = list(ranks_of(directory, case.ranks))
        p2p_channels = p2p_channels_of(directory)
    transports = {connection.get("transport", "shm") for rank in ranks for group in rank.groups for kernel in group.kernels
                  for connection in kernel["connections"]}
    assert transports == {case.transport}, f"{case}: NCCL used {transports}"
    channels = neighbours_of(ranks)
    assert len(channels) == case.channels, f"{case}: {len(channels)} channels in use"
    questions, of_question = [], []
    for rank in ranks:
        for group in rank.groups:
            tasks = task_lines(group, has_channels)
            if not tasks:
                assert not truth_of(rank.number, group), group.calls
                continue
            questions.append(f"launch {version[0] * 10000 + version[1] * 100 + version[2]} {case.ranks} {rank.number} {p2p_channels}")
            questions.extend(channel_lines(case, channels, rank.number))
            questions.extend(tasks)
            questions.append("end")
            of_question.append((rank.number, group))
    answers = ask(build, questions)
    assert len(answers) == len(of_question), f"{case}: {len(answers)} answers to {len(of_question)} launches"
    compared = Compared()
    for (rank, group), answer in zip(of_question, answers):
        compare(case, rank, group, answer, has_channels, compared)
    return compared


def has_p2p(build):
    """Whether the double plays P2P between the devices of a node."""
    with open(f"{build}/libcuda_double.so", "rb") as file:
        return b"COLLWIRE_CUDA_P2P" in file.read()


def cases_of(is_quick, build):
    if is_quick:
        cases = [Case("Ring", "Simple", 4, 2), Case("Ring", "LL", 3, 3), Case("Ring", "LL128", 2, 1), Case("Tree", "LL128", 4, 2)]
        over_p2p = [Case("Ring", "Simple", 4, 2, "p2p"), Case("Tree", "LL", 3, 2, "p2p")]
    else:
        cases = [Case(algorithm, protocol, ranks, channels) for ranks in (2, 3, 4, 8) for channels in (1, 2, 3, 8)
                 for algorithm in ("Ring", "Tree") for protocol in ("LL", "LL128", "Simple")]
        over_p2p = [dataclasses.replace(case, transport="p2p") for case in cases if case.channels == 2]
    return cases + (over_p2p if has_p2p(build) else [])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="where the double and its programs were built")
    parser.add_argument("--nccl", action="append", default=[])
    parser.add_argument("--version", action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="without it COLLWIRE_FULL=1 decides")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    arguments = parser.parse_args()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skip: runs with COLLWIRE_FULL=1")
        return SKIPPED
    try:
        libraries = arguments.nccl + [fetched(version) for version in arguments.version]
    except RuntimeError as problem:
        print(f"skip: {problem}")
        return SKIPPED
    for library in libraries:
        name = ".".join(map(str, version_of(library)))
        is_quick = arguments.quick or (os.environ.get("COLLWIRE_FULL") != "1" and not arguments.only)
        for case in cases_of(is_quick, arguments.build):
            if arguments.only not in str(case):
                continue
            begin = time.monotonic()
            compared = check(os.path.realpath(library), os.path.realpath(arguments.build), case, is_quick)
            assert compared.edges > 0
            print(f"{name}: {case}: {compared.edges} edges of {compared.launches} launches equal, {compared.bytes} bytes; {compared.unknown} launches "
                  f"not modelled ({time.monotonic() - begin:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
