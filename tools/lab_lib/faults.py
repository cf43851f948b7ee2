# SPDX-License-Identifier: Apache-2.0
"""Faults at given times after T, the moment the jobs start: port flaps, silent cuts, loss behind the sender's tap."""

import re

from .report import LabError

_FORM = re.compile(r"(?P<kind>port|silent|loss):(?P<what>[^@]+)@T\+(?P<start>\d+(?:\.\d+)?)(?:\+(?P<length>\d+(?:\.\d+)?))?")
USAGE = "port:NODE[.NIC]@T+D[+S], silent:LINK@T+D[+S] or loss:NODE[.NIC]:PERCENT@T+D[+S]"


class Action:
    """One thing to do at at_s seconds after T; begins tells whether it is a fault's start or its end."""

    def __init__(self, fault, at_s, begins):
        self.fault, self.at_s, self.begins = fault, at_s, begins


class Fault:
    """A parsed --fault. Raises LabError for one that this fabric cannot have."""

    def __init__(self, text, fabric):
        match = _FORM.fullmatch(text)
        if not match:
            raise LabError(f"--fault {text}: not understood. Fix: {USAGE}")
        self.text = text
        self.kind = match["kind"]
        self.start_s = float(match["start"])
        self.length_s = float(match["length"]) if match["length"] else None
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
        return Action(self, self.start_s, True)

    def end(self, begun_s):
        """The action that ends it, if it ends, its whole length after it has begun."""
        return None if self.length_s is None else Action(self, begun_s + self.length_s, False)

    def apply(self, fabric, nodes, begins):
        """Starts or ends the fault; returns the words for the record of faults."""
        if self.kind == "silent":
            fabric.cut(self.link, begins)
            return f"{self.link.name} {'stops forwarding' if begins else 'forwards again'}, carriers stay up"
        node = nodes[self.node]
        if self.kind == "port":
            node.monitor_command("set_link", name=f"n{self.nic}", up=not begins)
            return f"{node.name} eth{self.nic} carrier {'off' if begins else 'on'}"
        node.agent.send(f"LOSS eth{self.nic} {self.percent if begins else 0}")
        return f"{node.name} eth{self.nic} drops {self.percent if begins else 0}% of what arrives"
