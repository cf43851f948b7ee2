#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on this machine, over sockets, on the test double of CUDA: all is well; one rank calls late; the network is slow (a token bucket
in a network namespace); both. The report says of each kind of collective how often it waited for its last rank, and how often it transferred: right in
98 % of them. The truth is in the job's log (calls) and the double's (ends of kernels).

skew_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY] [--only-full]"""

import collections
import contextlib
import os
import signal
import subprocess
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import double_job
import identity_truth

RANKS, LATE_RANK = 4, 2
SECONDS = "5"
STEPS = (("allreduce", "256KiB"), ("allgather", "64KiB"))
LATE = "sleep 150ms\n"
SLOW = "rate 100mbit burst 64kb latency 1s"
CASES = {"well": (False, False), "late": (True, False), "slow": (False, True), "both": (True, True)}
SMALLEST_BYTES = 64 << 10
LEAST_RIGHT = 0.98
FEWEST = 20
# Of a time: there both classes are right. The report's time ends with the last transfer, the truth's with the kernels.
NEAR_HALF = 0.15


def script_of(is_late):
    return "loop\n" + "".join(f"{LATE if is_late else ''}world {operation} {size}\nwait\n" for operation, size in STEPS)


class SkewedJob(double_job.Job):
    """One rank's script may have pauses, and all ranks may be in a network namespace."""
    late_script, namespace = "", None

    def command(self, program):
        return [*(["nsenter", f"--net=/proc/{self.namespace}/ns/net"] if self.namespace else []), *super().command(program)]

    def start(self, rank, directory, program, arguments, mask=frozenset()):
        if rank == LATE_RANK and self.late_script:
            arguments = [self.late_script if argument.endswith(".job") else argument for argument in arguments]
        return super().start(rank, directory, program, arguments, mask)


@contextlib.contextmanager
def slow_network():
    """A process in a network namespace of its own, whose loopback is slow."""
    words = f"ip link set lo up mtu 9000 && tc qdisc add dev lo root tbf {SLOW} && echo ready && exec sleep 1000"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as holder:
        try:
            said = holder.stdout.readline()
            if said != "ready\n":
                raise one_machine.Skip(f"no slow network: {said.strip()}")
            yield holder.pid
        finally:
            holder.send_signal(signal.SIGKILL)


def truth_of(directory, logs):
    """(operation, number) -> (spread, time) in ns, without those by which ranks agree to end."""
    ends, calls, agreed = collections.defaultdict(list), collections.defaultdict(list), set()
    for rank, log in enumerate(logs):
        numbers = collections.Counter()
        for kernel in identity_truth.lines_of(f"{directory}/truth.{rank}"):
            for work in kernel["works"]:
                ends[work["function"].split("_")[0], numbers[work["function"].split("_")[0]]].append(kernel["ended_ns"])
                numbers[work["function"].split("_")[0]] += 1
        numbers.clear()
        for line in log:
            if line["event"] == "call" and line["communicator"] == "world":
                key = (line["op"], numbers[line["op"]])
                calls[key].append(line["at_realtime_ns"])
                if line.get("purpose") == "agree":
                    agreed.add(key)
                numbers[line["op"]] += 1
    return {key: (max(of) - min(of), max(ends[key]) - min(of)) for key, of in calls.items()
            if key not in agreed and len(of) == len(ends[key]) == RANKS}


def judge(name, report, truth):
    possible, found = collections.defaultdict(collections.Counter), collections.Counter()
    for (op, _), (spread_ns, time_ns) in truth.items():
        possible[op]["all"] += 1
        possible[op]["waited"] += 2 * spread_ns >= time_ns * (1 - NEAR_HALF)
        possible[op]["transferred"] += 2 * spread_ns < time_ns * (1 + NEAR_HALF)
    for row in report["waiting"]:
        if (row["size_bytes"] or 0) < SMALLEST_BYTES:
            continue # ranks agree to end by it
        of = possible[row["op"]]
        found["waited"] += row["waited"]
        found["transferred"] += row["transferred"]
        found["unclear"] += row["unclear"]
        found["wrong"] += max(0, row["waited"] - of["waited"]) + max(0, row["transferred"] - of["transferred"])
        found["last"] += sum(last["operations"] for last in row["last_ranks"] if last["rank"] == LATE_RANK)
    total = found["waited"] + found["transferred"] + found["unclear"]
    print(f"{name}: {total} collectives: {dict(found)}; the truth: {({op: dict(of) for op, of in possible.items()})}", flush=True)
    assert total >= FEWEST, f"{name}: {total} collectives"
    assert total - found["wrong"] - found["unclear"] >= LEAST_RIGHT * total, name
    return found, total


def run(arguments, library, directory):
    found = {}
    for name, (is_late, is_slow) in CASES.items():
        out = f"{directory}/{name}"
        os.makedirs(out)
        for script, late in (("even.job", False), ("late.job", True)):
            with open(f"{out}/{script}", "w", encoding="ascii") as file:
                file.write(script_of(late))
        job = SkewedJob(library, arguments.build, RANKS)
        job.late_script = f"{out}/late.job" if is_late else ""
        with contextlib.ExitStack() as stack:
            job.namespace = stack.enter_context(slow_network()) if is_slow else None
            report, logs, _ = one_machine.record(arguments.collwire, job, out, ["--plan", f"{out}/even.job", "--seconds", SECONDS],
                                                 "--network-times", "--interval", "50ms")
        found[name], total = judge(name, report, truth_of(out, logs))
    assert found["late"]["waited"] > found["late"]["transferred"], "a late rank, and a fast network"
    assert found["late"]["last"] >= LEAST_RIGHT * found["late"]["waited"], "the late rank is the last one"
    assert found["slow"]["transferred"] > found["slow"]["waited"], "a slow network, and no late rank"


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
