#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire report A --against B` of generated jobs: of two that differ by their seed alone no difference is claimed; one thing that changes is the first
difference, with its moment where it changed on the way.

against_test.py --collwire FILE --trace-gen FILE [--only-full]"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from truth import Truth

SKIPPED = 77
S = 1_000_000_000
BASE = ["--nodes", "2", "--iterations", "24", "--buckets", "2", "--network-times"]
WIDE = ["--nodes", "4", "--tp", "8", "--iterations", "24", "--buckets", "2", "--network-times"]
PIPELINE = ["--nodes", "4", "--tp", "8", "--pp", "2", "--iterations", "12", "--network-times", "--local-launches"]
# One rank is certainly the last one, in all operations.
LATE = ["--nodes", "2", "--iterations", "24", "--buckets", "1", "--bucket-kib", "262144", "--network-times", "--late", "5:4"]
# name: options of both, options of A, the first difference's topic and code, words of its sentence, the verdict.
CASES = {
    "protocol": (BASE, ["--protocol", "LL128"], ("settings", "choice"), ["AllReduce", "protocol LL128, before SIMPLE"], None),
    "slower-protocol": (BASE, ["--protocol", "LL"], ("settings", "choice"), ["protocol LL, before SIMPLE"], "slower"),
    "parameter": (BASE, ["--parameter", "IbGidIndex:3"], ("settings", "parameter"), ["IbGidIndex: 3, before 1"], "different"),
    "size": (BASE, ["--bucket-kib", "16384"], ("work", "operation"), ["AllReduce", "in A only", "in B only"], None),
    "more": (PIPELINE, ["--microbatches", "6"], ("work", "calls"), ["calls"], None),
    "ranks": (BASE[2:], ["--nodes", "3"], ("ranks", "ranks"), ["24 ranks, 16 before"], None),
    "nic": (BASE, ["--move-nic", "1:3:4"], ("paths", "nic"), ["mlx5_4, before mlx5_3", "gpu-0001"], "different"),
    # Clocks are known to a millisecond here: calls within that do not show from when on the time is longer.
    "slow-link": (BASE, ["--slow-link", "1:3:1.8"], ("times", "time"), ["as long"], "slower"),
    "slow-link-late": (LATE, ["--slow-link", "1:3:3"], ("times", "transfer"), ["as long", "last rank's call"], "slower"),
    "slow-nic": (WIDE, ["--slow-link", "1:3:1.8"], ("times", "transfer"), ["mlx5_3", "unchanged in 7 other"], "slower"),
    "late-rank": (BASE, ["--late", "5:40"], ("times", "late_rank"), ["rank 5 of", "of the waiting"], "slower"),
    "missing": (BASE, ["--damage", "1:missing"], ("recording", "captures"), ["8 of 16, before 16 of 16"], "different"),
}
# A changes while it is recorded: after this iteration.
MOMENTS = {
    "slow-from": (BASE, ["--slow-link", "1:3:3:12-23"], "time", 12),
    "late-from": (BASE, ["--late", "5:40:13-23"], "late_rank", 13),
}
SEEDS = 12
FULL_SEEDS = 200
NULL_JOBS = {
    "ring": BASE,
    "bounds": ["--nodes", "2", "--iterations", "12"],
    "wide": WIDE,
    "mixed": ["--nodes", "4", "--tp", "4", "--ep", "8", "--sharded", "--iterations", "12", "--network-times"],
    "pipeline": PIPELINE,
    "skew": ["--nodes", "4", "--iterations", "16", "--skew", "constant:40", "--network-times"],
}


class Runs:
    def __init__(self, arguments, directory):
        self.arguments, self.directory, self.made = arguments, directory, 0

    def generate(self, options):
        self.made += 1
        path = os.path.join(self.directory, str(self.made))
        subprocess.run([self.arguments.trace_gen, "job", *options, "-o", path], check=True, stdout=subprocess.DEVNULL)
        return path

    def compare(self, a, b, *words, statuses=(0,)):
        text = subprocess.run([self.arguments.collwire, "report", a, "--against", b, *words], capture_output=True, text=True, check=False)
        done = subprocess.run([self.arguments.collwire, "report", a, "--against", b, "--json", "-", *words], capture_output=True, text=True, check=False)
        assert text.returncode == done.returncode and done.returncode in statuses, f"{done.returncode}: {done.stderr}"
        found = json.loads(done.stdout)
        # One answer: the first line of the text is the verdict of the JSON.
        words_of = found["verdict"]["sentence"].split()
        assert text.stdout.split()[6:6 + len(words_of)] == words_of, text.stdout
        return found


def check_case(arguments, name, base, options, wanted, words, verdict):
    with tempfile.TemporaryDirectory() as directory:
        runs = Runs(arguments, directory)
        # Two nodes are the default.
        found = runs.compare(runs.generate([*base, *options]), runs.generate([*base, "--seed", "2"]), statuses=(0, 1) if name == "missing" else (0,))
        assert found["differences"], f"{name}: nothing is different: {found['not_compared']}"
        first = found["differences"][0]
        assert (first["topic"], first["code"]) == wanted, f"{name}: {found['differences']}"
        for word in words:
            assert word in first["sentence"], f"{name}: {word!r} is not in: {first['sentence']}"
        if verdict is not None:
            assert found["verdict"]["code"] == verdict, f"{name}: {found['verdict']}"
        print(f"{name}: {len(found['differences'])} difference(s): {found['verdict']['sentence']}", flush=True)


def check_moment(arguments, name, base, options, code, iteration):
    with tempfile.TemporaryDirectory() as directory:
        runs = Runs(arguments, directory)
        a = runs.generate([*base, *options])
        found = runs.compare(a, runs.generate([*base, "--seed", "2"]))
        truth = Truth(os.path.join(a, "truth.jsonl"))
        at = min(truth.realtime_ns(0, row["first_ns"]) for row in truth.operations if row["iteration"] == iteration)
        step = 2 * S
        claims = [row for row in found["differences"] if row["code"] == code]
        assert claims, f"{name}: {found['differences']}"
        for row in claims:
            # A block has at most two operations here, so two iterations.
            assert row["since_realtime_ns"] and abs(row["since_realtime_ns"] - at) <= 2 * step, f"{name}: {row}, the truth is {at}"
        print(f"{name}: since {(claims[0]['since_realtime_ns'] - at) / S:+.3f} s of the change", flush=True)


def check_alike(arguments, name, options, seeds):
    """Claims about times among comparisons of equal jobs."""
    with tempfile.TemporaryDirectory() as directory:
        runs = Runs(arguments, directory)
        b = runs.generate([*options, "--seed", "1000000"])
        claims = []
        for seed in range(seeds):
            found = runs.compare(runs.generate([*options, "--seed", str(seed + 2), "--no-truth"]), b)
            assert all(row["matched_by"] == "layout" for row in found["communicators"]) and not found["unmatched_a"] and not found["unmatched_b"], name
            claims += [(seed, row) for row in found["differences"]]
        print(f"{name}: {seeds} pairs of equal jobs, {len(claims)} claim(s)", flush=True)
        assert not claims, f"{name}: {claims[:5]}"


def check_one_job(arguments):
    """The same captures twice."""
    with tempfile.TemporaryDirectory() as directory:
        runs = Runs(arguments, directory)
        path = runs.generate(WIDE)
        found = runs.compare(path, path)
        assert found["verdict"]["code"] == "alike" and not found["differences"], found["verdict"]
        assert all(row["a"] == row["b"] for row in found["communicators"]), found["communicators"]
        # Nothing in common.
        other = runs.generate(["--nodes", "2", "--tp", "4", "--iterations", "2"])
        for row in runs.compare(other, path, statuses=(0, 1))["communicators"]:
            assert row["matched_by"] != "layout", row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--trace-gen", required=True)
    parser.add_argument("--only-full", action="store_true")
    arguments = parser.parse_args()
    if arguments.only_full:
        if os.environ.get("COLLWIRE_FULL") != "1":
            return SKIPPED
        for name, options in NULL_JOBS.items():
            check_alike(arguments, name, options, FULL_SEEDS)
        return 0
    check_one_job(arguments)
    for name, options in NULL_JOBS.items():
        check_alike(arguments, name, options, SEEDS if name == "ring" else 2)
    for name, case in CASES.items():
        check_case(arguments, name, *case)
    for name, case in MOMENTS.items():
        check_moment(arguments, name, *case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
