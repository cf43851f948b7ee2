#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults of a recorder and of what it records, one case after the other, on two nodes. Node 1 is the peer; node 0 has the recorder. Every case
leaves its capture and a result, and the job checks what only the node can see: no BPF program, link or pin stays."""

import json
import os
import random
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import Job, NODE, OPERATIONS, OUT, poll_until, read_growing
from local_case import churn, local_case
from recording import Recorder, bpf_objects, keep_capture

NOBODY = 65534
NO_BPF_OBJECTS = (0, 0, [])
# Of a recorder that was to be killed before it records, and was too fast.
STARTS = 10
SENT_PACKETS = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
FULL = os.environ.get("COLLWIRE_FULL") == "1"

results = {}


def transfer(name, *options):
    """Command of a verified transfer between the nodes."""
    def command(port, address):
        words = ["rdma_wr_post", "--device", "rxe0", "--gid-index", "1"]
        if address:
            return words + ["--connect", f"{address}:{port}", "--json", os.path.join(OUT, f"{name}.client.json"),
                            "--operations", OPERATIONS, *options]
        return words + ["--listen", str(port), "--json", os.path.join(OUT, f"{name}.server.json")]
    return command


def size_of(directory):
    return sum(os.stat(entry.path).st_size for entry in os.scandir(directory))


def sent_packets():
    with open(SENT_PACKETS, encoding="ascii") as file:
        return int(file.read())


def kill_after(process, delay_s):
    subprocess.run(["sh", "-c", f"sleep {delay_s:.3f}; kill -9 {process.pid}"], check=True)


def killed(job, nth):
    """kill -9 in the middle of a transfer: the capture reads to its last good block, the transfer goes on unharmed, nothing stays in
    the kernel. The first time the recorder has just written of the transfer, then at any moment."""
    case = f"killed-{nth}"
    go, until = os.path.join(OUT, f"{case}.go"), os.path.join(OUT, f"{case}.until")
    before = bpf_objects() if NODE == 0 else None
    recorder = Recorder(case, "--interval", "50ms") if NODE == 0 else None
    transferring = job.start(case, 1, 0, transfer(case, "--go", go, "--go-after", "1", "--until", until))
    if NODE == 0:
        poll_until(lambda: os.path.exists(f"{go}.ready") or transferring.process.poll() is not None, f"{case}: the first round")
        sent = sent_packets()
        touch(go)
        poll_until(lambda: sent_packets() > sent or transferring.process.poll() is not None, f"{case}: the next round")
        if nth == 0:
            for _ in range(2):  # the first of these blocks may be older than the transfer
                size = size_of(recorder.directory)
                poll_until(lambda: size_of(recorder.directory) > size, f"{case}: the recorder writes")
            recorder.process.kill()
        else:
            kill_after(recorder.process, random.Random(nth).uniform(0.0, 2.0))
        recorder.process.wait(timeout=120)
        poll_until(lambda: bpf_objects() == before, f"{case}: no BPF program or link stays")
        assert transferring.process.poll() is None, f"{case}: the transfer ended with the recorder"
        touch(until)
    job.finish(transferring)
    if NODE == 0:
        with open(os.path.join(OUT, f"{case}.client.json"), encoding="utf-8") as file:
            program = json.load(file)
        results[case] = {"recorder": recorder.process.returncode, "rounds": program["rounds"], "verified": program["verified"] and program["peer_verified"],
                         "qpns": [qp["qpn"] for qp in program["qps"]]}
    job.barrier.wait()


def killed_while_starting(job, times):
    """The same before it records: the first time it has placed something, then at any moment while it loads, attaches, or reads what is there."""
    case = "killed-early"
    go, until = os.path.join(OUT, f"{case}.go"), os.path.join(OUT, f"{case}.until")
    if NODE == 0:
        touch(go)  # its gate is open: it only says that it has made two rounds
    transferring = job.start(case, 1, 0, transfer(case, "--go", go, "--go-after", "2", "--until", until))
    if NODE == 0:
        poll_until(lambda: os.path.exists(f"{go}.ready") or transferring.process.poll() is not None, f"{case}: two rounds")
        before = bpf_objects()
        placed = []

        def kill_one(name, kill):
            """Returns (the recorder, what it had said when it was killed)."""
            log = os.path.join(OUT, f"{name}.record.log")
            with open(log, "w", encoding="utf-8") as file:
                recorder = subprocess.Popen(["collwire", "record", "-o", os.path.join(OUT, case)], stderr=file)
            kill(recorder)
            said = read_growing(log)
            recorder.wait(timeout=120)
            poll_until(lambda: bpf_objects() == before, f"{name}: no BPF program or link stays")
            return recorder, said

        def kill_when_placed(recorder):
            poll_until(lambda: placed.append(bpf_objects()) or placed[-1] != before or recorder.poll() is not None, f"{case}: something is placed")
            recorder.kill()

        for attempt in range(STARTS):
            recorder, said = kill_one(f"{case}-0-{attempt}", kill_when_placed)
            if "recording\n" not in said:
                break
        first_placed, first = placed[-1], recorder
        for nth in range(1, times):
            kill_one(f"{case}-{nth}", lambda recorder, nth=nth: kill_after(recorder, random.Random(nth).uniform(0.1, 4.0)))
        assert transferring.process.poll() is None, f"{case}: the transfer ended with a recorder"
        touch(until)
    job.finish(transferring)
    if NODE == 0:
        with open(os.path.join(OUT, f"{case}.client.json"), encoding="utf-8") as file:
            program = json.load(file)
        results["early"] = {"verified": program["verified"] and program["peer_verified"], "rounds": program["rounds"], "placed": first_placed[:2],
                            "said": said, "recorder": first.returncode}
    job.barrier.wait()


def touch(path):
    with open(path, "w", encoding="ascii"):
        pass


def tiny_disk(size):
    directory = os.path.join(OUT, f"disk-of-{size}")
    os.makedirs(directory)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)
    return directory


def full_disk():
    """The ring buffer overflows, too: two classes of loss."""
    directory = tiny_disk("48k")
    options = ["--interval", "100ms", "--ring", "4KiB"]

    def work():
        """For six seconds, or until the disk is full."""
        outcomes = [churn("--rate", "0", "--duration", "6")]
        poll_until(lambda: "No space left" in read_growing(os.path.join(OUT, "full-disk.record.log"))
                   or outcomes.append(churn("--rate", "0", "--duration", "1")), "full disk: the recorder says so")
        return {**outcomes[0], "qps": sum(one["qps"] for one in outcomes), "verified": all(one["verified"] for one in outcomes)}

    local_case(results, "full-disk", options, work, directory)
    subprocess.run(["umount", directory], check=True)


def freed_disk():
    """Full for a while, then not: what was lost is in the capture, and so is everything from then on. Without samples of counters,
    queue pairs are all that there is to lose."""
    directory = tiny_disk("128k")
    ballast = os.path.join(directory, "ballast")

    def work():
        with open(ballast, "wb") as file:
            file.write(bytes(96 * 1024))
        during = churn("--create-only", "--rate", "0", "--count", "8000")
        os.remove(ballast)
        after = churn("--create-only", "--rate", "0", "--count", "1500", "--list", os.path.join(OUT, "after.list"))
        return {"during": during, "after": after}

    local_case(results, "freed-disk", ["--no-wire", "--posts", "off", "--interval", "1h"], work, directory)
    subprocess.run(["umount", directory], check=True)


def remove_nic(job):
    """The second NIC is removed, with the RDMA device on it, while a transfer uses the first one."""
    case, until = "nic-removed", os.path.join(OUT, "nic-is-gone")
    recorder = Recorder(case) if NODE == 0 else None
    transferring = job.start(case, 1, 0, transfer(case, "--until", until))
    if NODE == 0:
        outcome = churn("--count", "20", "--device", "rxe1")
        nic = os.path.dirname(os.path.realpath("/sys/class/net/eth1/device"))
        with open(os.path.join(nic, "remove"), "w", encoding="ascii") as file:
            file.write("1")
        poll_until(lambda: not os.path.exists("/sys/class/infiniband/rxe1"), "rxe1 is gone")
        touch(until)
    job.finish(transferring)
    if NODE == 0:
        status = recorder.stop()
        results[case] = {"status": status, "outcome": outcome}


def unprivileged(job):
    """Not root: with --counters-only the ports' counters."""
    case = "unprivileged"
    directory = tempfile.mkdtemp()
    os.chown(directory, NOBODY, NOBODY)
    nobody = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--no-new-privs"]
    recorder = Recorder(case, "--counters-only", directory=directory, prefix=nobody) if NODE == 0 else None
    job.pair(case, 1, 0, transfer(case, "--rounds", "4"))
    if NODE == 0:
        status = recorder.stop()
        keep_capture(directory, case)
        with open(os.path.join(OUT, f"{case}.client.json"), encoding="utf-8") as file:
            classes = json.load(file)["qps"][0]["posted"]["classes"]
        posted = sum(counts["bytes"] for of, counts in classes.items() if of not in ("read", "atomic"))
        files = [os.stat(entry.path) for entry in os.scandir(directory)]
        results[case] = {"status": status, "said": recorder.said(), "posted_bytes": posted, "modes": [stat.S_IMODE(file.st_mode) for file in files]}


def record(*options):
    """Exit status and words of a recorder that ends by itself."""
    done = subprocess.run(["collwire", "record", *options], capture_output=True, text=True, check=False, timeout=120)
    return {"status": done.returncode, "said": done.stdout + done.stderr}


def manners():
    """What the command line promises where there is RDMA: --dry-run places nothing, and a loss is the exit status even where the command failed.
    The rest is in tests/root/record_manners_test.py."""
    directory = os.path.join(OUT, "manners")
    dry = record("--dry-run", "--posts=on", "-o", directory)
    assert bpf_objects() == NO_BPF_OBJECTS and not os.path.exists(directory), dry
    churn_and_fail = "rdma_qp_churn --gid-index 1 --rate 0 --count 1500 && exit 1"
    lossy = record("-o", os.path.join(OUT, "lossy"), "--ring", "4KiB", "--", "sh", "-c", churn_and_fail)
    results["manners"] = {"dry_run": dry, "lossy": lossy}


def one_process():
    """--pid: of two programs that do the same, one is recorded."""
    wait_and_churn = ["sh", "-c", "read go; exec rdma_qp_churn --gid-index 1 --count 5"]
    programs = [subprocess.Popen(wait_and_churn, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(2)]
    recorder = Recorder("pid", "--pid", str(programs[0].pid))
    for program in programs:
        program.communicate(b"go\n", timeout=60)
    status = recorder.stop()
    results["pid"] = {"status": status, "wanted": programs[0].pid, "programs": [program.returncode for program in programs]}


def no_device():
    """The last case, with --full: the node's RDMA devices are removed. Elsewhere record_manners_test.py has it, on a host without any."""
    for device in sorted(os.listdir("/sys/class/infiniband")):
        subprocess.run(["rdma", "link", "delete", device], check=True)
    results["no-device"] = record("--no-nccl", "-o", os.path.join(OUT, "no-device"), "--duration", "1s")
    results["sockets-only"] = record("-o", os.path.join(OUT, "sockets-only"), "--duration", "1s")


def timed(name, case, *arguments):
    begin_s = time.monotonic()
    case(*arguments)
    print(f"{name}: {time.monotonic() - begin_s:.1f} s", flush=True)


def main():
    job = Job()
    kills = 10 if FULL else 1
    if NODE == 0:
        timed("manners", manners)
        timed("one process", one_process)
    timed("unprivileged", unprivileged, job)
    for nth in range(kills):
        timed("killed", killed, job, nth)
    timed("killed while starting", killed_while_starting, job, kills)
    if NODE == 0:
        timed("full disk", full_disk)
        timed("freed disk", freed_disk)
    timed("NIC removed", remove_nic, job)
    if NODE == 0:
        if FULL:
            timed("no device", no_device)
        results["left"] = bpf_objects()
        with open(os.path.join(OUT, "results.json"), "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
        print(json.dumps(results, indent=1))
    job.end()


if __name__ == "__main__":
    main()
