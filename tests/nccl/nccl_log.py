# SPDX-License-Identifier: Apache-2.0
"""What NCCL itself says of its connections (NCCL_DEBUG=INFO), against the connections of a report."""

import collections
import re

_LINE = re.compile(r"Channel (\d+)/\d+ : (\d+)\[\w+\] -> (\d+)\[\w+\] \[(send|receive)\] via (NET/\w+)/")


def connections_of(text):
    """(channel, source, destination, direction, transport) of every line that tells of one."""
    return {(int(channel), int(source), int(destination), "send" if direction == "send" else "recv", transport)
            for channel, source, destination, direction, transport in _LINE.findall(text)}


def compare(report, logs):
    """`logs`: (host, pid) of a rank -> what it said. Returns (connections compared, problems): each that carried something must have been told
    of, with its ends, its channel and what it goes over."""
    told = {process: connections_of(text) for process, text in logs.items()}
    processes = {(comm["id"], rank["rank"]): (rank["host"], rank["pid"]) for comm in report["communicators"] for rank in comm["ranks"]
                 if not rank["missing"]}
    ours = collections.defaultdict(set)
    for kind in ("collectives", "p2p"):
        for operation in report[kind]:
            for part in operation["parts"]:
                if part["transport"] != "local" and part["payload_bytes"]:
                    ends = (part["rank"], part["peer_rank"])
                    ends = ends if part["direction"] == "send" else ends[::-1]
                    ours[processes[operation["comm"], part["rank"]]].add((part["channel"], *ends, part["direction"], part["transport"]))
    problems = [f"{process}: NCCL tells of no connection {sorted(connections - told[process])[:3]}" for process, connections in ours.items()
                if not connections <= told[process]]
    return sum(len(connections) for connections in ours.values()), problems
