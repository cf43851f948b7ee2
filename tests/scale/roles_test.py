#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The guessed roles of communicators without a name against the truth of generated jobs, over all layouts: right or none, never wrong.

roles_test.py --collwire FILE --trace-gen FILE"""

import argparse
import collections
import itertools
import json
import subprocess
import sys
import tempfile

from truth import Truth

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
    print(f"{n} layouts")
    for role in ROLES.values():
        of_role = {outcome: counts[role, outcome] for outcome in ("right", "none", "wrong")}
        print(f"{role}: " + ", ".join(f"{n} {outcome} ({100 * n / max(1, sum(of_role.values())):.1f} %)" for outcome, n in of_role.items()))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
