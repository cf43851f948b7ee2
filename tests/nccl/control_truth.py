# SPDX-License-Identifier: Apache-2.0
"""The control traffic in a report against the bytes that the ranks gave to send() on the sockets that they closed
(tests/cuda_double/send_counter.cpp)."""

import collections

# enum ncclSocketType, the same in every version. Sockets of connections (3) are in sockets[].
TYPES = {1: "bootstrap", 2: "proxy", 4: "network_setup", 5: "ras"}
# Without `ras`: RAS may leave its sockets open when the process exits.
JUDGED = ("bootstrap", "proxy", "network_setup")


def closed_of(paths):
    """(name -> (sockets, bytes) of all ranks, (sockets, bytes) of sockets that were closed before NCCL set their type)"""
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
    """`paths`: the file of SEND_COUNTER of each rank. Returns (summary, problems). The recording has to cover the job's sockets from creation to close,
    and the types in `needed` have to carry bytes. A report without `control`, as after several jobs on one machine, is not judged."""
    control = report["control"]
    if control is None:
        return "no control traffic: several jobs", []
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
