#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/test-parts goes on where it was ended: no test runs twice, and a failure of an earlier run stays one."""

import glob
import os
import select
import signal
import subprocess
import sys
import tempfile
import unittest

PARTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "tools", "test-parts")

# Each test appends its name to the file `ran`. `ends` ends ctest the first time.
TESTS = """
add_test(quick.one "/bin/sh" "-c" "echo quick.one >>ran")
add_test(quick.two "/bin/sh" "-c" "echo quick.two >>ran; exit 1")
add_test(alone "/bin/sh" "-c" "echo alone >>ran")
add_test(ends "/bin/sh" "-c" "echo ends >>ran; test -e again || { touch again; kill -KILL $PPID; }")
add_test(other "/bin/sh" "-c" "echo other >>ran")
set_tests_properties(quick.one quick.two alone ends PROPERTIES LABELS "some")
set_tests_properties(alone ends PROPERTIES RUN_SERIAL "ON")
"""


class TestParts(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        with open(os.path.join(self.directory.name, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            file.write(TESTS)

    def run_parts(self, label="some"):
        return subprocess.run([sys.executable, PARTS, "--jobs", "2", self.directory.name, label, self.directory.name],
                              capture_output=True, text=True, check=False)

    def ran(self):
        with open(os.path.join(self.directory.name, "ran"), encoding="utf-8") as file:
            return sorted(file.read().split())

    def test_goes_on_where_it_was_ended(self):
        ended = self.run_parts()
        self.assertEqual(ended.returncode, 1)
        self.assertIn("ctest was ended in part 3. Fix: tools/test --full --resume goes on there", ended.stderr)
        self.assertEqual(self.ran(), ["alone", "ends", "quick.one", "quick.two"])
        resumed = self.run_parts()
        self.assertEqual(resumed.returncode, 1) # quick.two
        self.assertIn("part 1 of 3 was run before: quick.one, quick.two\n", resumed.stdout)
        self.assertEqual(self.ran(), ["alone", "ends", "ends", "quick.one", "quick.two"])
        names = [os.path.basename(path) for path in glob.glob(os.path.join(self.directory.name, "some.*"))]
        self.assertEqual(sorted(names), ["some.000.xml", "some.001.xml", "some.002.xml"])

    def test_a_signal_ends_its_tests(self):
        began = os.path.join(self.directory.name, "began")
        os.mkfifo(began)
        with open(os.path.join(self.directory.name, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            file.write('add_test(waits "/bin/sh" "-c" "echo $$ >began; exec sleep 1000")\nset_tests_properties(waits PROPERTIES LABELS "some")\n')
        with subprocess.Popen([sys.executable, PARTS, self.directory.name, "some", self.directory.name], stdout=subprocess.DEVNULL) as parts:
            with open(began, encoding="utf-8") as file:
                pid = int(file.read())
            test = os.pidfd_open(pid)
            parts.send_signal(signal.SIGTERM)
            self.assertEqual(parts.wait(), 143)
        ended, _, _ = select.select([test], [], [], 10)
        os.close(test)
        self.assertTrue(ended, f"process {pid} of the test runs on")

    def test_no_test_of_the_label(self):
        done = self.run_parts("none")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no test of label none", done.stderr)


if __name__ == "__main__":
    unittest.main()
