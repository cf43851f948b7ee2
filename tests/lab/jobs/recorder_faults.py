#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What may happen to a recorder and to what it records, one case after the other, on two nodes. Node 1 is the peer; node 0 has the
recorder. Every case leaves its capture and a result, and the job checks what only the node can see: nothing of ours stays."""

import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import Job, NODE, OPERATIONS, OUT, poll_until
from local_case import churn, local_case
from recording import Recorder, bpf_objects, report

NOBODY = 65534
NO_BPF_OBJECTS = (0, 0, [])
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


def killed(job, nth):
    """kill -9 at any moment of a transfer: the capture reads to its last good block, the transfer goes on unharmed, nothing stays in
    the kernel."""
    case = f"killed-{nth}"
    go, until = os.path.join(OUT, f"{case}.go"), os.path.join(OUT, f"{case}.until")
    before = bpf_objects() if NODE == 0 else None
    recorder = Recorder(case, "--interval", "50ms") if NODE == 0 else None
    transferring = job.start(case, 1, 0, transfer(case, "--go", go, "--go-after", "1", "--until", until))
    if NODE == 0:
        poll_until(lambda: os.path.exists(f"{go}.ready") or transferring.process.poll() is not None, f"{case}: the first round")
        touch(go)
        delay_s = random.Random(nth).uniform(0.0, 2.0)
        subprocess.run(["sh", "-c", f"sleep {delay_s:.3f}; kill -9 {recorder.process.pid}"], check=True)
        recorder.process.wait(timeout=30)
        poll_until(lambda: bpf_objects() == before, f"{case}: no BPF program or link stays")
        assert transferring.process.poll() is None, f"{case}: the transfer ended with the recorder"
        touch(until)
    job.finish(transferring)
    if NODE == 0:
        status, data = report(recorder.directory, case)
        assert data is not None, f"{case}: the capture cannot be read, status {status}"
        with open(os.path.join(OUT, f"{case}.client.json"), encoding="utf-8") as file:
            program = json.load(file)
        qpns = {qp["qpn"] for qp in program["qps"]}
        results[case] = {"report_status": status, "recorder": recorder.process.returncode, "rounds": program["rounds"],
                         "verified": program["verified"] and program["peer_verified"], "delay_s": delay_s,
                         "ends": [capture["end"] for capture in data["captures"]],
                         "tx_wire_bytes": [qp["tx_wire_bytes"] for qp in data["qps"] if qp["qpn"] in qpns]}
    job.barrier.wait()


def killed_while_starting(job, times):
    """The same before it records: while it loads, attaches, or reads what is there."""
    case = "killed-early"
    until = os.path.join(OUT, f"{case}.until")
    transferring = job.start(case, 1, 0, transfer(case, "--until", until))
    if NODE == 0:
        before = bpf_objects()
        for nth in range(times):
            with open(os.path.join(OUT, f"{case}-{nth}.record.log"), "w", encoding="utf-8") as log:
                recorder = subprocess.Popen(["collwire", "record", "-o", os.path.join(OUT, case)], stderr=log)
            delay_s = random.Random(nth).uniform(0.1, 4.0)
            subprocess.run(["sh", "-c", f"sleep {delay_s:.3f}; kill -9 {recorder.pid}"], check=True)
            recorder.wait(timeout=30)
            poll_until(lambda: bpf_objects() == before, f"{case}: no BPF program or link stays")
        assert transferring.process.poll() is None, f"{case}: the transfer ended with a recorder"
        touch(until)
    job.finish(transferring)
    if NODE == 0:
        with open(os.path.join(OUT, f"{case}.client.json"), encoding="utf-8") as file:
            program = json.load(file)
        results["early"] = {"verified": program["verified"] and program["peer_verified"], "rounds": program["rounds"]}
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
    local_case(results, "full-disk", options, lambda: churn("--rate", "0", "--duration", "6"), directory)
    subprocess.run(["umount", directory], check=True)


def freed_disk():
    """Full for a while, then not: what was lost is in the capture, and so is everything from then on. Without looks at the counters,
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

    data = local_case(results, "freed-disk", ["--no-wire", "--posts", "off", "--interval", "1h"], work, directory)
    subprocess.run(["umount", directory], check=True)
    pid = results["freed-disk"]["outcome"]["after"]["pid"]
    results["freed-disk"]["qps_after"] = sum(qp["pid"] == pid for qp in data["qps"])


def remove_nic(job):
    """The second NIC goes, with the RDMA device on it, while a transfer uses the first one."""
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
        report_status, data = report(recorder.directory, case)
        results[case] = {"status": status, "report_status": report_status, "outcome": outcome, "loss": data["loss"],
                         "gone": [event["device"] for event in data["events"] if event["kind"] == "device_gone"],
                         "qps": {device: sum(qp["device"] == device and qp["type"] == "RC" for qp in data["qps"])
                                 for device in ("rxe0", "rxe1")},
                         "tx_payload_bytes": sum(qp["tx_payload_bytes"] for qp in data["qps"] if qp["device"] == "rxe0")}


def unprivileged(job):
    """Not root: refused, and with --counters-only the ports' counters all the same."""
    case = "unprivileged"
    directory = tempfile.mkdtemp()
    os.chown(directory, NOBODY, NOBODY)
    nobody = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--no-new-privs"]
    if NODE == 0:
        refused = Recorder("unprivileged-refused", directory=directory, prefix=nobody)
        assert refused.process.wait(timeout=30) == 3 and not os.listdir(directory), refused.said()
        recorder = Recorder(case, "--counters-only", directory=directory, prefix=nobody)
    job.pair(case, 1, 0, transfer(case, "--rounds", "4"))
    if NODE == 0:
        status = recorder.stop()
        report_status, data = report(directory, case)
        with open(os.path.join(OUT, f"{case}.client.json"), encoding="utf-8") as file:
            classes = json.load(file)["qps"][0]["posted"]["classes"]
        posted = sum(counts["bytes"] for of, counts in classes.items() if of not in ("read", "atomic"))
        files = [os.stat(entry.path) for entry in os.scandir(directory)]
        results[case] = {"status": status, "report_status": report_status, "refused": refused.said(), "said": recorder.said(),
                         "posted_bytes": posted, "port": next(port for port in data["ports"] if port["device"] == "rxe0"),
                         "qps": len(data["qps"]), "modes": [stat.S_IMODE(file.st_mode) for file in files]}


def record(*options):
    """Exit status and words of a recorder that ends by itself."""
    done = subprocess.run(["collwire", "record", *options], capture_output=True, text=True, check=False, timeout=120)
    return {"status": done.returncode, "said": done.stdout + done.stderr}


def manners():
    """What the command line promises: nothing is placed by --dry-run, a command starts when everything is recorded, its exit status
    is ours, the capture is for its owner alone, and a recording that is ended in order ends with 0."""
    directory = os.path.join(OUT, "manners")
    dry = record("--dry-run", "--posts=on", "-o", directory)
    assert bpf_objects() == NO_BPF_OBJECTS and not os.path.exists(directory), dry
    command = record("-o", directory, "--", "sh", "-c", "exit 7")
    churn_and_fail = "rdma_qp_churn --gid-index 1 --rate 0 --count 1500 && exit 1"
    lossy = record("-o", os.path.join(OUT, "lossy"), "--ring", "4KiB", "--", "sh", "-c", churn_and_fail)
    ended = Recorder("sigterm")
    ended.process.send_signal(signal.SIGTERM)
    results["manners"] = {"dry_run": dry, "command": command, "lossy": lossy, "duration": record("-o", os.path.join(OUT, "duration"), "--duration", "1s"),
                          "sigterm": ended.process.wait(timeout=60),
                          "modes": [stat.S_IMODE(os.stat(entry.path).st_mode) for entry in os.scandir(directory)]}


def one_process():
    """--pid: of two programs that do the same, one is recorded."""
    wait_and_churn = ["sh", "-c", "read go; exec rdma_qp_churn --gid-index 1 --count 5"]
    programs = [subprocess.Popen(wait_and_churn, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(2)]
    recorder = Recorder("pid", "--pid", str(programs[0].pid))
    for program in programs:
        program.communicate(b"go\n", timeout=60)
    status = recorder.stop()
    report_status, data = report(recorder.directory, "pid")
    results["pid"] = {"status": status, "report_status": report_status, "wanted": programs[0].pid,
                      "programs": [program.returncode for program in programs],
                      "pids": [qp["pid"] for qp in data["qps"] if qp["type"] == "RC"], "sent": data["total"]["tx_wire_bytes"]}


def no_device():
    """The last case: the node's RDMA devices go."""
    for device in sorted(os.listdir("/sys/class/infiniband")):
        subprocess.run(["rdma", "link", "delete", device], check=True)
    results["no-device"] = record("--no-nccl", "-o", os.path.join(OUT, "no-device"), "--duration", "1s")
    results["sockets-only"] = record("-o", os.path.join(OUT, "sockets-only"), "--duration", "1s")


def main():
    job = Job()
    if NODE == 0:
        manners()
        one_process()
    unprivileged(job)
    for nth in range(10 if FULL else 3):
        killed(job, nth)
    killed_while_starting(job, 10 if FULL else 3)
    if NODE == 0:
        full_disk()
        freed_disk()
    remove_nic(job)
    if NODE == 0:
        no_device()
        results["left"] = bpf_objects()
        with open(os.path.join(OUT, "results.json"), "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
        print(json.dumps(results, indent=1))
    job.end()


if __name__ == "__main__":
    main()
