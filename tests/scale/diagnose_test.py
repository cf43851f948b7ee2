#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire diagnose` on captures of generated jobs in which one rank stops, against their truth: the process is named, in seconds, whatever is missing
beside its own capture; without its own capture no process is named; of a job in which no rank stops nothing is said.

diagnose_test.py --collwire FILE --trace-gen FILE [--only-full]"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile

from truth import Truth

SKIPPED = 77
MOST_S, MOST_OF_FULL_S = 5, 30 # of CPU time: the machine may be busy
RANDOM_JOBS = 200
STOPS = ["--iterations", "6", "--die-at", "7:9"] # rank 9 is on node 1
UNSEEN = ("rank_without_capture", "transfer_stalled")
# Options, and whether captures show which process stopped.
CASES = {
    "data": (["--nodes", "4"], True),
    "tensor": (["--nodes", "4", "--tp", "8"], True),
    "pipeline": (["--nodes", "4", "--tp", "8", "--pp", "2"], True),
    "experts": (["--nodes", "4", "--ep", "16"], True),
    "everything": (["--nodes", "8", "--tp", "4", "--pp", "2", "--ep", "8", "--sharded"], True),
    "skew": (["--nodes", "4", "--skew", "constant:2000"], True),
    "drift": (["--nodes", "4", "--skew", "drift:50"], True),
    "late-before": (["--nodes", "4", "--late", "3:900"], True),
    **{f"other-{damage}": (["--nodes", "4", "--damage", f"2:{damage}"], True)
       for damage in ("missing", "truncated", "doubled", "corrupt", "newer-major", "newer-minor")},
    **{f"own-{damage}": (["--nodes", "4", "--damage", f"1:{damage}"], False) for damage in ("missing", "truncated", "corrupt", "newer-major")},
    "nodes-32": (["--nodes", "32", "--tp", "8"], True),
}
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
# Clocks that are far apart, or are set before or after the rank stopped: each part of the captures has the same verdict.
APART = {
    "hour-ahead": ["--nodes", "4", "--clock", f"1:{HOUR_MS}"],
    "days-behind": ["--nodes", "4", "--clock", f"2:{-2 * DAY_MS}"],
    "own-days-behind": ["--nodes", "4", "--clock", f"1:{-2 * DAY_MS}"],
    "step-before": ["--nodes", "4", "--clock", "1:-90000:5"],
    "step-after": ["--nodes", "4", "--clock", "1:-90000:10"],
    "step-ahead": ["--nodes", "4", "--clock", f"1:{HOUR_MS}:5"],
    "step-of-another": ["--nodes", "4", "--clock", "0:-90000:5"],
    "hours": ["--nodes", "16", "--tp", "8", "--skew", f"constant:{12 * HOUR_MS}"],
}
# The model, which --last needs here, does not compare clocks of hosts that share transfers alone.
APART_PIPELINE = ["--nodes", "16", "--tp", "8", "--pp", "2", "--skew", f"constant:{12 * HOUR_MS}"]
PARTS = (["--read", "whole"], ["--read", "tail"], ["--last", "1m"])
QUIET = {"whole": ["--nodes", "4", "--iterations", "6"], "slow": ["--nodes", "4", "--iterations", "6", "--late", "3:1500", "--slow-link", "1:2:50"]}
FULL_CASES = {"nodes-1024": (["--nodes", "1024", "--tp", "8", "--no-ring-order"], True)}


def cpu_time_of_children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def diagnose(arguments, options, part=()):
    """(truth, verdicts of severity failure, seconds of CPU time)"""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([arguments.trace_gen, "job", *options, "-o", directory], check=True, stdout=subprocess.DEVNULL)
        begin_s = cpu_time_of_children_s()
        done = subprocess.run([arguments.collwire, "diagnose", "--json", *part, directory], capture_output=True, text=True, check=False)
        took_s = cpu_time_of_children_s() - begin_s
        assert done.returncode in (0, 1), f"status {done.returncode}: {done.stderr}"
        verdicts = [verdict for verdict in json.loads(done.stdout)["verdicts"] if verdict["severity"] == "failure"]
        return Truth(os.path.join(directory, "truth.jsonl")), verdicts, took_s


def random_job(number):
    """Options of a job, with the rank that stops and when."""
    choose = random.Random(number)
    nodes = choose.choice((4, 8)) # stages of a pipeline have two or more
    options = ["--nodes", str(nodes), "--seed", str(number)]
    for chance, *words in ((0.5, "--tp", choose.choice(("4", "8"))), (0.3, "--pp", "2"), (0.3, "--sharded"), (0.3, "--network-times"),
                           (0.3, "--local-launches"), (0.2, "--no-small"), (0.2, "--skew", choose.choice(("constant:3000", "drift:50")))):
        if choose.random() < chance:
            options += words
    return options, ["--iterations", "6", "--die-at", f"{choose.uniform(2.5, 9):.3f}:{choose.randrange(nodes * 8)}"]


def check(arguments, name, options, is_shown, stops=None, part=()):
    stops = stops or STOPS
    truth, verdicts, took_s = diagnose(arguments, [*options, *stops], part)
    stopped = int(stops[-1].split(":")[1])
    rank = truth.ranks[stopped]
    process = (truth.nodes[rank["node"]]["host"], rank["pid"])
    said = [(verdict["code"], verdict["host"], verdict["pid"]) for verdict in verdicts]
    if is_shown:
        assert said == [("rank_not_called", *process)], f"{name}: {said}, the truth is {process}"
    else:
        assert said and all(code in UNSEEN and host in (None, process[0]) for code, host, _ in said), f"{name}: {said}, the truth is {process}"
    assert took_s < (MOST_OF_FULL_S if arguments.only_full else MOST_S), f"{name}: {took_s:.1f} s"
    print(f"{name}: {said[0][0]}, {took_s:.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--trace-gen", required=True)
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    arguments = parser.parse_args()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skipped: runs with COLLWIRE_FULL=1")
        return SKIPPED
    for name, (options, is_shown) in (FULL_CASES if arguments.only_full else CASES).items():
        check(arguments, name, options, is_shown)
    for name, options in ({} if arguments.only_full else APART).items():
        for part in PARTS:
            check(arguments, f"{name} {' '.join(part)}", options, True, part=part)
    for part in () if arguments.only_full else PARTS[:2]:
        check(arguments, f"hours, pipeline {' '.join(part)}", APART_PIPELINE, True, part=part)
    for number in range(RANDOM_JOBS if arguments.only_full else 0):
        options, stops = random_job(number)
        check(arguments, f"random {number}: {' '.join((*options, *stops))}", options, True, stops)
    for name, options in QUIET.items():
        _, verdicts, _ = diagnose(arguments, options)
        assert not verdicts, f"{name}: {verdicts}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
