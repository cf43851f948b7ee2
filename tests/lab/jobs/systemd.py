#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package on nodes whose first process is systemd: installed, its service enabled and started; killed, and started again by systemd; official NCCL over
kernel RDMA recorded; the package installed once more while the service runs, and NCCL recorded again; stopped, removed, purged.

PACKAGE: the .deb. NCCL_LIBRARY, DOUBLE: as in nccl.py. $OUT/by-hand has a capture of a recorder that is no service, $OUT/first and $OUT/second have the
captures and logs of the two jobs, $OUT/result.json what systemd says after each step."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "nccl")]

import nccl
from cases import CASES
from lab_job import OUT, Alarm, poll_until

UNIT = "collwire-record.service"
STATE = "/var/lib/collwire"
SETTINGS = "/etc/default/collwire-record"
PROPERTIES = ("ActiveState", "SubState", "Result", "MainPID", "ExecMainStatus", "NRestarts", "UnitFileState", "LoadState", "MemoryCurrent", "TasksCurrent", "DeviceAllow")
FIRST, SECOND = (dataclasses.replace(CASES["training"], name=name, job_options=("--count", "3")) for name in ("first", "second"))


def run(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"$ {' '.join(words)}: {done.returncode}\n{done.stdout}", flush=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: status {done.returncode}")
    return done.stdout


def shown():
    said = subprocess.run(["systemctl", "show", "--property", ",".join(PROPERTIES), UNIT], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {**dict.fromkeys(PROPERTIES, ""), **dict(line.split("=", 1) for line in said.splitlines())} # empty lists are left out


def journal(*words):
    return subprocess.run(["journalctl", "--unit", UNIT, "--output", "cat", *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def recording_since(earlier):
    """Waits for a recorder other than that of process `earlier`. Returns what systemd says then."""
    def is_there():
        now = shown()
        return now["MainPID"] not in ("0", earlier) and "recording" in journal(f"_PID={now['MainPID']}").splitlines()
    poll_until(is_there, "the service records")
    return shown()


def captures():
    return {name for name in os.listdir(STATE) if name.endswith(".cwc")}


def run_ranks(case, barrier, alarm, port):
    directory = os.path.join(OUT, case.name)
    os.mkdir(directory)
    barrier.wait()
    statuses = nccl.Ranks(case, directory, port).wait(alarm)
    barrier.wait() # a recorder stops after the last packet of every node
    print(f"{case.name}: ranks {statuses}", flush=True)
    if any(statuses):
        raise RuntimeError(f"{case.name}: ranks {statuses}")


def keep(case, names):
    directory = os.path.join(OUT, case.name, "capture")
    os.mkdir(directory)
    for name in names:
        shutil.copy(os.path.join(STATE, name), directory)


def steps(barrier, alarm, steps_done):
    with open(SETTINGS, "w", encoding="utf-8") as file:
        file.write(f"COLLWIRE_OPTIONS=--nccl {os.environ['NCCL_LIBRARY']}\n")
    run("collwire", "record", "--nccl", os.environ["NCCL_LIBRARY"], "--duration", "1s", "-o", os.path.join(OUT, "by-hand", "capture"))
    run("dpkg", "--install", os.environ["PACKAGE"])
    steps_done["installed"] = shown()
    run("systemctl", "enable", "--now", UNIT)
    steps_done["started"] = recording_since("0")
    before = captures()
    run("systemctl", "kill", "--signal", "KILL", UNIT)
    steps_done["restarted"] = recording_since(steps_done["started"]["MainPID"])
    killed = before & captures()
    run_ranks(FIRST, barrier, alarm, nccl.FIRST_PORT)
    recorded = captures() - killed
    run("dpkg", "--install", os.environ["PACKAGE"])
    steps_done["upgraded"] = recording_since(steps_done["restarted"]["MainPID"])
    keep(FIRST, recorded)
    earlier = captures() & (killed | recorded)
    run_ranks(SECOND, barrier, alarm, nccl.FIRST_PORT + 1)
    steps_done["at-work"] = shown()
    run("systemctl", "stop", UNIT)
    steps_done["stopped"] = shown()
    keep(SECOND, captures() - earlier)
    steps_done["said"] = journal()
    run("dpkg", "--remove", "collwire")
    steps_done["removed"] = {**shown(), "captures": len(captures())}
    run("dpkg", "--purge", "collwire")
    steps_done["purged"] = {"left": [path for path in (STATE, SETTINGS) if os.path.exists(path)],
                            "failed": run("systemctl", "list-units", "--failed", "--plain", "--no-legend", "collwire*")}


def main():
    barrier = nccl.prepare()
    result = {}
    try:
        steps(barrier, Alarm(), result)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"{error}\n{journal()}", flush=True)
        sys.exit(1)
    finally:
        with open(os.path.join(OUT, "result.json"), "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    barrier.wait()


if __name__ == "__main__":
    main()
