#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What may happen to a recorder and to what it records, one case after the other, on two nodes. Node 1 is the peer; node 0 has the
recorder. Every case leaves its capture and a result, and the job checks what only the node can see: nothing of ours stays."""

import glob
import json
import os
import random
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import Job, NODE, OUT, poll_until

CHURN_RATE = 1000
FULL = os.environ.get("COLLWIRE_FULL") == "1"

results = {}

# Ubuntu's /usr/sbin/bpftool insists on the running kernel's own build; the real one is below linux-tools.
BPFTOOL = (glob.glob("/usr/lib/linux-tools/*/bpftool") + ["bpftool"])[0]


def bpf_objects():
    """Programs and links that the kernel holds, and pins."""
    programs = json.loads(subprocess.run([BPFTOOL, "-j", "prog", "list"], capture_output=True, text=True, check=True).stdout or "[]")
    links = json.loads(subprocess.run([BPFTOOL, "-j", "link", "list"], capture_output=True, text=True, check=True).stdout or "[]")
    return len(programs), len(links), sorted(os.listdir("/sys/fs/bpf"))


class Recorder:
    def __init__(self, case, *options, directory=None):
        self.directory = directory or os.path.join(OUT, case)
        self.log = os.path.join(OUT, f"{case}.record.log")
        with open(self.log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(["collwire", "record", "-o", self.directory, *options], stderr=file)
        poll_until(lambda: self.process.poll() is not None or "recording\n" in self.said(), f"{case}: recording")

    def said(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


def report(directory, case):
    path = os.path.join(OUT, f"{case}.json")
    done = subprocess.run(["collwire", "report", directory, "--json", path], capture_output=True, text=True, check=False)
    with open(os.path.join(OUT, f"{case}.report.txt"), "w", encoding="utf-8") as file:
        file.write(done.stdout + done.stderr)
    if not os.path.exists(path):
        return done.returncode, None
    with open(path, encoding="utf-8") as file:
        return done.returncode, json.load(file)


def churn(*options):
    done = subprocess.run(["rdma_qp_churn", "--device", "rxe0", "--gid-index", "1", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def mortal_peers(job, name, during):
    """A verified transfer between the nodes while `during` runs on node 0."""
    def command(port, address):
        if address:
            return ["rdma_wr_post", "--device", "rxe0", "--gid-index", "1", "--connect", f"{address}:{port}", "--rounds", "60",
                    "--json", os.path.join(OUT, f"{name}.client.json")]
        return ["rdma_wr_post", "--device", "rxe0", "--gid-index", "1", "--listen", str(port), "--json",
                os.path.join(OUT, f"{name}.server.json")]
    finish = during() if NODE == 0 else None
    job.pair(name, 1, 0, command)
    return finish


def killed(job, nth):
    """kill -9 at any moment: the capture reads to its last good block, the transfer is not harmed, nothing stays in the kernel."""
    case = f"killed-{nth}"
    before = bpf_objects() if NODE == 0 else None

    def during():
        recorder = Recorder(case, "--interval", "50ms")
        delay_s = random.Random(nth).uniform(0.0, 2.0)
        killer = subprocess.Popen(["sh", "-c", f"sleep {delay_s:.3f}; kill -9 {recorder.process.pid}"])
        return recorder, killer

    finish = mortal_peers(job, case, during)
    if NODE == 0:
        recorder, killer = finish
        killer.wait()
        recorder.process.wait(timeout=30)
        poll_until(lambda: bpf_objects() == before, f"{case}: no BPF program or link stays")
        status, data = report(recorder.directory, case)
        assert data is not None, f"{case}: the capture cannot be read, status {status}"
        results[case] = {"report_status": status, "qps": len(data["qps"]), "recorder": recorder.process.returncode}
    job.barrier.wait()


def local_case(case, options, work, directory=None):
    recorder = Recorder(case, *options, directory=directory)
    outcome = work()
    status = recorder.stop()
    report_status, data = report(recorder.directory, case)
    assert data is not None, f"{case}: no report ({report_status})"
    results[case] = {"status": status, "report_status": report_status, "outcome": outcome, "said": recorder.said(),
                     "loss": data["loss"], "qps": len(data["qps"]), "events": [event["kind"] for event in data["events"]]}
    return data


def full_disk():
    directory = os.path.join(OUT, "tiny")
    os.makedirs(directory, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", directory], check=True)
    local_case("full-disk", ["--interval", "100ms"], lambda: churn("--rate", "400", "--duration", "6"), directory)
    subprocess.run(["umount", directory], check=True)


def remove_device():
    subprocess.run(["rdma", "link", "delete", "rxe0"], check=True)
    return None


def main():
    job = Job()
    for nth in range(10 if FULL else 3):
        killed(job, nth)
    if NODE == 0:
        local_case("churn", [], lambda: churn("--rate", str(CHURN_RATE), "--duration", "5"))
        local_case("overflow", ["--ring", "4KiB"], lambda: churn("--rate", "0", "--count", "3000"))
        full_disk()
        local_case("device-removed", [], remove_device)
        results["left"] = bpf_objects()
        with open(os.path.join(OUT, "results.json"), "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
        print(json.dumps(results, indent=1))
    job.end()


if __name__ == "__main__":
    main()
