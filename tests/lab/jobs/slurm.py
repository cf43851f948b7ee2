#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slurm on nodes whose first process is systemd: its prolog and epilog start and end the recorder of a job, whose step is a rank of official NCCL over kernel
RDMA on each node.

PACKAGES: a directory with the .deb of collwire and those of Slurm. NCCL_LIBRARY, DOUBLE: as in nccl.py. $OUT/rdma has the captures, the logs, what Slurm says
of the job, and the inspection of it by its number.

slurm.py NODE | slurm.py --rank     (--rank: the step on a node)"""

import dataclasses
import glob
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "nccl")]

import nccl
from cases import CASES
from lab_job import ADDRESS, NODE, NODES, OUT, poll_until

SCRIPTS = "/usr/share/doc/collwire/deploy/slurm"
SPOOL = "/var/spool/collwire"
# The step's words and environment on this node.
RANK = "/run/rank.json"
PORT = 20071
LIMIT_S = 400
CASE = dataclasses.replace(CASES["training"], name="rdma", job_options=("--count", "3"))
DIRECTORY = os.path.join(OUT, CASE.name)
SETTINGS = {
    "/etc/slurm/slurm.conf": f"""ClusterName=lab
SlurmctldHost=node0
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=600
SlurmdTimeout=600
MessageTimeout=100
BatchStartTimeout=300
PrologEpilogTimeout=300
Prolog={SCRIPTS}/prolog.sh
Epilog={SCRIPTS}/epilog.sh
PrologFlags=Alloc
NodeName=node[0-{NODES - 1}] CPUs=1 State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""",
    "/etc/slurm/cgroup.conf": "CgroupPlugin=autodetect\nIgnoreSystemd=yes\n",
    "/etc/default/collwire-slurm": f"COLLWIRE_OPTIONS='--nccl {os.environ.get('NCCL_LIBRARY')}'\n",
}


def run(*words, status=0):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"$ {' '.join(words)}: {done.returncode}\n{done.stdout}", flush=True)
    if status is not None and done.returncode != status:
        raise RuntimeError(f"{' '.join(words)}: status {done.returncode}")
    return done.stdout


def set_up(barrier):
    with open("/usr/sbin/policy-rc.d", "w", encoding="ascii") as file:
        file.write("#!/bin/sh\nexit 101\n")
    os.chmod("/usr/sbin/policy-rc.d", 0o755)
    run("dpkg", "--install", *sorted(glob.glob(os.path.join(os.environ["PACKAGES"], "*.deb"))))
    for path, text in SETTINGS.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    for folder in ("/var/spool/slurmctld", "/var/spool/slurmd"):
        os.makedirs(folder, exist_ok=True)
    # One key on all nodes.
    with open("/etc/munge/munge.key", "wb") as file:
        file.write(bytes(range(256)) * 4)
    shutil.chown("/etc/munge/munge.key", "munge", "munge")
    os.chmod("/etc/munge/munge.key", 0o400)
    for script in ("prolog.sh", "epilog.sh"):
        os.chmod(os.path.join(SCRIPTS, script), 0o755)
    run("systemctl", "start", "munge")
    if NODE == 0:
        run("systemctl", "start", "slurmctld")
    barrier.wait()
    run("systemctl", "start", "slurmd")
    poll_until(lambda: subprocess.run(["sinfo", "-h", "-n", f"node{NODE}", "-o", "%T"], capture_output=True, text=True, check=False).stdout.strip() == "idle",
               "Slurm has this node")
    barrier.wait()


def write_rank():
    environment = nccl.environment(CASE, DIRECTORY, NODE)
    words = [f"{os.environ['DOUBLE']}/job", "--rank", str(NODE), "--ranks", str(NODES), "--id", f"tcp:{ADDRESS[0]}:{PORT}", "--device", "0", "--plan",
             CASE.plan_path, "--log", f"{DIRECTORY}/job.{NODE}", *CASE.job_options]
    with open(RANK, "w", encoding="utf-8") as file:
        json.dump({"words": words, "environment": environment, "output": f"{DIRECTORY}/output.{NODE}"}, file)


def be_rank():
    """The recorder starts beside the job; on an emulated CPU that takes longer than the job's start."""
    log = os.path.join(SPOOL, os.environ["SLURM_JOB_ID"], "log")
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        with open(log, encoding="utf-8", errors="replace") as file:
            if "recording" in file.read().splitlines():
                break
        time.sleep(0.2)
    with open(RANK, encoding="utf-8") as file:
        rank = json.load(file)
    slurm = {name: value for name, value in os.environ.items() if name.startswith("SLURM")}
    output = os.open(rank["output"], os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.execve(rank["words"][0], rank["words"], {**rank["environment"], **slurm})


def state_of(job):
    said = subprocess.run(["scontrol", "show", "job", job, "--oneliner"], capture_output=True, text=True, check=False).stdout
    return dict(word.split("=", 1) for word in said.split() if "=" in word)


def inspection_of(job):
    """`collwire inspect` of the job on this node, as soon as its rank has a communicator; None: the job has ended before."""
    while state_of(job).get("JobState") in ("PENDING", "CONFIGURING", "RUNNING"):
        done = subprocess.run(["collwire", "inspect", "--job", job, "--json"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and (processes := json.loads(done.stdout)["processes"]) and processes[0]["communicators"]:
            return json.loads(done.stdout)
        time.sleep(0.5)
    return None


def main():
    barrier = nccl.prepare()
    os.mkdir(DIRECTORY)
    set_up(barrier)
    write_rank()
    barrier.wait()
    job = "1" # the first of this cluster
    if NODE == 0:
        step = f"srun --nodes={NODES} --ntasks={NODES} --ntasks-per-node=1 {os.path.abspath(__file__)} --rank"
        run("sbatch", f"--nodes={NODES}", "--output", f"{DIRECTORY}/batch", "--wrap", step)
    barrier.wait()
    result = {"inspection": inspection_of(job)}
    poll_until(lambda: state_of(job).get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"), "the job ends")
    poll_until(lambda: not os.path.exists(os.path.join(SPOOL, job, "pid")), "the epilog ends the recorder")
    result["job"] = state_of(job)
    run("scontrol", "show", "node", f"node{NODE}", status=None)
    shutil.copytree(os.path.join(SPOOL, job), os.path.join(DIRECTORY, "capture"))
    with open(os.path.join(DIRECTORY, "result.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    for path in glob.glob(os.path.join(DIRECTORY, "batch")) + [os.path.join(DIRECTORY, f"output.{NODE}"), os.path.join(DIRECTORY, "capture", "log")]:
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                print(f"--- {path}\n{file.read()[-1500:]}", flush=True)
    barrier.wait()
    sys.exit(0 if result["job"].get("JobState") == "COMPLETED" else 1)


if __name__ == "__main__":
    if sys.argv[1:] == ["--rank"]:
        be_rank()
    main()
