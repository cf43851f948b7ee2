# SPDX-License-Identifier: Apache-2.0
"""The connections that NCCL prints (NCCL_DEBUG=INFO) against those of a report."""

import collections
import re

_LINE = re.compile(r"Channel (\d+)/\d+ : (\d+)\[\w+\] -> (\d+)\[\w+\] \[(send|receive)\] via (NET/\w+)/")
# With PXN. The number in brackets is the rank that sends.
_SENDER = re.compile(r"Channel (\d+)/\d+ : (\d+)\[\w+\] -> (\d+)\[\w+\] \[send\] via NET/\w+/\d+\((\d+)\)")


def connections_of(text):
    """(channel, source, destination, direction, transport) of every printed connection."""
    return {(int(channel), int(source), int(destination), "send" if direction == "send" else "recv", transport)
            for channel, source, destination, direction, transport in _LINE.findall(text)}


def senders_of(text):
    """(channel, source, destination) -> ranks that send for the source, in one communicator or another."""
    senders = collections.defaultdict(set)
    for channel, source, destination, sender in _SENDER.findall(text):
        senders[(int(channel), int(source), int(destination))].add(int(sender))
    return senders


def compare(report, logs):
    """`logs`: (host, pid) of a rank -> NCCL's log. Returns (connections compared, problems): NCCL prints each connection that carried bytes, with its
    ends, channel and transport."""
    printed = {process: connections_of(text) for process, text in logs.items()}
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
    problems = [f"{process}: NCCL prints no connection {sorted(connections - printed[process])[:3]}" for process, connections in ours.items()
                if not connections <= printed[process]]
    return sum(len(connections) for connections in ours.values()), problems
