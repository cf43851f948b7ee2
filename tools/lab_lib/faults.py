# SPDX-License-Identifier: Apache-2.0
"""Faults of a run: port flaps, silent cuts, and loss after the sender's tap. Each starts and ends at a time or at an event of a job."""

import re

from .report import LabError

_NAME = r"[a-z][a-z0-9-]*"
_FORM = re.compile(r"(?P<kind>port|silent|loss):(?P<what>[^@]+)"
                   rf"@(?:T\+(?P<start>\d+(?:\.\d+)?)|(?P<start_event>{_NAME}))"
                   rf"(?:\+(?P<length>\d+(?:\.\d+)?)|\.\.(?P<end_event>{_NAME}))?")
USAGE = "port:NODE[.NIC]@START[END], silent:LINK@START[END] or loss:NODE[.NIC]:PERCENT@START[END]; START is T+D or EVENT, END is +S or ..EVENT"


class Action:
    """The start (`begins`) or the end of a fault: at_s seconds after T, or at an event of a job, where at_s is None until it is announced."""

    def __init__(self, fault, begins, at_s=None, event=None):
        self.fault, self.begins, self.at_s, self.event = fault, begins, at_s, event


class Fault:
    """A parsed --fault. Raises LabError for one that this fabric cannot have."""

    def __init__(self, text, fabric):
        match = _FORM.fullmatch(text)
        if not match:
            raise LabError(f"--fault {text}: not understood. Fix: {USAGE}")
        self.text = text
        self.kind = match["kind"]
        self.start_s = float(match["start"]) if match["start"] else None
        self.start_event = match["start_event"]
        self.length_s = float(match["length"]) if match["length"] else None
        self.end_event = match["end_event"]
        self.link = None
        self.percent = None
        if self.kind == "silent":
            self.link = fabric.find(match["what"])
            return
        where, _, percent = match["what"].partition(":")
        node, _, nic = where.partition(".")
        if not re.fullmatch(r"\d", node) or int(node) >= fabric.nodes or (nic and (not nic.isdigit() or int(nic) >= fabric.nics)):
            raise LabError(f"--fault {text}: there is no node or NIC '{where}'. Fix: nodes are 0 to {fabric.nodes - 1}, NICs 0 to {fabric.nics - 1}")
        self.node, self.nic = int(node), int(nic or 0)
        if self.kind == "loss":
            if not re.fullmatch(r"\d+(\.\d+)?", percent) or not 0 < float(percent) <= 100:
                raise LabError(f"--fault {text}: '{percent}' is no percentage above 0 and up to 100. Fix: {USAGE}")
            self.percent = percent
        elif percent:
            raise LabError(f"--fault {text}: not understood. Fix: {USAGE}")

    def begin(self):
        return Action(self, True, self.start_s, self.start_event)

    def end(self, begun_s):
        """The action that ends the fault: `length_s` after begun_s (seconds after T), or at its event. None for a fault that stays."""
        if self.end_event:
            return Action(self, False, event=self.end_event)
        return None if self.length_s is None else Action(self, False, begun_s + self.length_s)

    def apply(self, fabric, nodes, begins):
        """Starts or ends the fault; returns the words for the record of faults."""
        if self.kind == "silent":
            fabric.cut(self.link, begins)
            return f"{self.link.name} {'stops forwarding' if begins else 'forwards again'}, carriers stay up"
        node = nodes[self.node]
        if self.kind == "port":
            node.monitor_done("set_link", name=f"n{self.nic}", up=not begins)
            return f"{node.name} eth{self.nic} carrier {'off' if begins else 'on'}"
        node.agent.send(f"LOSS eth{self.nic} {self.percent if begins else 0}")
        return f"{node.name} eth{self.nic} drops {self.percent if begins else 0}% of what arrives"
