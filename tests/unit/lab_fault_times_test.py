#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""When a fault starts and ends: a fault that starts late has its full length; one that waits for an event happens at that event."""

import os
import sys
import time
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

from lab_lib.fabric import Fabric
from lab_lib.faults import Fault
from lab_lib.report import LabError
from lab_lib.run import Run


ROUNDING_S = 1e-6


def planned_after(text, seconds_since_zero):
    """When the fault's end is due, if its beginning is done so late, and when that was at the latest: the scheduler may hold this process."""
    setup = types.SimpleNamespace(nodes=0, nics=1, mtu=1500, faults=[], out="/nonexistent")
    run = Run(setup)
    run._zero = time.monotonic() - seconds_since_zero
    run._acted({}, Fault(text, Fabric(3, 1, 1500)).begin())
    return [action.at_s for action in run._actions if not action.begins], time.monotonic() - run._zero


class FaultTimes(unittest.TestCase):
    def test_loss_counts_from_when_it_is_in_place(self):
        (end,), latest = planned_after("loss:2:20@T+49+3", 55)
        self.assertTrue(55 + 3 - ROUNDING_S <= end <= latest + 3 + ROUNDING_S, (end, latest))

    def test_what_the_host_does_counts_from_its_time(self):
        self.assertEqual(planned_after("port:0@T+75+3", 75.2)[0], [78])
        self.assertEqual(planned_after("silent:leaf0-spine0@T+35+4", 35.1)[0], [39])

    def test_before_the_jobs(self):
        self.assertEqual(planned_after("loss:2:20@T+0", 0)[0], [])

    def test_order(self):
        run = Run(types.SimpleNamespace(nodes=0, nics=1, mtu=1500, faults=[], out="/nonexistent"))
        for text in ("loss:2:20@T+9+3", "port:0@T+5+3", "silent:leaf0-spine0@T+7+4"):
            run._plan(Fault(text, Fabric(3, 1, 1500)).begin())
        self.assertEqual([action.at_s for action in run._actions], [5, 7, 9])


CUT, LOSS = "silent:leaf0-spine0@cut..mend", "loss:2:20@lossy+3"


class Nodes(list):
    """Nodes that only note what they are sent."""

    def __init__(self, count):
        super().__init__(types.SimpleNamespace(name=f"node{number}", number=number, received=[], state="done") for number in range(count))
        for node in self:
            node.agent = types.SimpleNamespace(send=node.received.append)


class Events(unittest.TestCase):
    def setUp(self):
        self.run_ = Run(types.SimpleNamespace(nodes=0, nics=1, mtu=1500, faults=[], out="/nonexistent", limit_s=10, boot_limit_s=10))
        self.run_._zero = time.monotonic()
        self.run_._nodes = Nodes(3)
        self.cuts = []
        fabric = Fabric(3, 1, 1500)
        fabric.cut = lambda link, down: self.cuts.append((link.name, down))
        self.run_._fabric = fabric

    def plan(self, *texts):
        for text in texts:
            self.run_._plan(Fault(text, self.run_._fabric).begin())

    def hear(self, *lines, node=0):
        for line in lines:
            self.run_._heard(self.run_._nodes[node], line)

    def test_fault_starts_and_ends_at_its_events(self):
        self.plan(CUT)
        self.hear("EVENT other", "EVENT mend")
        self.assertEqual(self.cuts, [])
        self.hear("EVENT cut")
        self.assertEqual(self.cuts, [("leaf0-spine0", True)])
        self.hear("EVENT mend")
        self.assertEqual(self.cuts[1:], [("leaf0-spine0", False)])
        self.assertEqual([(record["fault"], record["event"]) for record in self.run_._fault_log], [(CUT, "start"), (CUT, "end")])
        self.assertEqual([event["event"] for event in self.run_._events], ["other", "mend", "cut", "mend"])
        self.run_._jobs()

    def test_loss_at_an_event_has_its_full_length_from_when_it_is_in_place(self):
        self.plan(LOSS)
        self.hear("EVENT lossy")
        self.assertEqual((self.run_._nodes[2].received, self.run_._actions), (["LOSS eth0 20"], []))
        self.run_._zero -= 5
        before = time.monotonic() - self.run_._zero
        self.hear("LOSS-SET", node=2)
        after = time.monotonic() - self.run_._zero
        self.assertTrue(before + 3 - ROUNDING_S <= self.run_._actions[0].at_s <= after + 3 + ROUNDING_S, (before, self.run_._actions, after))

    def test_effect_of_a_loss_may_be_announced_before_it_is_in_place(self):
        self.plan("loss:2:20@lossy..seen")
        self.hear("EVENT lossy", "EVENT seen")
        self.hear("LOSS-SET", "LOSS-SET", node=2)
        self.assertEqual(self.run_._nodes[2].received, ["LOSS eth0 20", "LOSS eth0 0"])
        self.run_._jobs()

    def test_event_that_no_job_announced_is_an_error(self):
        self.plan(CUT)
        with self.assertRaisesRegex(LabError, "never happened: no job announced the event 'cut'.* Fix: "):
            self.run_._jobs()
        self.hear("EVENT cut")
        with self.assertRaisesRegex(LabError, "never ended: no job announced the event 'mend'"):
            self.run_._jobs()

    def test_forms(self):
        for text in ("port:0@cut+3", "port:0@T+1..mend", "silent:tap2@cut", "loss:1:5@a-b..c"):
            Fault(text, self.run_._fabric)
        for text in ("port:0@Cut", "port:0@cut..", "port:0@cut..T+3", "port:0@", "port:0@T+1+x"):
            with self.assertRaises(LabError, msg=text):
                Fault(text, self.run_._fabric)


if __name__ == "__main__":
    unittest.main()
