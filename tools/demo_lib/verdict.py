# SPDX-License-Identifier: Apache-2.0
"""Checks the report of a demo against the log of the CUDA test double, prints the result below the report, and in the lab prints the tiers next
to the switch counters."""

import glob
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "nccl"))

import identity_truth  # noqa: E402  (the path has to be set first)

TIERS = ("leaf", "spine")


def compare(report, logs, jobs):
    """Compares the job's communicators with what the double put into NCCL's buffers. `logs`: of the double, `jobs`: of its job program, one
    file per rank. False: they differ."""
    report = identity_truth.only_of(report, {identity_truth.lines_of(job)[0]["pid"] for job in jobs})
    truth = identity_truth.Truth([identity_truth.lines_of(log) for log in logs])
    figures, different = identity_truth.compare_bytes(report, truth)
    print(f"\nLog of the CUDA test double: {sum(truth.sent.values()):,} bytes sent. {len(different)} of {figures} figures (bytes per operation, rank, peer "
          f"and channel) differ from collwire's.")
    for line in different[:10]:
        print(f"  {line}")
    return figures > 0 and not different


def print_tiers_of_communicators(report):
    print("\nPayload of each communicator, by the highest tier crossed")
    for comm in report["communicators"]:
        hosts = ",".join(sorted({rank["host"] for rank in comm["ranks"] if not rank["missing"]}))
        tiers = "  ".join(f"{tier} {carried['tx_payload_bytes']:>10,} B" for tier, carried in sorted(comm["tiers"].items()))
        print(f"  {comm['id']:>2} {comm['name'] or '':<6} {hosts:<24} {tiers or 'nothing'}")


def lab_verdict(out):
    """Checks a run of the lab in `out`, reported to out/report.json with --detail."""
    with open(f"{out}/report.json", encoding="utf-8") as file:
        report = json.load(file)
    with open(f"{out}/fabric/links.json", encoding="utf-8") as file:
        links = json.load(file)
    doubles, jobs = (sorted(glob.glob(f"{out}/node*/training/{name}.*")) for name in ("double", "job"))
    print_tiers_of_communicators(report)
    wire_bytes = {tier: report["tiers"].get(tier, {}).get("tx_wire_bytes") or 0 for tier in TIERS}
    uplink_bytes = sum(link["a_to_b_bytes"] for link in links if link["name"].startswith("leaf"))
    print()
    for tier in TIERS:
        print(f"{tier} tier:".ljust(13) + f"{wire_bytes[tier]:,} bytes on the wire")
    print(f"switch counters, leaves to spine: {uplink_bytes:,} bytes (with ARP and TCP)")
    is_same = compare(report, doubles, jobs)
    if not all(wire_bytes.values()):
        print("the report lacks bytes on the leaf or the spine tier")
    return is_same and all(wire_bytes.values())


if __name__ == "__main__":
    sys.exit(0 if lab_verdict(sys.argv[1]) else 1)
