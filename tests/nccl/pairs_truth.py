# SPDX-License-Identifier: Apache-2.0
"""Every send and receive of a report, by its ordinal, against the job's log (count, datatype, order) and the log of the test double of CUDA
(bytes on every channel). Nothing in here is collwire's own arithmetic."""

import collections

from identity_truth import ACCEPTED, DIRECTIONS, MADE_OF_PAIRS, POINT_TO_POINT

OF_CALL = {"Send": "send", "Recv": "recv"}


class Instance:
    """One rank's part of a communicator, from its creation to its end."""

    def __init__(self, created, log, is_local):
        self.name = (created["communicator"], created["instance"])
        self.comm, self.rank, self.ranks, self.world_ranks = created["comm"], created["rank"], created["ranks"], tuple(created["world_ranks"])
        self.begin_ns, self.log, self.hash = created["at_realtime_ns"], log, None
        self.calls = collections.defaultdict(list)  # (peer, direction) -> (count, datatype) by ordinal
        self.asked = collections.defaultdict(list)  # (peer, direction) -> (bytes, (ordinal, replay) or None), as it was run
        self.done = collections.defaultdict(list)  # (peer, direction) -> (bytes, {channel: bytes on the network}), as it was run
        self._ordinals = {}  # call -> its ordinal
        self._is_local = is_local

    def ask(self, line):
        if line["op"] in MADE_OF_PAIRS:
            if line["graph"] is None or line["event"] == "replay":
                for peer, direction in self._exchanges(line):
                    self.asked[(peer, direction)].append((line["bytes"], None))
            return
        key = (line["peer"], OF_CALL[line["op"]])
        if line["event"] == "call":
            self._ordinals[line["call"]] = len(self.calls[key])
            self.calls[key].append((line["count"], line["datatype"]))
        if line["graph"] is None or line["event"] == "replay":
            replay = line["replay"] - 1 if line["event"] == "replay" else None
            self.asked[key].append((line["bytes"], (self._ordinals[line["call"]], replay)))

    def _exchanges(self, line):
        others = [peer for peer in range(self.ranks) if peer != self.rank]
        if line["op"] == "AlltoAll":
            return [(peer, direction) for peer in others for direction in ("send", "recv")]
        to_root, of_root = ("send", "recv") if line["op"] == "Gather" else ("recv", "send")
        return [(peer, of_root) for peer in others] if self.rank == line["root"] else [(line["root"], to_root)]

    def do(self, kernel):
        self.hash = kernel["comm_hash"]
        works = collections.defaultdict(lambda: collections.defaultdict(dict))  # (peer, direction) -> work -> its connections by channel
        for connection in kernel["connections"]:
            if kernel["works"][connection["work"]]["function"].startswith("SendRecv"):
                key = (connection["peer"], DIRECTIONS[connection["direction"]])
                works[key][connection["work"]][connection["channel"]] = connection
        for (peer, direction), of_pair in works.items():
            for number, channels in sorted(of_pair.items(), key=lambda item: self._place(of_pair, item)):
                work = kernel["works"][number]
                carried = work["send_bytes"] if direction == "send" else work["receive_bytes"]
                is_local = self._is_local(self.log, kernel, peer)
                self.done[(peer, direction)].append((carried, {} if is_local else {channel: connection["bytes"]
                                                                                   for channel, connection in channels.items()}))

    @staticmethod
    def _place(of_pair, item):
        """Works of a pair of ranks are done in the order of the steps of a channel that all of them have, else in that of the log."""
        number, channels = item
        common = set.intersection(*(set(each) for each in of_pair.values()))
        return (channels[min(common)]["first_step"] if common else 0, number)

    def parts(self, key):
        """{(ordinal, replay): {channel: bytes}} of the sends to a peer, or receives from one, that had bytes. A problem is a text."""
        asked = [entry for entry in self.asked[key] if entry[0]]
        done = [entry for entry in self.done[key] if entry[0]]
        if [carried for carried, _ in asked] != [carried for carried, _ in done]:
            return f"{self.name} rank {self.rank} {key}: the job asked for {len(asked)} transfers, the double did {len(done)}, or others"
        return {place: channels for (_, place), (_, channels) in zip(asked, done) if place is not None}


def instances_of(jobs, doubles, is_local):
    """Those of all ranks: [Instance]."""
    instances = []
    for log, (job, kernels) in enumerate(zip(jobs, doubles)):
        mine, alive = [], {}
        for line in job:
            if line["event"] == "created":
                alive[line["communicator"]] = Instance(line, log, is_local)
                mine.append(alive[line["communicator"]])
            elif line["event"] in ("call", "replay") and line["op"] in (*POINT_TO_POINT, *MADE_OF_PAIRS) and line["result"] in ACCEPTED:
                alive[line["communicator"]].ask(line)
        for kernel in sorted(kernels, key=lambda kernel: kernel["launched_ns"]):
            owners = [instance for instance in mine if instance.comm == kernel["comm"] and instance.begin_ns <= kernel["launched_ns"]]
            owners[-1].do(kernel)
        instances += mine
    return instances


def matched(report, instances, processes):
    """(communicator of the report, {rank: Instance}) of each communicator of the job that has a hash. A communicator without a match has
    None."""
    groups = collections.defaultdict(dict)
    for instance in instances:
        groups[(*instance.name, instance.world_ranks)][instance.rank] = instance
    free = list(report["communicators"])
    for _, members in sorted(groups.items()):
        hashes = {instance.hash for instance in members.values()} - {None}
        if not hashes:
            continue
        wanted = {(rank, *processes[instance.log]) for rank, instance in members.items()}
        found = next((comm for comm in free if comm["hash"] in hashes and
                      wanted == {(rank["rank"], rank["host"], rank["pid"]) for rank in comm["ranks"] if not rank["missing"]}), None)
        if found:
            free.remove(found)
        yield found, members


def compare(report, jobs, doubles, is_local, processes, only_exact=False):
    """`processes`: (host, pid) of each log. `only_exact`: bytes of operations that are not exact may be anything. Returns (sends and receives
    compared, problems)."""
    compared, problems = 0, []
    for comm, members in matched(report, instances_of(jobs, doubles, is_local), processes):
        if not comm:
            problems.append(f"no communicator in the report for {next(iter(members.values())).name} of ranks {sorted(members)}")
            continue
        entries = collections.defaultdict(dict)  # (src, dst) -> (ordinal, replay) -> entry
        for entry in report["p2p"]:
            if entry["comm"] == comm["id"]:
                entries[(entry["src_rank"], entry["dst_rank"])][(entry["ordinal"], entry["replay"])] = entry
        for rank, instance in members.items():
            n, of_rank = _compare_rank(comm, entries, rank, instance, only_exact)
            compared += n
            problems += of_rank
        for (source, destination), of_pair in entries.items():
            told = max(len(members[rank].calls[key]) for rank, key in ((source, (destination, "send")), (destination, (source, "recv"))))
            problems += [f"{comm['hash']} {source} -> {destination}: ordinal {ordinal} of {told}" for ordinal, _ in of_pair if ordinal >= told]
    return compared, problems


def _compare_rank(comm, entries, rank, instance, only_exact):
    compared, problems = 0, []
    for (peer, direction), calls in instance.calls.items():
        of_pair = entries[(rank, peer) if direction == "send" else (peer, rank)]
        truth = instance.parts((peer, direction)) if peer != rank else {}
        if isinstance(truth, str):
            problems.append(truth)
            continue
        for ordinal, call in enumerate(calls):
            for replay in sorted({replay for place, replay in truth if place == ordinal}, key=str) or [None]:
                compared += 1
                name = f"{comm['hash']} rank {rank} {direction} {ordinal}{'' if replay is None else f', replay {replay}'} with {peer}"
                entry = of_pair.get((ordinal, replay))
                if not entry or (entry["count"], entry["datatype"]) != call:
                    problems.append(f"{name}: {entry and (entry['count'], entry['datatype'])}, the job called with {call}")
                    continue
                ours = collections.Counter()
                for part in entry["parts"]:
                    if (part["rank"], part["peer_rank"], part["direction"]) == (rank, peer, direction) and part["transport"] != "local":
                        ours[part["channel"]] += part["payload_bytes"] or 0
                expected = collections.Counter(truth.get((ordinal, replay), {}))
                is_known = entry["rung"] == "exact" and entry["tx_payload_bytes"] is not None
                if +ours != +expected and (is_known or not only_exact):
                    problems.append(f"{name}: {dict(ours)}, {entry['rung']}; the double has {dict(expected)}")
    return compared, problems
