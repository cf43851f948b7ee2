# SPDX-License-Identifier: Apache-2.0
"""The job's log against the double's: each communicator did the work of its calls, and no other."""

import collections

from double_job import lines_of

COLLECTIVES = {"AllReduce", "AllGather", "ReduceScatter", "Reduce"}
# How many times a rank sends the bytes of its call.
EXCHANGES = {"Send": lambda call: 1, "Recv": lambda call: 0, "AlltoAll": lambda call: call["ranks"], "Gather": lambda call: 1,
             "Scatter": lambda call: call["ranks"] if call["rank"] == call["root"] else 0}


class Instance:
    """A communicator from its creation to its end: addresses are reused."""

    def __init__(self, created):
        self.comm, self.ranks, self.begin_ns = created["comm"], created["ranks"], created["at_realtime_ns"]
        self.end_ns = None
        self.is_aborted = False
        self.asked, self.done = collections.Counter(), collections.Counter()
        self.hashes = set()

    def ask(self, call):
        if call["result"] != 0 or call["bytes"] == 0:
            return
        if call["op"] in COLLECTIVES:
            # One rank copies without a kernel.
            self.asked[call["op"], call["bytes"]] += 1 if self.ranks > 1 else 0
        elif call["op"] == "Broadcast":
            self.asked["broadcast"] += call["bytes"] if self.ranks > 1 else 0
        else:
            self.asked["sent"] += call["bytes"] * EXCHANGES[call["op"]](call)

    def do(self, kernel):
        self.hashes.add(kernel["comm_hash"])
        for work in kernel["works"]:
            operation = work["function"].split("_")[0]
            if operation == "SendRecv":
                self.done["sent"] += work["send_bytes"]
            elif operation in ("Broadcast", "AllGatherV"): # a group's, split by channels from 2.29 on
                self.done["broadcast"] += work["bytes"]
            else:
                self.done[operation, work["bytes"]] += 1

    def is_right(self):
        return self.is_aborted or +self.asked == +self.done


def instances_of(log):
    """(instances of a job's log with their calls, number of calls)"""
    instances, alive, calls = [], {}, 0
    for line in log:
        if line["event"] == "created":
            alive[line["communicator"]] = Instance(line)
            instances.append(alive[line["communicator"]])
        elif line["event"] in ("destroyed", "aborted"):
            instance = alive.pop(line["communicator"])
            instance.end_ns = line["at_realtime_ns"]
            instance.is_aborted = line["event"] == "aborted"
        elif line["event"] in ("call", "replay"):
            calls += 1
            # A captured call runs in its replays.
            if line["graph"] is None or line["event"] == "replay":
                alive[line["communicator"]].ask(line)
    return instances, calls


def check_rank(directory, rank):
    instances, calls = instances_of(lines_of(f"{directory}/job.{rank}"))
    for kernel in lines_of(f"{directory}/truth.{rank}"):
        owners = [instance for instance in instances if instance.comm == kernel["comm"] and
                  instance.begin_ns <= kernel["launched_ns"] and (instance.is_aborted or kernel["launched_ns"] <= instance.end_ns)]
        assert owners, f"rank {rank}: a kernel of no communicator: {kernel}"
        owners[-1].do(kernel)
    for instance in instances:
        assert len(instance.hashes) <= 1, f"rank {rank}, {instance.comm}: {instance.hashes}"
        assert instance.is_right(), f"rank {rank}, {instance.comm}: asked for {instance.asked}, did {instance.done}"
    return calls


def check_logs(directory, ranks):
    return max(check_rank(directory, rank) for rank in range(ranks))
