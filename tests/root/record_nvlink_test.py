#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire record` and `doctor` on the test double of NVML: every answer is in the capture with its reading, an ill GPU is given up, and the recorder
ends in time although NVML does not return.

record_nvlink_test.py COLLWIRE NVML_DOUBLE"""

import json
import os
import subprocess
import sys
import tempfile
import time

import own_recorder
from own_recorder import wait_until

COLLWIRE, DOUBLE = sys.argv[1:3]
KIB = 1024
TRIES = 3
DATA_TX, DATA_RX, RECOVERY, ALL = 138, 139, 162, None
GPUS = ("0000:1b:00.0", "0000:dc:00.0")


class Machine:
    """The double's state, and how to run collwire on it."""

    def __init__(self, directory):
        self.directory = directory
        self.path = os.path.join(directory, "state")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(DOUBLE), "COLLWIRE_NVML_DOUBLE": self.path}

    def say(self, sent_kib, received_kib=0, recoveries=0, blocked=()):
        """Of both GPUs the same."""
        lines = []
        for number, address in enumerate(GPUS):
            lines += [f"gpu {address} GPU-{number}", "field 91 0 2 u32", f"field {DATA_TX} all {sent_kib}", f"field {DATA_RX} all {received_kib}",
                      f"field {RECOVERY} 0 0 u32", f"field {RECOVERY} 1 {recoveries} u32", "field 165 0 1 u32", "field 165 1 1 u32"]
            lines += ["block"] if number in blocked else []
        with open(f"{self.path}.next", "w", encoding="utf-8") as state:
            state.write("\n".join(lines) + "\n")
        os.rename(f"{self.path}.next", self.path)

    def run(self, *words):
        return subprocess.run([COLLWIRE, *words], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


class Recorder(own_recorder.Recorder):
    def __init__(self, machine, name):
        self.machine = machine
        super().__init__(COLLWIRE, os.path.join(machine.directory, name), "--gpu=signal", environment=machine.environment)

    def end_well(self):
        """How long it took."""
        status, took_s = self.end()
        assert status == 0, self.said()
        return took_s

    def dump(self):
        return [json.loads(line) for line in self.machine.run("dump", self.directory).stdout.splitlines()]

    def report(self):
        path = f"{self.directory}.json"
        done = self.machine.run("report", self.directory, "--json", path)
        assert done.returncode == 0, done
        with open(path, encoding="utf-8") as report:
            return json.load(report)["nvlink"]

    def samples(self):
        return [record for record in self.dump() if record["kind"] == "nvlink_sample"]

    def gpus_read_since(self, since_ns):
        return {sample["gpu"] for sample in self.samples() if sample["read_begin_ns"] >= since_ns}


def users_of_the_double():
    users = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
                users += [pid] if os.path.realpath(DOUBLE) in maps.read() else []
        except OSError:
            continue  # it has exited, or is the kernel's
    return users


def record_counters(machine, name):
    """The recorder, after its end, and whether its last reading was in time: it waits for half a second for the process that runs NVML."""
    machine.say(1000, 500)
    recorder = Recorder(machine, name)
    wait_until(lambda: recorder.gpus_read_since(0) == {0, 1}, "the first reading")
    machine.say(3000, 900, recoveries=4)
    wait_until(lambda: any(value["value"] == 3000 for sample in recorder.samples() for value in sample["values"]), "the new value is in the capture")
    machine.say(3001, 900, recoveries=5)
    since_ns = time.monotonic_ns()
    recorder.end_well()  # its last reading has this
    return recorder, recorder.gpus_read_since(since_ns) == {0, 1}


def test_counters(machine):
    for number in range(TRIES):
        recorder, is_in_time = record_counters(machine, f"counters{number}")
        if is_in_time:
            break
        print(f"the last reading was not there after {recorder.took_s:.1f} s: recorded again", flush=True)
    assert is_in_time, "no recorder has a last reading"
    records = recorder.dump()
    gpus = {record["gpu"]: record for record in records if record["kind"] == "nvlink_gpu"}
    assert [gpus[i]["uuid"] for i in sorted(gpus)] == ["GPU-0", "GPU-1"], gpus
    assert gpus[1]["bus_id"] == 0xdc000, gpus
    assert not [record for record in records if record["kind"] == "nvlink_gap"]
    for sample in recorder.samples():
        assert sample["read_begin_ns"] <= sample["time_ns"], sample
    refused = [value for sample in recorder.samples() for value in sample["values"] if value["field"] == 202]
    assert refused and all(value["result_name"] == "not_supported" and value["value"] is None for value in refused), refused
    state = {record["name"]: record["state_name"] for record in records if record["kind"] == "source"}
    assert state["nvlink"] == "on" and "xid" in state, state
    reported = recorder.report()["gpus"]
    assert [gpu["pci_address"] for gpu in reported] == list(GPUS), reported
    for gpu in reported:
        assert gpu["tx_bytes"] == 2001 * KIB and gpu["rx_bytes"] == 400 * KIB, gpu
        assert gpu["includes"] == "payload" and gpu["windows"] is None, gpu
        assert gpu["links"][1]["counters"]["error_dl_recovery"]["increase"] == 5, gpu


def test_ill_gpu(machine):
    machine.say(10)
    recorder = Recorder(machine, "ill")
    wait_until(recorder.samples, "a reading")
    machine.say(20, blocked=(0,))
    wait_until(lambda: "0000:1b:00.0: NVML gave no answer" in recorder.said(), "the silent GPU is named")
    ticks = [record["time_ns"] for record in recorder.dump() if record["kind"] == "source"]
    assert ticks, "the recorder goes on"
    assert recorder.end_well() < 10, "the recorder waited for NVML"
    wait_until(lambda: not users_of_the_double(), "the process that runs NVML has exited")
    gaps = [record for record in recorder.dump() if record["kind"] == "nvlink_gap"]
    assert gaps[0]["reason_name"] == "no_answer" and gaps[0]["gpu"] == 0, gaps
    assert recorder.report()["gpus"][0]["unmeasured_ns"] > 0


def test_dry_run_and_doctor(machine):
    machine.say(10)
    dry = machine.run("record", "--dry-run", "--no-nccl", "--gpu=signal")
    assert "nvlink\n  on\n" in dry.stdout and "GPU 0000:1b:00.0: nvml_double, NVLinks: 2" in dry.stdout, dry
    without = machine.run("record", "--dry-run", "--no-nccl", "--gpu=signal", "--no-nvlink")
    assert "nvlink" not in without.stdout, without
    checks = {check["name"]: check for check in json.loads(machine.run("doctor", "--json").stdout)["checks"]}
    assert checks["NVLink"]["found"] == "0000:1b:00.0: 2 NVLinks, 2 up; 0000:dc:00.0: 2 NVLinks, 2 up", checks["NVLink"]
    assert "kernel log" in checks, checks


def main():
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(directory)
        for test in (test_counters, test_ill_gpu, test_dry_run_and_doctor):
            test(machine)
            print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
