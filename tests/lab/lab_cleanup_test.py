#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""However the lab ends, nothing of it is left: by each signal, kill -9 included, while booting and while its job runs; and two labs that run
at once do not touch each other."""

import os
import signal
import sys

import lab_harness as harness

BOOTING, RUNNING = "booting", "the jobs start"


def start(out, job, **how):
    return harness.start("--nodes", "1", "--limit", "300", "--pcap", "--out", out, "--job", job, **how)


def wait_for(process, words):
    line = ""
    for line in process.stderr:
        print(line, end="")
        if words in line:
            return
    harness.skip_if_not_possible(process.wait(), line)
    raise AssertionError(f"the lab ended before it said '{words}'")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as source:
        return [int(child) for child in source.read().split()]


def programs_of(out):
    return {os.path.basename(line.split()[1]) for line in harness.processes_of(out)}


# As tools/demo and tools/test run a lab.
SCRIPT = ("bash", "-euc", f'. {harness.ROOT}/tools/common.sh; attended {harness.LAB} "$@"; echo "not ended" >&2', "script")


def end_by(scratch, job, when, sig, inner, before, **how):
    """inner: the signal goes to process 1 of the sandbox, not to the lab's first process."""
    out = os.path.join(scratch, "ended")
    process = start(out, job, **how)
    wait_for(process, when)
    # Otherwise this test would see nothing.
    expected = {"tcpdump"} if when == BOOTING else {"tcpdump", "qemu-system-x86_64"}
    assert expected <= programs_of(out), (expected, harness.processes_of(out))
    target = children(process.pid)[0] if inner else process.pid
    os.kill(target, sig)
    # Not until its stderr ends: what survived would hold that open.
    process.wait(60)
    print(f"{signal.Signals(sig).name} to {'the sandbox' if inner else 'the lab'} while '{when}': status {process.returncode}")
    expected = 128 + sig if inner or sig != signal.SIGKILL else -sig
    assert process.returncode == expected, (process.returncode, expected)
    harness.expect_nothing_left(out, before)


def main():
    harness.need_root()
    before = harness.interfaces()
    with harness.scratch() as scratch:
        job = os.path.join(scratch, "job")
        with open(job, "w", encoding="ascii") as file:
            file.write("#!/bin/bash\nexec sleep infinity\n")
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            end_by(scratch, job, BOOTING, sig, False, before)
        end_by(scratch, job, BOOTING, signal.SIGKILL, True, before)
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            end_by(scratch, job, BOOTING, sig, False, before, command=SCRIPT)

        # The neighbour of a lab that is killed goes on to its own good end: its job lives from before the kill until after it.
        waiting = os.path.join(scratch, "waiting")
        with open(waiting, "w", encoding="ascii") as file:
            file.write('#!/bin/bash\nuntil [ -e "$OUT/go" ]; do sleep 0.1; done\n')
        neighbour_out = os.path.join(scratch, "neighbour")
        neighbour = start(neighbour_out, waiting)
        wait_for(neighbour, RUNNING)
        status, said = harness.run("--nodes", "1", "--out", neighbour_out, "--job", job)
        assert status == 1 and "another lab is writing" in said, said
        end_by(scratch, job, RUNNING, signal.SIGKILL, False, before)
        assert neighbour.poll() is None and {"tcpdump", "qemu-system-x86_64"} <= programs_of(neighbour_out), "the neighbour did not outlive the kill"
        with open(os.path.join(neighbour_out, "node0", "go"), "w", encoding="ascii"):
            pass
        print(neighbour.communicate()[1])
        assert neighbour.returncode == 0, neighbour.returncode
        harness.expect_nothing_left(neighbour_out, before)

        # A job that fails, one that never ends and a kernel that crashes are failures of the lab, in words.
        out = os.path.join(scratch, "failing")
        status, said = harness.run("--nodes", "1", "--out", out, "--job", "/bin/false")
        assert status == 1 and "node0 returned 1" in said, said
        status, said = harness.run("--nodes", "1", "--out", out, "--job", job, "--limit", "12")
        assert status == 1 and "in time" in said, said
        with open(job, "w", encoding="ascii") as file:
            file.write("#!/bin/bash\necho c > /proc/sysrq-trigger\n")
        status, said = harness.run("--nodes", "1", "--out", out, "--job", job, "--limit", "120")
        assert status == 1 and "node0 died" in said and "Kernel panic" in said and "Call Trace" in said, said
        harness.expect_nothing_left(scratch, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
