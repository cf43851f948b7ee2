#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""However the lab ends, nothing of it is left: by each signal, kill -9 included, while booting and while its job runs; and labs that run at once do
not touch each other. A lab test that is asked to end ends its labs first."""

import os
import signal
import sys
import time

import lab_harness as harness

BOOTING, RUNNING = "booting", "the jobs start"


def start(out, job, **how):
    return harness.start("--nodes", "1", "--limit", "600", "--boot-limit", "600", "--pcap", "--out", out, "--job", job, **how)


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


# As a test of the lab: its labs are its children.
TEST = (sys.executable, "-c", f"import sys; sys.path.insert(0, {harness.HERE!r}); import lab_harness; lab_harness.run(*sys.argv[1:])")
PATIENCE_S = 120


def end_test(scratch, job, before):
    """A test gets two signals at once, as when ctest and its group are ended: the second one finds the first at work."""
    out = os.path.join(scratch, "test")
    process = start(out, job, command=TEST)
    end_s = time.monotonic() + PATIENCE_S
    while "tcpdump" not in programs_of(out):
        assert time.monotonic() < end_s and process.poll() is None, "the lab of the test does not boot"
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    print(f"two times SIGTERM to a test: status {process.returncode}")
    assert process.returncode == 128 + signal.SIGTERM, process.returncode
    harness.expect_nothing_left(out, before)


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
    # wait() and not communicate(): a survivor would hold stderr open.
    process.wait(PATIENCE_S)
    print(f"{signal.Signals(sig).name} to {'the sandbox' if inner else 'the lab'} while '{when}': status {process.returncode}")
    expected = 128 + sig if inner or sig != signal.SIGKILL else -sig
    assert process.returncode == expected, (process.returncode, expected)
    harness.expect_nothing_left(out, before)


def check_failures(scratch, endless):
    """A job that fails, one that never ends, and a kernel that crashes are failures of the lab, in words. The three run at once."""
    crash = os.path.join(scratch, "crash")
    with open(crash, "w", encoding="ascii") as file:
        file.write("#!/bin/bash\necho c > /proc/sysrq-trigger\n")
    cases = [("/bin/false", "600", ("node0 returned 1",)), (endless, "15", ("in time",)),
             (crash, "600", ("node0 died", "Kernel panic", "Call Trace"))]
    labs = [harness.start("--nodes", "1", "--out", os.path.join(scratch, f"failing-{number}"), "--job", job, "--limit", limit_s, "--boot-limit", "600")
            for number, (job, limit_s, _) in enumerate(cases)]
    for lab, (job, _, words) in zip(labs, cases):
        said = lab.communicate()[1]
        print(said)
        assert lab.returncode == 1 and all(word in said for word in words), (job, lab.returncode)


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

        end_test(scratch, job, before)

        check_failures(scratch, job)
        harness.expect_nothing_left(scratch, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
