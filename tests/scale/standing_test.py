#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire diagnose` on captures, read in three ways: by the model of the whole, as a stream, and as a stream from their end. The verdicts are equal: which
rank, of which process, which collective, send or receive it has not called, and how sure. Generated jobs that stop, with losses, and recordings of official NCCL.

standing_test.py --collwire FILE --trace-gen FILE [--only-full] [CAPTURES...]"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import diagnose_test

SKIPPED = 77
LONG = ["--iterations", "14", "--die-at", "23:9"] # some seconds before the tail
WAYS = {"model": ["--read", "whole", "--core", "model"], "stream": ["--read", "whole"], "tail": ["--read", "tail"]}
# Stages of a pipeline that stop in the middle of their sends and receives.
OF_SENDS = {f"{name}-{number}": ["--nodes", "4", "--pp", "2", "--seed", str(number), "--iterations", iterations,
                                 "--die-at", f"{stops_s + number * 0.22:.2f}:{4 + 5 * number}"]
            for number in range(5) for name, iterations, stops_s in (("sends", "6", 2.6), ("long-sends", "40", 40))}
# Signs of a network that fails, and errors of NCCL: before the wait, and in it. Of a loss on the path, which retransmits, and of one port.
SIGNS = {
    "port-errors": ["--nodes", "4", "--pp", "2", "--port-errors", "1:2:symbol_error:3-9"],
    "path-loss": ["--nodes", "4", "--port-errors", "2:1:packet_seq_err:3-9", "--port-errors", "3:1:out_of_sequence:4-9"],
    "carrier": ["--nodes", "4", "--port-errors", "1:1:carrier_down_count:6-9"],
    "error-first": ["--nodes", "4", "--nccl-error", "6.2:11"],
    "errors-follow": ["--nodes", "4", "--pp", "2", "--skew", "constant:2000", "--nccl-error", "12:11", "--nccl-error", "13:3"],
    "error-and-port": ["--nodes", "4", "--tp", "8", "--nccl-error", "6.2:11", "--port-errors", "1:2:symbol_error:3-9"],
}
LATE_SIGNS = {"long-port-errors": ["--nodes", "4", "--pp", "2", "--port-errors", "1:2:symbol_error:21-26"],
              "long-error-first": ["--nodes", "4", "--skew", "constant:2000", "--nccl-error", "22.4:11"]}
FOUND = {"port-errors": "port_errors", "path-loss": "suspected_path_loss", "carrier": "carrier_down", "error-first": "NCCL reported an error first",
         "error-and-port": "NCCL reported an error first"}
NOT_CALLED = re.compile(r"rank (\d+) \([^)]*\) has not (called|launched) ([^:]+): ")
NUMBER = re.compile(r" \(seq \d+\)") # of a communicator inside a node a tail does not have it


def read(arguments, paths, options):
    done = subprocess.run([arguments.collwire, "diagnose", "--json", *options, *paths], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), f"{paths} {options}: status {done.returncode}: {done.stderr}"
    document = json.loads(done.stdout)
    fields = ("code", "severity", "confidence", "communicator", "communicator_name", "rank", "host", "pid")
    called = [sorted(NOT_CALLED.findall(" ".join([verdict["text"], *verdict["evidence"]]))) for verdict in document["verdicts"]]
    network = [[line for line in verdict["evidence"] if line.startswith("network: ")] for verdict in document["verdicts"]]
    called = [[*calls, *lines] for calls, lines in zip(called, network)]
    rows = (tuple([*(verdict[field] for field in fields), *calls]) for verdict, calls in zip(document["verdicts"], called))
    return document, sorted(rows, key=str)


def compare(arguments, name, paths, is_generated):
    """Differences, in words. Generated jobs need no model."""
    faults, expected, ways = [], None, []
    for way, options in WAYS.items():
        document, verdicts = read(arguments, paths, options)
        if expected is None:
            expected = verdicts
        if (verdicts != expected if document["read"] != "tail" else NUMBER.sub("", str(verdicts)) != NUMBER.sub("", str(expected))):
            faults.append(f"{name}: {way}: {verdicts}, the model of the whole: {expected}")
        if way == "stream":
            ways.append("as a stream" if document["needed_model"] is None else f"by the model: {document['needed_model']}")
        if is_generated and way != "model" and document["needed_model"] is not None:
            faults.append(f"{name}: {way}: {document['needed_model']}")
        if FOUND.get(name.removeprefix("long-"), "") not in str(document["verdicts"]):
            faults.append(f"{name}: {way}: not a word of it: {document['verdicts']}")
        if way == "tail":
            ways.append(document["read"])
            if name.startswith("long-") and document["read"] != "tail":
                faults.append(f"{name}: all was read")
    print(f"{name}: {len(expected)} verdict(s), {', '.join(ways)}{'; different' if faults else ''}", flush=True)
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--trace-gen", required=True)
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    parser.add_argument("captures", nargs="*")
    arguments = parser.parse_args()
    is_full = os.environ.get("COLLWIRE_FULL") == "1"
    if arguments.only_full and not is_full:
        print("skipped: runs with COLLWIRE_FULL=1")
        return SKIPPED
    jobs = {name: [*options, *diagnose_test.STOPS] for name, (options, _) in diagnose_test.CASES.items()}
    jobs |= {f"long-{name}": [*options, *LONG] for name, (options, _) in diagnose_test.CASES.items() if name != "nodes-32"}
    jobs |= OF_SENDS
    jobs |= {name: [*options, *diagnose_test.STOPS] for name, options in SIGNS.items()}
    jobs |= {name: [*options, *LONG] for name, options in LATE_SIGNS.items()}
    jobs |= {"quiet": diagnose_test.QUIET["whole"], "slow": diagnose_test.QUIET["slow"]}
    if arguments.only_full:
        jobs = {f"random {number}": sum(diagnose_test.random_job(number), []) for number in range(diagnose_test.RANDOM_JOBS)}
    faults = []
    for name, options in jobs.items():
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([arguments.trace_gen, "job", *options, "-o", directory], check=True, stdout=subprocess.DEVNULL)
            faults += compare(arguments, name, [directory], True)
    for path in arguments.captures:
        faults += compare(arguments, path, [path], False)
    for fault in faults:
        print(fault, flush=True)
    assert not faults or not is_full, f"{len(faults)} difference(s), above"
    return 0


if __name__ == "__main__":
    sys.exit(main())
