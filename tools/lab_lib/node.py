# SPDX-License-Identifier: Apache-2.0
"""One node: its QEMU process, the line channel to the agent in it, and the channel to QEMU's monitor."""

import json
import os
import re
import select
import shlex
import socket
import subprocess
import time

from . import fabric
from .report import LabError

# A CPU that is stuck for so long ends the node, and its console has the trace. No busy host takes a CPU away for a minute.
_LOCKUP_S = 60
_COMPLAINT = re.compile(r"\b(?:BUG: |Oops|Kernel panic|general protection fault|detected stalls?)")
_CONSOLE_BYTES = 1 << 20
# With ERMS, Linux and the C library copy with "rep movsb", which QEMU emulates a byte at a time (docs/lab.md).
_CPU = "max,-erms"
# Until QEMU has obeyed.
_MONITOR_S = 60


class Channel:
    """Lines over one end of a socket pair; the other end goes to QEMU."""

    def __init__(self):
        self.ours, self.theirs = socket.socketpair()
        self._rest = b""

    def send(self, line):
        try:
            self.ours.sendall(line.encode() + b"\n")
        except OSError:
            pass  # QEMU has exited; its exit status says why

    def lines(self):
        """Complete lines that have arrived; call when the socket is readable. None at the end."""
        try:
            data = self.ours.recv(65536)
        except OSError:
            data = b""
        if not data:
            return None
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop()
        return [part.decode(errors="replace").strip() for part in parts]


class Node:
    """state: booting -> up -> reached -> running -> done -> quiet; failed holds the reason when it cannot go on."""

    def __init__(self, number, setup):
        self.number = number
        self.name = f"node{number}"
        self.directory = os.path.join(setup.out, self.name)
        self.state = "booting"
        self.failed = None
        self.boot_s = None
        self.rc = None
        self.agent = Channel()
        self.monitor = Channel()
        self.loss_answers = 0
        self._process = None
        self._setup = setup

    def _environment(self):
        setup = self._setup
        values = {
            "LAB_INIT": os.path.join(os.path.dirname(os.path.realpath(__file__)), "node-init.sh"),
            "LAB_MODULES": setup.module_tree, "LAB_JOB": setup.job, "LAB_NICS": setup.nics, "LAB_MTU": setup.mtu,
            "LAB_PATH": ":".join(setup.path), "LAB_SYSTEMD": int(setup.systemd), "NODE": self.number, "NODES": setup.nodes,
        }
        exported = {"LAB_CHANNEL": "/dev/ttyS1"}
        for node in range(setup.nodes):
            for nic in range(setup.nics):
                exported[f"PEER_{node}" if nic == 0 else f"PEER_{node}_{nic}"] = fabric.address(node, nic)
        exported.update(setup.env)
        lines = [f"{key}={shlex.quote(str(value))}" for key, value in values.items()]
        lines += [f"export {key}={shlex.quote(value)}" for key, value in exported.items()]
        return "\n".join(lines) + "\n"

    def boot(self, preexec):
        setup = self._setup
        os.makedirs(self.directory)
        with open(os.path.join(self.directory, "lab.env"), "w", encoding="utf-8") as out:
            out.write(self._environment())
        agent, monitor = self.agent.theirs, self.monitor.theirs
        share = "security_model=passthrough,multidevs=remap"
        # With one possible CPU QEMU leaves out the guest's memory barriers, although its thread for virtio runs in parallel (docs/lab.md).
        cpus = f"{setup.cpus},maxcpus={max(setup.cpus, 2)}"
        # no_timer_check: on a busy machine an emulated timer's interrupts come too late for the kernel's test of them, and it panics.
        words = (f"console=ttyS0 quiet panic=-1 softlockup_panic=1 watchdog_thresh={_LOCKUP_S // 2} net.ifnames=0 random.trust_cpu=on "
                 "no_timer_check")
        command = [
            "qemu-system-x86_64", "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
            "-accel", "tcg,thread=multi", "-cpu", _CPU, "-smp", cpus, "-m", str(setup.memory_mib),
            "-kernel", setup.image, "-initrd", setup.initramfs,
            "-append", words,
            "-chardev", f"file,id=console,path={_escape(self.directory)}/console", "-serial", "chardev:console",
            "-chardev", f"socket,id=agent,fd={agent.fileno()}", "-serial", "chardev:agent",
            "-chardev", f"socket,id=monitor,fd={monitor.fileno()}", "-mon", "chardev=monitor,mode=control",
            "-virtfs", f"local,path=/,mount_tag=host,readonly=on,{share}",
            "-virtfs", f"local,path={_escape(self.directory)},mount_tag=out,{share}",
        ]
        for nic in range(setup.nics):
            # No offloads: every frame on the tap is a frame as a wire would carry it.
            command += ["-netdev", f"tap,id=n{nic},ifname={fabric.tap_name(self.number, nic)},script=no,downscript=no,vhost=off,vnet_hdr=off",
                        "-device", f"virtio-net-pci,netdev=n{nic},mac={fabric.mac(self.number, nic)},host_mtu={setup.mtu},"
                                   "rx_queue_size=1024,csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,"
                                   "guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,romfile="]
        with open(os.path.join(self.directory, "qemu.log"), "wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=preexec,
                                             pass_fds=(agent.fileno(), monitor.fileno()))
        agent.close()
        monitor.close()
        self.monitor_command("qmp_capabilities")

    def monitor_command(self, command, /, **arguments):
        message = {"execute": command}
        if arguments:
            message["arguments"] = arguments
        self.monitor.send(json.dumps(message))

    def monitor_done(self, command, /, **arguments):
        """The same, and waits until QEMU has done it: on a busy machine that takes a while."""
        self.monitor.send(json.dumps({"execute": command, "arguments": arguments, "id": command}))
        end = time.monotonic() + _MONITOR_S
        while True:
            ready, _, _ = select.select([self.monitor.ours], [], [], max(0.0, end - time.monotonic()))
            lines = self.monitor.lines() if ready else None
            if lines is None:
                raise LabError(f"{self.name}: QEMU's monitor does not answer {command}. Fix: see qemu.log and its console\n{self.console_tail()}")
            for line in lines:
                if '"error"' in line:
                    raise LabError(f"{self.name}: QEMU's monitor refused a command: {line}")
                if line and json.loads(line).get("id") == command:
                    return

    def alive(self):
        return self._process is not None and self._process.poll() is None

    def stop(self):
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()

    def console_tail(self):
        """The last words of the node and of its QEMU, for an error message; of a kernel that complained, the first complaint."""
        lines = []
        for name in ("qemu.log", "console"):
            try:
                with open(os.path.join(self.directory, name), "rb") as source:
                    text = source.read(_CONSOLE_BYTES).decode(errors="replace")
            except OSError:
                continue
            lines += [line.strip() for line in text.splitlines() if line.strip()]
        complaint = next((at for at, line in enumerate(lines) if _COMPLAINT.search(line)), len(lines))
        first = max(0, min(complaint, len(lines) - 15))
        return "\n".join(f"    {self.name}| {line}" for line in lines[first:first + 60])

    def record_status(self):
        """The job's status as the node wrote it, None without one."""
        try:
            with open(os.path.join(self.directory, "rc"), encoding="ascii") as source:
                return int(source.read())
        except (OSError, ValueError):
            return None


def _escape(path):
    """A path inside a QEMU option: commas are doubled."""
    return path.replace(",", ",,")


def check_path(path, what):
    if "\n" in path or ":" in path:
        raise LabError(f"{what} '{path}' holds a colon or a newline. Fix: use another path")


# Where node-init.sh mounts something of the node's own, so that the host's files are not seen.
_HIDDEN = ("/dev", "/lib/modules", "/out", "/proc", "/run", "/sys", "/usr/lib/modules")


def check_visible(path, what):
    """Raises LabError if a node cannot see this path of the host, or what it links to."""
    for one in (os.path.abspath(path), os.path.realpath(path)):
        for hidden in _HIDDEN:
            if os.path.commonpath((one, hidden)) == hidden:
                raise LabError(f"{what} {path} is below {hidden}, which a node has of its own: it cannot see the host's. Fix: a copy in another place")
