#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The guessed roles of communicators without a name against the truth of generated jobs, over all layouts: right or none, never wrong. Also in the verdicts
of jobs that stopped, whichever way their captures are read, in the answers to a watchdog's line, and for an inspection of the same job.

roles_test.py --collwire FILE --trace-gen FILE"""

import argparse
import collections
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

from truth import Truth
from window_test import line_of

ROLES = {"data": "dp", "tensor": "tp", "pipeline": "pp", "expert": "ep"}
OTHERS = [
    ["--nodes", "8", "--tp", "8"], # tp = dp
    ["--nodes", "16", "--tp", "8", "--pp", "8"], # tp = pp
    ["--nodes", "4", "--tp", "4", "--microbatches", "1", "--pp", "2"],
    ["--nodes", "4", "--tp", "8", "--bucket-kib", "4"],
    ["--nodes", "4", "--tp", "8", "--buckets", "20", "--layers", "1"],
    ["--nodes", "4", "--buckets", "1", "--no-small"],
    ["--nodes", "4", "--tp", "8", "--sharded", "--local-launches"],
    ["--nodes", "8", "--tp", "4", "--pp", "2", "--damage", "1:missing"],
    ["--nodes", "4", "--tp", "8", "--damage", "1:truncated"],
    ["--nodes", "4", "--tp", "8", "--die-at", "3.5:11", "--iterations", "4"],
]
# A usual layout of which all must be known.
KNOWN = ["--nodes", "8", "--tp", "8", "--pp", "4", "--iterations", "6", "--late", "9:300:1-5"]
# Jobs in which a rank stops, and the roles of the communicators that the verdict names: in its subject, then in its evidence.
STOPPED = {
    ("dp", "tp"): ["--nodes", "8", "--tp", "8"],
    ("dp", "tp", "pp"): ["--nodes", "8", "--tp", "8", "--pp", "4", "--sharded"],
}
ALSO_IN = re.compile(r"also in (0x[0-9a-f]{16}) \((\w+)\?\): ")
WAYS = {"model": ["--read", "whole", "--core", "model"], "stream": ["--read", "whole"], "tail": ["--read", "tail"]}


def layouts():
    for nodes, tp, pp, ep, sharded in itertools.product((2, 4, 8), (1, 4, 8), (1, 2, 4), (0, 8, 16), (False, True)):
        of_node = 8 // tp
        data = nodes // pp * of_node
        if nodes // pp < 2 or (ep and (ep % of_node or data % ep or ep // of_node < 2)):
            continue
        yield ["--nodes", str(nodes), "--tp", str(tp), "--pp", str(pp), "--ep", str(ep), *(["--sharded"] if sharded else [])]
    yield from OTHERS


def faults_of_text(text, truth):
    """The table has each guess with its mark, and the late rank's communicator, too; below it is the evidence."""
    rows = {words[1]: words[2] for words in map(str.split, text.splitlines()) if len(words) > 8 and words[1].startswith("0x")}
    faults = [f"text: {hash_of} is {rows.get(hash_of)}, the truth is {role}" for hash_of, role in truth.items() if rows.get(hash_of) != f"{role}?"]
    late = [line for line in text.splitlines() if line.startswith("  late ranks")]
    if not late or not any(f"{hash_of} ({role}?)" in late[0] for hash_of, role in truth.items()):
        faults.append(f"text: late ranks {late}")
    return faults + [f"text: no evidence for {role}" for role in set(truth.values()) if f"  {role}? is guessed: " not in text]


def run(arguments, options, counts):
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([arguments.trace_gen, "job", "--no-names", *options, "--out", directory], capture_output=True, check=True)
        words = [arguments.collwire, "report", directory, "--json", "-"]
        report = json.loads(subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout)
        text = subprocess.run([arguments.collwire, "report", directory, "--rows", "500"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              check=False).stdout if options == KNOWN else None
        truth = {row["hash"]: ROLES[row["role"]] for row in Truth(f"{directory}/truth.jsonl").comms.values()}
    faults = faults_of_text(text, truth) if text is not None else []
    for comm in report["communicators"]:
        role, guess = truth[comm["hash"]], comm["guessed_role"]
        counts[role, "none" if guess is None else "right" if guess == role else "wrong"] += 1
        if guess not in (role, None) or (guess is None and options == KNOWN):
            faults.append(f"{role} taken for {guess}: {comm['guess_reason']}")
        if comm["name"] is not None or comm["name_source"] != ("guessed" if guess else None) or not comm["guess_reason"]:
            faults.append(f"{role}: name {comm['name']}, name_source {comm['name_source']}, guess_reason {comm['guess_reason']}")
    return faults


def inspection_of(comm, rank, name):
    """Of one process with the communicator."""
    nothing = ("bus_id", "launched", "launched_by_function", "starts", "async_result", "aborted", "revoked", "finalized", "node", "local_rank", "device")
    own = {"hash": comm["hash"], "address": "0x1", "proxy": "0x2", "name": name, "rank": rank, "n_ranks": comm["n_ranks"], "n_nodes": 1, "local_ranks": 1,
           "shared": False, "connections": 0, "rings": [], "trees": [], **dict.fromkeys(nothing)}
    process = {"pid": 1, "start_ticks": 1, "scanned": False, "truncated": False, "libraries": [], "communicators": [own], "proxies": [], "n_threads": 1,
               "threads": [], **dict.fromkeys(("command", "slurm_job", "pod_uid", "problem", "last_error", "throttling"))}
    return {"schema": "collwire-inspect", "schema_version": 1, "tool_version": "0", "host": "other", "boot_id": None, "realtime_ns": 1, "between_ns": 1,
            "processes": [process], "ports": []}


def diagnose(arguments, paths, options):
    words = [arguments.collwire, "diagnose", *options, *paths]
    text, document = (subprocess.run([*words, *more], stdout=subprocess.PIPE, text=True, check=True).stdout for more in ([], ["--json"]))
    return text, json.loads(document)


def faults_of_stopped(arguments, roles, options):
    """What is wrong with the guesses of a job that stopped."""
    faults, expected = [], roles[0]
    with tempfile.TemporaryDirectory() as directory:
        stops = ["--iterations", "6", "--die-at", "7:9"]
        subprocess.run([arguments.trace_gen, "job", "--no-names", *options, *stops, "--out", directory], capture_output=True, check=True)
        truth = Truth(f"{directory}/truth.jsonl")
        role_of = {comm["hash"]: ROLES[comm["role"]] for comm in truth.comms.values()}
        guesses = {}
        for way, how in WAYS.items():
            text, document = diagnose(arguments, [directory], how)
            verdict = document["verdicts"][0]
            guesses[way] = verdict["communicator_guessed_role"]
            named = f"in {verdict['communicator']} ({guesses[way]}?): " if guesses[way] else f"in {verdict['communicator']}: "
            if verdict["communicator_name"] is not None or named not in text:
                faults.append(f"{way}: not {named}: {text}")
            also = ALSO_IN.findall(" ".join(verdict["evidence"]))
            if tuple(role for _, role in also) != roles[1:] or any(role_of[hash_of] != role for hash_of, role in also):
                faults.append(f"{way}: {also}, not {roles[1:]}")
            if guesses[way] not in (role_of[verdict["communicator"]], None):
                faults.append(f"{way}: {role_of[verdict['communicator']]} taken for {guesses[way]}")
        if guesses["model"] != expected or guesses["stream"] != expected:
            faults.append(f"{guesses}, not {expected}")
        # An inspection of the same job has the captures' guess, and nothing without them.
        comm = next(comm for comm in truth.comms.values() if comm["hash"] == verdict["communicator"])
        path = os.path.join(directory, "inspection.json")
        for name, paths, guess in ((None, [path, directory], expected), ("data0", [path, directory], None), (None, [path], None)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(inspection_of(comm, 0, name), file)
            text, document = diagnose(arguments, paths, WAYS["stream"] if len(paths) > 1 else [])
            inspected = document["communicators"][0]
            title = f"\n{comm['hash']} ({guess}?, {comm['n_ranks']} ranks)  " if guess else f"\n{name or comm['hash']} ({comm['n_ranks']} ranks)  "
            if inspected["guessed_role"] != guess or inspected["name"] != name or title not in text:
                faults.append(f"inspection with {len(paths) - 1} captures: {inspected['guessed_role']}: {text}")
        hung = next((row for row in truth.operations if row["end_ns"] is None and truth.shapes[row["shape"]]["what"] == "collective"), None)
        if hung is not None:
            rank = next(rank for rank, after in enumerate(hung["after_first_ns"]) if after is not None)
            line = line_of(truth.shapes[hung["shape"]], truth.comms[hung["comm"]], hung["seq"], rank)
            words = [arguments.collwire, "report", directory, "--find", line]
            text, found = (subprocess.run([*words, *more], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
                           for more in ([], ["--json", "-"]))
            for one in json.loads(found)["operations"]:
                hash_of, guess = one["communicator"], one["communicator_guessed_role"]
                if guess != role_of[hash_of] or f"\n  {guess}? {hash_of} (" not in text:
                    faults.append(f"--find: {role_of[hash_of]} is {guess}: {text}")
        else:
            faults.append("no collective hangs")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--trace-gen", required=True)
    arguments = parser.parse_args()
    counts, n, has_failed = collections.Counter(), 0, False
    for options in [*layouts(), KNOWN]:
        n += 1
        faults = run(arguments, options, counts)
        has_failed = has_failed or bool(faults)
        for fault in faults[:3]:
            print(f"{' '.join(options)}: {fault}")
    for roles, options in STOPPED.items():
        faults = faults_of_stopped(arguments, roles, options)
        has_failed = has_failed or bool(faults)
        for fault in faults[:3]:
            print(f"{' '.join(options)}: {fault}")
    print(f"{n} layouts, {len(STOPPED)} jobs that stopped")
    for role in ROLES.values():
        of_role = {outcome: counts[role, outcome] for outcome in ("right", "none", "wrong")}
        print(f"{role}: " + ", ".join(f"{n} {outcome} ({100 * n / max(1, sum(of_role.values())):.1f} %)" for outcome, n in of_role.items()))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
