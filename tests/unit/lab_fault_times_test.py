#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A fault that begins late is as long as was asked for."""

import os
import sys
import time
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

from lab_lib.fabric import Fabric
from lab_lib.faults import Fault
from lab_lib.run import Run


def planned_after(text, seconds_since_zero):
    """When the fault's end is due, if its beginning is done so late."""
    setup = types.SimpleNamespace(nodes=0, nics=1, mtu=1500, faults=[], out="/nonexistent")
    run = Run(setup)
    run._zero = time.monotonic() - seconds_since_zero
    run._acted({}, Fault(text, Fabric(3, 1, 1500)).begin())
    return [action.at_s for action in run._actions if not action.begins]


class FaultTimes(unittest.TestCase):
    def test_loss_counts_from_when_it_is_in_place(self):
        end, = planned_after("loss:2:20@T+49+3", 55)
        self.assertAlmostEqual(end, 58, delta=0.5)

    def test_what_the_host_does_counts_from_its_time(self):
        self.assertEqual(planned_after("port:0@T+75+3", 75.2), [78])
        self.assertEqual(planned_after("silent:leaf0-spine0@T+35+4", 35.1), [39])

    def test_before_the_jobs(self):
        self.assertEqual(planned_after("loss:2:20@T+0", 0), [])

    def test_order(self):
        run = Run(types.SimpleNamespace(nodes=0, nics=1, mtu=1500, faults=[], out="/nonexistent"))
        for text in ("loss:2:20@T+9+3", "port:0@T+5+3", "silent:leaf0-spine0@T+7+4"):
            run._plan(Fault(text, Fabric(3, 1, 1500)).begin())
        self.assertEqual([action.at_s for action in run._actions], [5, 7, 9])


if __name__ == "__main__":
    unittest.main()
