#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of official NCCL over kernel RDMA in a container of podman on every node, recorded and inspected from the node.

ROOTS: a root file system made by debootstrap. FILES: the job, the double and NCCL, which the container has in an overlay. NCCL_LIBRARY, DOUBLE: as in
nccl.py. $OUT/rdma has the capture, the logs, what podman says of the container, and the inspection."""

import dataclasses
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "nccl")]

import nccl
from cases import CASES
from lab_job import ADDRESS, NODE, NODES, OUT, poll_until

PLACE = "/opt/job"
STORAGE = "/run/collwire-podman"
PORT = 20071
LIMIT_S = 400
CASE = dataclasses.replace(CASES["training"], name="rdma", job_options=("--count", "3"))


def podman(*words):
    return ["podman", "--root", f"{STORAGE}/storage", "--runroot", f"{STORAGE}/run", "--storage-driver", "overlay", "--cgroup-manager", "cgroupfs", *words]


def start(directory):
    """The node's rank, as the first process of its container."""
    environment = {name: value for name, value in nccl.environment(CASE, directory, NODE).items() if os.environ.get(name) != value}
    environment.update({"LD_LIBRARY_PATH": PLACE, "LD_PRELOAD": f"{PLACE}/libcuda_double.so:{PLACE}/libsend_counter.so"})
    options = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
    words = podman("run", "--name", "rank", "--network=host", "--shm-size=256m", "--device", "/dev/infiniband", "--cap-add", "IPC_LOCK", "--ulimit",
                   "memlock=-1:-1", "-v", f"{OUT}:{OUT}", "-v", f"{os.environ['FILES']}:{PLACE}:O", *options, "--rootfs", f"{os.environ['ROOTS']}:O",
                   f"{PLACE}/job", "--rank", str(NODE), "--ranks", str(NODES), "--id", f"tcp:{ADDRESS[0]}:{PORT}", "--device", "0", "--plan", CASE.plan_path,
                   "--log", f"{directory}/job.{NODE}", *CASE.job_options)
    with open(f"{directory}/output.{NODE}", "w", encoding="utf-8") as output:
        return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)


def state():
    """The container as podman knows it; None: it does not run."""
    done = subprocess.run(podman("container", "inspect", "rank"), capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)[0] if done.returncode == 0 else None
    return found if found and found["State"]["Pid"] else None


def inspection_of(container, process):
    """`collwire inspect` of the container, as soon as its rank has a communicator; None: the rank has exited before."""
    while process.poll() is None:
        done = subprocess.run(["collwire", "inspect", "--container", container, "--json"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and (processes := json.loads(done.stdout)["processes"]) and processes[0]["communicators"]:
            return json.loads(done.stdout)
        time.sleep(0.2)
    return None


def main():
    barrier = nccl.prepare()
    directory = os.path.join(OUT, CASE.name)
    for path in (directory, STORAGE):
        os.mkdir(path)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", STORAGE], check=True)
    recorder = nccl.start_recorder(CASE, "--nccl", f"{os.environ['FILES']}/libnccl.so.2")
    barrier.wait()
    process = start(directory)
    poll_until(lambda: process.poll() is not None or state(), "the container runs")
    result = {"container": state()}
    if result["container"]:
        result["inspection"] = inspection_of(result["container"]["Id"], process)
    status = process.wait(timeout=LIMIT_S)
    barrier.wait() # a recorder stops after the last packet of every node
    result.update({"rank": status, "recorder": recorder.stop(), "said": recorder.said()})
    with open(os.path.join(directory, "result.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    with open(f"{directory}/output.{NODE}", encoding="utf-8", errors="replace") as file:
        print(f"rank {status}, recorder {result['recorder']}\n{file.read()[-2000:]}\n{recorder.said()}", flush=True)
    subprocess.run(podman("rm", "-f", "rank"), stdout=subprocess.DEVNULL, check=False)
    barrier.wait()
    may_miss = os.environ.get("RECORDED_MAY_MISS_CALLS") == "1" # the report has the losses, and the test judges them
    sys.exit(0 if status == 0 and result["recorder"] in ((0, nccl.LOST) if may_miss else (0,)) else 1)


if __name__ == "__main__":
    main()
