# SPDX-License-Identifier: Apache-2.0
"""Every send and receive of a report, by its ordinal, and every AlltoAll, Gather and Scatter, by its place in the order of collectives, against
the job's log (count, datatype, order) and the log of the test double of CUDA (bytes on every channel). Nothing here uses collwire's own arithmetic."""

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
        self.asked = collections.defaultdict(list)  # (peer, direction) -> (bytes, place), as it was run
        self.done = collections.defaultdict(list)  # (peer, direction) -> (bytes, {channel: bytes on the network}), as it was run
        self._ordinals = {}  # call -> its ordinal
        self._numbers = {}  # call -> its place among the collectives
        self._is_local = is_local

    def ask(self, line):
        is_run = line["graph"] is None or line["event"] == "replay"
        replay = line["replay"] - 1 if line["event"] == "replay" else None
        if line["op"] not in POINT_TO_POINT:
            number = self._numbers.setdefault(line["call"], len(self._numbers))
            if is_run and line["op"] in MADE_OF_PAIRS:
                for key in self._exchanges(line):
                    self.asked[key].append((line["bytes"], ("collective", number, replay)))
            return
        key = (line["peer"], OF_CALL[line["op"]])
        if line["event"] == "call":
            self._ordinals[line["call"]] = len(self.calls[key])
            self.calls[key].append((line["count"], line["datatype"]))
        if is_run:
            self.asked[key].append((line["bytes"], ("pair", self._ordinals[line["call"]], replay)))

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
        """{(kind, number, replay): {channel: bytes}} of what was sent to a peer, or received from one, and had bytes: by the ordinal of a send or
        receive, or the place of a collective. A problem is a text."""
        asked = [entry for entry in self.asked[key] if entry[0]]
        done = [entry for entry in self.done[key] if entry[0]]
        if [carried for carried, _ in asked] != [carried for carried, _ in done]:
            return f"{self.name} rank {self.rank} {key}: the job asked for {len(asked)} transfers, the double did {len(done)}, or others"
        return {place: channels for (_, place), (_, channels) in zip(asked, done)}

    def exchanges(self):
        """{(number, replay): {(peer, channel, direction): bytes}} of its collectives that were made of pairs."""
        found = collections.defaultdict(collections.Counter)
        for peer, direction in [key for key in self.asked if key[0] != self.rank]:
            of_pair = self.parts((peer, direction))
            if isinstance(of_pair, str):
                return of_pair
            for (kind, number, replay), channels in of_pair.items():
                if kind == "collective":
                    found[(number, replay)].update({(peer, channel, direction): carried for channel, carried in channels.items()})
        return found


def instances_of(jobs, doubles, is_local):
    """Those of all ranks: [Instance]."""
    instances = []
    for log, (job, kernels) in enumerate(zip(jobs, doubles)):
        mine, alive = [], {}
        for line in job:
            if line["event"] == "created":
                alive[line["communicator"]] = Instance(line, log, is_local)
                mine.append(alive[line["communicator"]])
            elif line["event"] in ("call", "replay") and line["result"] in ACCEPTED:
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
    """`processes`: (host, pid) of each log. `only_exact`: bytes of operations that are not exact may be anything. Returns (sends, receives and
    collectives made of them that were compared, problems)."""
    compared, problems = 0, []
    for comm, members in matched(report, instances_of(jobs, doubles, is_local), processes):
        if not comm:
            problems.append(f"no communicator in the report for {next(iter(members.values())).name} of ranks {sorted(members)}")
            continue
        entries = collections.defaultdict(dict)  # (src, dst) -> (ordinal, replay) -> entry
        for entry in report["p2p"]:
            if entry["comm"] == comm["id"]:
                entries[(entry["src_rank"], entry["dst_rank"])][(entry["ordinal"], entry["replay"])] = entry
        collectives = sorted((each for each in report["collectives"] if each["comm"] == comm["id"]), key=lambda each: each["seq"])
        for rank, instance in members.items():
            for n, of_rank in (_compare_rank(comm, entries, rank, instance, only_exact),
                               _compare_exchanges(comm, collectives, rank, instance, only_exact)):
                compared += n
                problems += of_rank
        for (source, destination), of_pair in entries.items():
            called = max(len(members[rank].calls[key]) for rank, key in ((source, (destination, "send")), (destination, (source, "recv"))))
            problems += [f"{comm['hash']} {source} -> {destination}: ordinal {ordinal} of {called}" for ordinal, _ in of_pair if ordinal >= called]
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
            for replay in sorted({replay for kind, place, replay in truth if (kind, place) == ("pair", ordinal)}, key=str) or [None]:
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
                expected = collections.Counter(truth.get(("pair", ordinal, replay), {}))
                is_known = entry["rung"] == "exact" and entry["tx_payload_bytes"] is not None
                if +ours != +expected and (is_known or not only_exact):
                    problems.append(f"{name}: {dict(ours)}, {entry['rung']}; the double has {dict(expected)}")
    return compared, problems


def _compare_exchanges(comm, collectives, rank, instance, only_exact):
    expected = instance.exchanges()
    if isinstance(expected, str):
        return 0, [expected]
    numbers = {seq: number for number, seq in enumerate(sorted({each["seq"] for each in collectives}))}
    compared, problems, found = 0, [], set()
    for each in collectives:
        if each["op"] not in MADE_OF_PAIRS:
            continue
        place = (numbers[each["seq"]], each["replay"])
        found.add(place)
        compared += 1
        ours = collections.Counter()
        for part in each["parts"]:
            if part["rank"] == rank and part["transport"] != "local":
                ours[(part["peer_rank"], part["channel"], part["direction"])] += part["payload_bytes"] or 0
        if +ours != +expected[place] and (each["rung"] == "exact" or not only_exact):
            problems.append(f"{comm['hash']} rank {rank} {each['op']} {place}: {dict(ours)}, {each['rung']}; the double has {dict(expected[place])}")
    problems += [f"{comm['hash']} rank {rank}: nothing in the report for the collective {place}" for place, parts in expected.items()
                 if +parts and place not in found]
    return compared, problems
