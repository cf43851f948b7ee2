# SPDX-License-Identifier: Apache-2.0
"""One run of the lab, inside the sandbox: boot, barrier, jobs with faults, rest, truth."""

import bisect
import json
import os
import selectors
import signal
import time

from . import capture, sandbox
from .fabric import Fabric
from .faults import Fault
from .node import Node
from .report import LabError, progress

_SETTLE_S = 20


class Run:
    """setup: see cli.Setup. go() returns the exit status; every result is then under setup.out."""

    def __init__(self, setup):
        self._setup = setup
        self._start = time.monotonic()
        self._zero = None         # T, monotonic
        self._zero_unix_ns = None
        self._fabric = Fabric(setup.nodes, setup.nics, setup.mtu)
        self._faults = [Fault(text, self._fabric) for text in setup.faults]
        self._actions = []        # those with a time, in its order
        self._awaited = []        # those that wait for an event of a job
        self._events = []         # as announced
        for fault in self._faults:
            self._plan(fault.begin())
        self._fault_log = []
        self._awaited_losses = []  # (record of the fault, its action), in the order of the commands
        self._nodes = [Node(number, setup) for number in range(setup.nodes)]
        self._built = False       # the fabric stands and can be asked for its counters
        self._captures = []
        self._selector = selectors.DefaultSelector()
        self._directory = os.path.join(setup.out, "fabric")

    def go(self):
        error = None
        captured = None
        try:
            self._boot()
            self._barrier()
            self._jobs()
            self._quieten()
            captured = self._truth()
        except LabError as problem:
            error = str(problem)
        except sandbox.Interrupted:
            error = "interrupted"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if captured is None and self._built:
            self._write("fabric/links.json", self._fabric.counters())
        for node in self._nodes:
            node.stop()
            if node.rc is None:
                node.rc = node.record_status()
        if error is None:
            error = self._verdict()
        self._record(error, captured)
        for node in self._nodes:
            progress(f"{node.name}: boot {_seconds(node.boot_s)}, rc {'none' if node.rc is None else node.rc}")
        if error:
            progress(f"error: {error}")
            return 1
        progress(f"done: every job returned 0; results in {self._setup.out}")
        return 0

    # Boot and barrier

    def _boot(self):
        os.makedirs(self._directory)
        self._write("topology.json", self._fabric.topology())
        self._fabric.build()
        self._built = True
        if self._setup.pcap:
            for link in self._fabric.links:
                self._captures.append(capture.Capture(link, self._directory, sandbox.die_with_parent))
        progress(f"booting {self._setup.nodes} node(s), kernel {self._setup.kernel.release} ({self._setup.kernel.version})")
        for node in self._nodes:
            node.boot(sandbox.die_with_parent)
            self._selector.register(node.agent.ours, selectors.EVENT_READ, (node, node.agent))
            self._selector.register(node.monitor.ours, selectors.EVENT_READ, (node, node.monitor))
        self._until(lambda: all(node.state == "up" for node in self._nodes), self._setup.boot_limit_s, "boot")

    def _barrier(self):
        for node in self._nodes:
            node.agent.send(f"TIME {time.time():.6f}")
            node.agent.send("PING")
        self._until(lambda: all(node.state == "reached" for node in self._nodes), self._setup.boot_limit_s, "reach its peers")
        # Faults of T+0 are in place before the first job runs.
        while self._actions and self._actions[0].at_s == 0:
            self._act(self._actions.pop(0))
        self._until(lambda: not self._awaited_losses, self._setup.boot_limit_s, "set its loss")
        self._zero, self._zero_unix_ns = time.monotonic(), time.time_ns()
        for node in self._nodes:
            node.state = "running"
            node.agent.send("GO")
        progress("all nodes are up and reach each other: the jobs start")

    def _jobs(self):
        self._until(lambda: all(node.state == "done" for node in self._nodes), None, "finish its job")
        ended = f"all jobs had ended at T+{time.monotonic() - self._zero:.1f}"
        missed = [action.fault.text for action in self._actions if action.begins]
        if missed:
            raise LabError(f"--fault {missed[0]} never happened: {ended}. Fix: an earlier time or a longer job")
        if self._awaited:
            action = self._awaited[0]
            raise LabError(f"--fault {action.fault.text} never {'happened' if action.begins else 'ended'}: no job announced the event "
                           f"'{action.event}', and {ended}. Fix: echo EVENT {action.event} > \"$LAB_CHANNEL\" in a job")
        self._until(lambda: not self._awaited_losses, self._setup.boot_limit_s, "set its loss")

    # Waiting

    def _until(self, reached, seconds, what):
        """Serves nodes and due faults until reached(). Raises LabError when a node fails or time is up."""
        end = self._start + self._setup.limit_s
        own = time.monotonic() + seconds if seconds is not None else end
        while not reached():
            now = time.monotonic()
            if now >= end or now >= own:
                limit = "--limit" if now >= end else "--boot-limit"
                late = [node for node in self._nodes if not self._is_past(node, what)] or self._nodes
                raise LabError(f"{', '.join(node.name for node in late)} did not {what} in time ({now - self._start:.0f} s). "
                               f"Fix: see the console below, or raise {limit}\n{late[0].console_tail()}")
            due = self._start + self._setup.limit_s
            if self._zero is not None and self._actions:
                due = min(due, self._zero + self._actions[0].at_s)
                if now >= due:
                    self._act(self._actions.pop(0))
                    continue
            for key, _ in self._selector.select(max(0.0, min(due, own, end) - now)):
                self._serve(*key.data)

    @staticmethod
    def _is_past(node, what):
        order = ["booting", "up", "reached", "running", "done", "quiet"]
        wanted = {"boot": "up", "reach its peers": "reached", "finish its job": "done", "fall silent": "quiet"}
        return what in wanted and order.index(node.state) >= order.index(wanted[what])

    def _serve(self, node, channel):
        lines = channel.lines()
        if lines is None:
            self._selector.unregister(channel.ours)
            raise LabError(f"{node.name} died ({'while booting' if node.state == 'booting' else 'state: ' + node.state}). "
                           f"Fix: see its console, the end of which is\n{node.console_tail()}")
        for line in lines:
            if channel is node.agent:
                self._heard(node, line)
            elif '"error"' in line:
                raise LabError(f"{node.name}: QEMU's monitor refused a command: {line}")

    def _heard(self, node, line):
        word, _, rest = line.partition(" ")
        if word == "UP":
            node.state, node.boot_s = "up", time.monotonic() - self._start
            node.boot_s -= self._setup.prepared_s
            progress(f"{node.name} is up")
        elif word == "REACHED":
            node.state = "reached"
        elif word == "DONE":
            node.state, node.rc = "done", int(rest)
            progress(f"{node.name}: job ended with {rest}")
        elif word == "EVENT":
            self._announced(node, rest)
        elif word == "LOSS-SET":
            record, action = next(awaited for awaited in self._awaited_losses if self._nodes[awaited[1].fault.node] is node)
            self._awaited_losses.remove((record, action))
            self._acted(record, action)
        elif word == "QUIET-SET":
            node.state = "quiet"
        elif word == "FAIL":
            raise LabError(f"{node.name}: {rest}\n{node.console_tail()}")

    # Faults

    def _since_zero(self):
        return 0.0 if self._zero is None else round(time.monotonic() - self._zero, 6)

    def _plan(self, action):
        if action is None:
            return
        if action.at_s is None:
            self._awaited.append(action)
        else:
            bisect.insort(self._actions, action, key=lambda planned: planned.at_s)

    def _announced(self, node, name):
        """An event of a job: what waits for it is done. An event that nothing waits for is in lab.json all the same."""
        self._events.append({"event": name, "node": node.number, "at_s": self._since_zero(), "unix_ns": time.time_ns()})
        progress(f"{node.name}: event '{name}'")
        due = [action for action in self._awaited if action.event == name]
        self._awaited = [action for action in self._awaited if action.event != name]
        for action in due:
            action.at_s = self._since_zero()
            self._act(action)

    def _acted(self, record, action):
        record["done_s"] = self._since_zero()
        if action.begins and action.fault.end_event is None:
            # A busy node may take seconds to start a loss; the fault has its full length all the same.
            self._plan(action.fault.end(max(action.at_s, record["done_s"]) if action.fault.kind == "loss" else action.at_s))

    def _act(self, action):
        record = {"fault": action.fault.text, "event": "start" if action.begins else "end", "asked_s": action.at_s,
                  "at_s": self._since_zero(), "unix_ns": time.time_ns()}
        record["what"] = action.fault.apply(self._fabric, self._nodes, action.begins)
        if action.begins and action.fault.end_event:
            # The effect of a loss may be seen, and announced, before its node says that the loss is in place.
            self._plan(action.fault.end(None))
        self._fault_log.append(record)
        if action.fault.kind == "loss":
            self._awaited_losses.append((record, action))
        else:
            self._acted(record, action)
        progress(f"fault at T+{record['at_s']:.2f}: {record['what']}")

    # The end

    def _quieten(self):
        for node in self._nodes:
            node.agent.send("QUIET")
        self._until(lambda: all(node.state == "quiet" for node in self._nodes), self._setup.boot_limit_s, "fall silent")

    def _at_rest(self, rows):
        """Every frame that a capture saw has been counted, and the other way round."""
        if self._captures:
            return all(one.written() == row["a_to_b_pkts"] + row["b_to_a_pkts"] for one, row in zip(self._captures, rows))
        return True

    def _truth(self):
        """Reads counters and captures at rest and writes them. Returns what the captures say of themselves, [] without captures."""
        end = time.monotonic() + _SETTLE_S
        before, rows = None, self._fabric.counters()
        while (before != rows or not self._at_rest(rows)) and time.monotonic() < end:
            time.sleep(0.2)
            before, rows = rows, self._fabric.counters()
        statistics = [dict(one.stop(), link=one.link.name) for one in self._captures]
        self._write("fabric/links.json", rows)
        for one in statistics:
            if one["dropped"] or one["captured"] != one["received"]:
                raise LabError(f"the packet capture of {one['link']} dropped {max(one['dropped'], one['received'] - one['captured'])} packets. "
                               "Fix: fewer nodes or less traffic at once; the machine was too slow")
        if self._captures:
            wrong = capture.compare(self._fabric, rows, self._directory)
            if wrong:
                raise LabError(f"counters and captures differ: {'; '.join(wrong)}. Fix: see dropped_pkts in fabric/links.json")
        return statistics

    def _verdict(self):
        bad = [f"{node.name} returned {node.rc}" for node in self._nodes if node.rc != 0]
        return f"{', '.join(bad)}. Fix: see job.log under {self._setup.out}" if bad else None

    def _record(self, error, captured):
        if not os.path.isdir(self._directory):
            return
        self._write("fabric/faults.json", self._fault_log)
        kernel = self._setup.kernel
        self._write("lab.json", {
            "kernel": kernel.release, "kernel_package": kernel.package, "kernel_version": kernel.version,
            "t_zero_unix_ns": self._zero_unix_ns, "error": error, "captures": captured, "events": self._events,
            "nodes": [{"node": node.number, "boot_s": node.boot_s, "rc": node.rc} for node in self._nodes],
        })

    def _write(self, name, value):
        with open(os.path.join(self._setup.out, name), "w", encoding="utf-8") as out:
            json.dump(value, out, indent=1)
            out.write("\n")


def _seconds(value):
    return "not done" if value is None else f"{value:.1f} s"
