#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Captures that earlier versions of the recorder wrote: today's binary prints the figures that the report of that version had (expected.json). A capture
of a later minor version is read, too, and gives the same. README.md says where they are from.

old_captures_test.py [--collwire FILE]"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

import capture_file

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LATER_MINOR = 99
arguments = argparse.Namespace(collwire=os.path.join(ROOT, "build", "dev", "collwire"))


def report_of(directory, topology=None):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        words = [arguments.collwire, "report", directory, "--json", out.name, *(["--topology", topology] if topology else [])]
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, (words, done.returncode, done.stderr)
        return json.load(out)


def figures_of(report):
    """What every version of the report has."""
    return {
        "tx_wire_bytes": {tier: figures["tx_wire_bytes"] for tier, figures in report["tiers"].items()},
        "qps": report["total"]["qps"],
        "payload_exact": report["identity"]["exact"],
        "communicators": sorted([comm["hash"], comm["n_ranks"], comm["ranks_seen"]] for comm in report["communicators"]),
        "collectives": sorted([row["op"], row["algorithm"] or "", row["protocol"] or "", row["size_bytes"], row["tx_payload_bytes"] or 0]
                              for row in report["collectives"]),
        "p2p": len(report["p2p"]),
        "processes": len(report["processes"]),
        "errors": len(report["errors"]),
    }


class OldCaptures(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        with open(os.path.join(HERE, "expected.json"), encoding="utf-8") as file:
            self.expected = json.load(file)
        self.assertGreaterEqual(len(self.expected), 3)

    def test_figures_are_those_of_the_version_that_wrote_them(self):
        for name, expected in self.expected.items():
            directory = os.path.join(HERE, name)
            captures = glob.glob(f"{directory}/*.cwc")
            major, minor = name.split("-")[0].split(".")
            self.assertEqual({capture_file.schema_of(path) for path in captures}, {(int(major), int(minor))})
            topology = f"{directory}/topology.json"
            self.assertEqual(figures_of(report_of(directory, topology if os.path.exists(topology) else None)), expected, name)

    def test_a_later_minor_version_is_read(self):
        for name, expected in self.expected.items():
            with tempfile.TemporaryDirectory() as directory:
                for path in glob.glob(f"{HERE}/{name}/*.cwc"):
                    with open(path, "rb") as file, open(os.path.join(directory, os.path.basename(path)), "wb") as later:
                        later.write(capture_file.with_minor(file.read(), LATER_MINOR))
                topology = f"{HERE}/{name}/topology.json"
                self.assertEqual(figures_of(report_of(directory, topology if os.path.exists(topology) else None)), expected, name)

    def test_recordings_of_a_gpu_are_read(self):
        for path in glob.glob(f"{ROOT}/tests/gpu/recordings/*.cwc"):
            self.assertEqual(capture_file.schema_of(path), (1, 6))
            self.assertGreater(len(report_of(path)["communicators"]), 0, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", default=arguments.collwire)
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
