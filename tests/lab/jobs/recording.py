# SPDX-License-Identifier: Apache-2.0
"""For jobs that start and stop recorders themselves: the recorder, its capture, and the BPF objects that the kernel holds."""

import glob
import json
import os
import shutil
import signal
import subprocess
import time
from typing import List, Optional, Sequence, Tuple

from lab_job import OUT, poll_until, read_growing

# Ubuntu's /usr/sbin/bpftool insists on the running kernel's own build; the real one is below linux-tools.
BPFTOOL = (glob.glob("/usr/lib/linux-tools/*/bpftool") + ["bpftool"])[0]


def bpf_objects() -> Tuple[int, int, List[str]]:
    """Programs and links that the kernel holds, and pins."""
    programs = json.loads(subprocess.run([BPFTOOL, "-j", "prog", "list"], capture_output=True, text=True, check=True).stdout or "[]")
    links = json.loads(subprocess.run([BPFTOOL, "-j", "link", "list"], capture_output=True, text=True, check=True).stdout or "[]")
    return len(programs), len(links), sorted(os.listdir("/sys/fs/bpf"))


def tracer_of(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("TracerPid:"))


def verified_instructions(pid: int) -> List[int]:
    """Instructions that the verifier processed for each BPF program that the process holds. Linux 5.16 or later has them."""
    found = []
    for info in glob.glob(f"/proc/{pid}/fdinfo/*"):
        with open(info, encoding="utf-8") as file:
            found += [int(line.split()[1]) for line in file if line.startswith("verified_insns:")]
    return found


class Recorder:
    """Its constructor returns when the recorder records, or has exited."""

    def __init__(self, case: str, *options: str, directory: Optional[str] = None, prefix: Sequence[str] = ()):
        self.directory = directory or os.path.join(OUT, case)
        self.log = os.path.join(OUT, f"{case}.record.log")
        begin_s = time.monotonic()
        with open(self.log, "w", encoding="utf-8") as file:
            # RECORDER: a copy of the program in another directory, with other files.
            self.process = subprocess.Popen([*prefix, os.environ.get("RECORDER", "collwire"), "record", "-o", self.directory, *options], stderr=file)
        poll_until(lambda: self.process.poll() is not None or "recording\n" in self.said(), f"{case}: recording")
        self.started_s = time.monotonic() - begin_s
        self.ready_ns = time.time_ns()

    def said(self) -> str:
        return read_growing(self.log)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=180)


def keep_capture(directory: str, case: str) -> None:
    """Copies the capture of a directory that does not outlive the node to the node's results."""
    os.makedirs(os.path.join(OUT, case))
    for path in glob.glob(os.path.join(directory, "*.cwc")):
        shutil.copy(path, os.path.join(OUT, case))
