# SPDX-License-Identifier: Apache-2.0
"""What NCCL said beside its connections, in a report, against what the ranks gave to send() on the sockets that they closed, as
tests/cuda_double/send_counter.cpp counts it."""

import collections

# enum ncclSocketType, as every version has it; those of connections (3) are in sockets[].
TYPES = {1: "bootstrap", 2: "proxy", 4: "network_setup", 5: "ras"}
# What is left at the end of a process RAS closes at some time, or not at all.
JUDGED = ("bootstrap", "proxy", "network_setup")


def closed_of(paths):
    """name -> (sockets, bytes), of all ranks, and (sockets, bytes) of those that they closed before it was said what they are for."""
    closed, early = collections.defaultdict(lambda: (0, 0)), (0, 0)
    for path in paths:
        with open(path, encoding="ascii") as file:
            for words in (line.split() for line in file if line.startswith("closed")):
                if words[0] == "closed_early":
                    early = (early[0] + int(words[1]), early[1] + int(words[2]))
                    continue
                number, sockets, sent = (int(word) for word in words[1:])
                if number in TYPES:
                    before = closed[TYPES[number]]
                    closed[TYPES[number]] = (before[0] + sockets, before[1] + sent)
    return closed, early


def compare(report, paths, needed=("bootstrap", "proxy")):
    """`paths`: what SEND_COUNTER named, of each rank. Returns (a line that says what was compared, problems). Of a job whose sockets were all made
    and closed within the recording, which said something on all that are `needed`. Without `control` in the report, as where other jobs ran beside
    it on one machine, it is not judged."""
    control = report["control"]
    if control is None:
        return "control of several jobs", []
    (closed, (early, early_bytes)), problems = closed_of(paths), []
    for name in JUDGED:
        of_report = control[name] or {"sockets": 0, "payload_bytes": 0}
        sockets, sent = closed[name]
        more, more_bytes = of_report["sockets"] - sockets, of_report["payload_bytes"] - sent
        early, early_bytes = early - more, early_bytes - more_bytes
        if more < 0 or more_bytes < 0 or (more_bytes and not more):
            problems.append(f"control {name}: {of_report}, the ranks gave {sent} bytes to {sockets} sockets")
        if name in needed and not sent:
            problems.append(f"control {name}: no rank counted a byte")
    if early < 0 or early_bytes < 0:
        problems.append(f"control: {-early} sockets or {-early_bytes} B more than the ranks closed: {control}")
    return "control " + ", ".join(f"{name} {closed[name][1]} B on {closed[name][0]}" for name in JUDGED if closed[name][0]), problems
