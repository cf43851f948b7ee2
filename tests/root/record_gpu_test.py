#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire record --gpu` with a test double of the guest library: each item that it hands over is in the capture, once, with each field as it was.

record_gpu_test.py COLLWIRE FAKE_GPU_PROCESS FAKE_GPU_GUEST"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import own_recorder
from own_recorder import wait_until

import busy_machine  # in tests/support, as own_recorder has set the path

COLLWIRE, PROCESS, LIBRARY = sys.argv[1:4]
LOST = 5
GOOD, BAD, IDLE, DEAF = range(4)
NS = 1_000_000_000
INJECTION = "CUDA_INJECTION64_PATH"
PROFILER = "NCCL_PROFILER_PLUGIN"
# In a record of each kind, the struct with the item.
ITEMS = {"gpu_kernel": "kernel", "gpu_name": "name", "gpu_window": "window", "gpu_trace": "state", "gpu_channel": "channel"}
ARMED, DISARMED = 1, 2


class Guest:
    """A process with the double, and its log."""

    def __init__(self, directory, name, mode, poll_us=20_000):
        self.log = os.path.join(directory, f"{name}.log")
        self.process = subprocess.Popen([PROCESS, LIBRARY, self.log, str(poll_us), str(mode)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=own_recorder.LIMIT_S)

    def semaphore(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def logged(self):
        with open(self.log, encoding="utf-8") as log:
            return [json.loads(line) for line in log if line.endswith("\n")]

    def wait_for_last_state(self):
        """Its log has what it handed over at its end. It writes that after the recorder may have it."""
        wait_until(lambda: (self.logged() or [{}])[-1].get("state") == DISARMED, "the guest's last state")

    def kernels(self):
        """Without reading each line: the log grows meanwhile."""
        with open(self.log, encoding="utf-8") as log:
            return sum("gpu_kernel" in line for line in log)


class Recorder(own_recorder.Recorder):
    def __init__(self, directory, *options):
        super().__init__(COLLWIRE, directory, *options)

    def segments(self):
        return sorted(os.path.join(self.directory, name) for name in os.listdir(self.directory))

    def dump(self, capture=None):
        done = subprocess.run([COLLWIRE, "dump", capture or self.directory], stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


def items(records, pid):
    """As the guest logs them, in the order of the capture."""
    found = []
    for record in records:
        if record["kind"] in ITEMS and record["tgid"] == pid:
            item = {key: value for key, value in record[ITEMS[record["kind"]]].items() if not key.endswith(("_name", "_names")) or key == "unknown_names"}
            found.append({"kind": record["kind"], **item})
    return found


def losses(records):
    """By class: the last count of each CPU, added up."""
    last = {(record["loss_class_name"], record["cpu"]): record["records"] for record in records if record["kind"] == "loss"}
    return {name: sum(count for (other, _), count in last.items() if other == name) for name, _ in last}


def has_waited_in_vain(guest, recorder, records):
    """The guest got no CPU for the 1.5 s that a recorder waits for it: its last state is from after the recording."""
    end_ns = next(record["time_ns"] for record in records if record["kind"] == "end")
    return recorder.took_s > 1.4 and guest.logged()[-1]["begin_ns"] > end_ns


def check_equal(guest, recorder, least_kernels=1):
    guest.wait_for_last_state()
    records = recorder.dump()
    recorded, logged = items(records, guest.process.pid), guest.logged()
    if has_waited_in_vain(guest, recorder, records):
        logged = logged[: len(recorded)]
    assert sum(item["kind"] == "gpu_kernel" for item in logged) >= least_kernels, "the guest handed over nothing"
    assert recorded == logged, f"{len(recorded)} recorded, {len(logged)} handed over; first difference: " + str(
        next((pair for pair in zip(recorded, logged) if pair[0] != pair[1]), "one is longer"))
    assert not losses(records), losses(records)
    return records


def check_all(directory):
    """A guest that runs before the recorder: all items until it is disarmed, then none. The recorder waits for the last ones."""
    with Guest(directory, "all", GOOD) as guest:
        assert guest.semaphore() == 0
        recorder = Recorder(f"{directory}/all", "--gpu")
        assert guest.semaphore() == 1
        wait_until(lambda: guest.kernels() > 1000, "1,000 kernels")
        status, _ = recorder.end()
        assert status == 0, recorder.said()
        assert guest.semaphore() == 0
        records = check_equal(guest, recorder, 1000)
    assert items(records, guest.process.pid)[-1].get("state") == DISARMED or has_waited_in_vain(guest, recorder, records)
    probes = [record for record in records if record["kind"] == "probe" and record["source"] == "gpu"]
    assert {probe["function"] for probe in probes if "placed" in probe["flags_names"]} >= {"collwire_gpu_batch"}, probes
    assert any("gpu" in record["flags_names"] for record in records if record["kind"] == "node")
    start_ns = next(record["record_start_ns"] for record in records if record["kind"] == "node")
    end_ns = next(record["time_ns"] for record in records if record["kind"] == "end")
    times = [record["time_ns"] for record in records if record["kind"] in ITEMS]
    assert start_ns <= min(times) and max(times) <= end_ns


def check_late(directory):
    """A guest that starts during the recording."""
    recorder = Recorder(f"{directory}/late", "--gpu")
    with Guest(directory, "late", GOOD) as guest:
        wait_until(lambda: guest.kernels() > 200, "200 kernels")
        assert recorder.end()[0] == 0, recorder.said()
        check_equal(guest, recorder, 200)


def check_kill(directory):
    """A guest that is killed in the middle: what it handed over is there, and nobody waits for it."""
    with Guest(directory, "kill", GOOD) as guest:
        recorder = Recorder(f"{directory}/kill", "--gpu")
        wait_until(lambda: guest.kernels() > 2000, "2,000 kernels")
        guest.process.kill()
        guest.process.wait()
        status, took_s = recorder.end()
        assert status == 0, recorder.said()
        assert busy_machine.is_within(took_s, 1.4), f"waited {took_s:.1f} s for a process that was killed"
        recorded, logged = items(recorder.dump(), guest.process.pid), guest.logged()
        assert recorded[: len(logged)] == logged


def check_bad(directory):
    """Hand-overs of unknown forms are counted, and harmless."""
    with Guest(directory, "bad", BAD) as guest:
        recorder = Recorder(f"{directory}/bad", "--gpu")
        wait_until(lambda: len([line for line in guest.logged() if "bad" in line]) > 3, "bad hand-overs")
        status, _ = recorder.end()
        assert status == LOST, recorder.said()
        guest.wait_for_last_state()
        records = recorder.dump()
        bad = [line for line in guest.logged() if "bad" in line]
        lost = losses(records)
        assert lost == {"gpu_batch": sum(line["bad"] for line in bad), "gpu": sum(line["unreadable"] for line in bad)}, (lost, len(bad))
        assert {item["kind"] for item in items(records, guest.process.pid)} == {"gpu_trace"}
        assert guest.process.poll() is None


def check_deaf(directory):
    """A guest that never says that it is disarmed delays the end by 1.5 s, and no more."""
    with Guest(directory, "deaf", DEAF) as guest:
        recorder = Recorder(f"{directory}/deaf", "--gpu")
        wait_until(lambda: guest.kernels() > 100, "100 kernels")
        status, took_s = recorder.end()
        assert status == 0, recorder.said()
        assert 1.4 < took_s and busy_machine.is_within(took_s, 3.5), took_s


def check_nobody(directory):
    """Without a guest the end is not delayed, and the capture says that nothing was traced."""
    recorder = Recorder(f"{directory}/nobody", "--gpu")
    status, took_s = recorder.end()
    assert status == 0 and busy_machine.is_within(took_s, 1.4), took_s
    return [record["reason"] for record in recorder.dump() if record["kind"] == "source" and record["name"] == "gpu"]


class Seen:
    """How long a guest was armed, as far as looks at it show that: this process, too, may wait for a CPU between two."""

    def __init__(self, guest):
        self._guest, self._times = guest, [(time.monotonic(), time.monotonic(), guest.semaphore())]

    def look(self):
        begin_s = time.monotonic()
        value = self._guest.semaphore()
        self._times.append((begin_s, time.monotonic(), value))
        return value

    def armed_s(self):
        """(least, most)"""
        armed = [number for number, (_, _, value) in enumerate(self._times) if value == 1]
        first, last = armed[0], armed[-1]
        return self._times[last][0] - self._times[first][1], self._times[last + 1][1] - self._times[first - 1][0]


def check_signal(directory):
    with Guest(directory, "signal", GOOD) as guest:
        recorder = Recorder(f"{directory}/signal", "--gpu=signal")
        assert guest.semaphore() == 0
        for n in (1, 2):
            seen = Seen(guest)
            recorder.process.send_signal(signal.SIGUSR1)
            wait_until(lambda seen=seen: seen.look() == 1, "armed")
            wait_until(lambda seen=seen: seen.look() == 0, "disarmed")
            least_s, most_s = seen.armed_s()
            assert 1.5 < most_s and busy_machine.is_within(least_s, 3.5), (least_s, most_s)
            wait_until(lambda n=n: sum(item.get("state") == DISARMED for item in guest.logged()) == n, "the guest's last state")
        assert recorder.end()[0] == 0, recorder.said()
        check_equal(guest, recorder)


def check_rotation(directory):
    """Each segment has the names and the last state before its kernels, so it needs no earlier one."""
    with Guest(directory, "rotation", GOOD, poll_us=5_000) as guest:
        recorder = Recorder(f"{directory}/rotation", "--gpu", "--max", "256KiB")
        wait_until(recorder.segments, "the first segment")
        first = recorder.segments()[0]
        wait_until(lambda: not os.path.exists(first) and len(recorder.segments()) > 2, "the first segment is deleted")
        assert recorder.end()[0] == 0, recorder.said()
        names = {item["name"] for item in guest.logged() if item["kind"] == "gpu_name"}
        for segment in recorder.segments():
            found = items(recorder.dump(segment), guest.process.pid)
            # The last segment may begin after the last kernel.
            first_item = next((number for number, item in enumerate(found) if item["kind"] == "gpu_kernel" or item.get("state") == DISARMED), len(found))
            before = found[:first_item]
            assert {item["name"] for item in before if item["kind"] == "gpu_name"} == names, f"{segment}: {before}"
            assert [item["state"] for item in before if item["kind"] == "gpu_trace"] == [ARMED], f"{segment}: {before}"


def check_slices(directory):
    """Each slice starts at a multiple of the period of the wall clock."""
    period_s = 2
    with Guest(directory, "slices", GOOD) as guest:
        recorder = Recorder(f"{directory}/slices", "--gpu=slices:1s/2s")
        wait_until(lambda: sum(item.get("state") == DISARMED for item in guest.logged()) >= 3, "three slices")
        assert recorder.end()[0] == 0, recorder.said()
        records = check_equal(guest, recorder)
    clock = next(record for record in records if record["kind"] == "clock")
    starts = [item["begin_ns"] + clock["realtime_ns"] - clock["time_ns"] for item in items(records, guest.process.pid) if item.get("state") == ARMED]
    assert len(starts) >= 3
    for start_ns in starts:
        assert busy_machine.is_within(start_ns % (period_s * NS) / NS, 0.5), starts


def check_dry_run(directory):
    with Guest(directory, "dry", GOOD) as guest:
        done = subprocess.run([COLLWIRE, "record", "--no-nccl", "--gpu", "--dry-run"], stdout=subprocess.PIPE, text=True, check=True)
        assert guest.semaphore() == 0
        for words in (f"process {guest.process.pid} has libcollwire_cupti.so loaded", "32 MiB", "not measured", "collwire_gpu_batch", "collwire_gpu_arm"):
            assert words in done.stdout, (words, done.stdout)


def check_pid(directory):
    """With --pid other processes are neither armed nor recorded."""
    with Guest(directory, "pid", GOOD) as wanted, Guest(directory, "other", GOOD) as other:
        recorder = Recorder(f"{directory}/pid", "--gpu", "--pid", str(wanted.process.pid))
        assert (wanted.semaphore(), other.semaphore()) == (1, 0)
        wait_until(lambda: wanted.kernels() > 100, "100 kernels")
        assert recorder.end()[0] == 0, recorder.said()
        assert (wanted.semaphore(), other.semaphore()) == (0, 0)
        records = check_equal(wanted, recorder, 100)
        assert not items(records, other.process.pid) and not other.logged()


def check_recorder_killed(directory):
    """A recorder that is killed leaves no guest armed, and the next one finds nothing of it."""
    with Guest(directory, "orphan", GOOD) as guest:
        for n in range(3):
            recorder = Recorder(f"{directory}/orphan{n}", "--gpu")
            assert guest.semaphore() == 1
            recorder.process.kill()
            recorder.process.wait()
            wait_until(lambda: guest.semaphore() == 0, "disarmed")
        recorder = Recorder(f"{directory}/orphan", "--gpu")
        before = len(guest.logged())
        wait_until(lambda: len(guest.logged()) > before + 100, "100 items")
        assert recorder.end()[0] == 0 and guest.semaphore() == 0, recorder.said()


def run_with(injected, *command, **more):
    environment = {**{key: value for key, value in os.environ.items() if key not in (INJECTION, PROFILER, "NCCL_CONF_FILE")}, **more}
    if injected is not None:
        environment[INJECTION] = injected
    return subprocess.run([COLLWIRE, "run", *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def check_run(directory):
    """`collwire run` becomes a command with the library's path in its environment, for CUDA's driver and for NCCL. Another tool's file keeps its place."""
    show = ("--", "sh", "-c", f"echo $$ ${INJECTION} ${PROFILER}; exit 7")
    library = os.path.join(os.path.dirname(os.path.realpath(COLLWIRE)), "libcollwire_cupti.so")
    assert os.path.exists(library), f"{library}: not built"
    other, empty = os.path.join(directory, "other.so"), os.path.join(directory, "no-home")

    def refused(injected, *words, **more):
        done = run_with(injected, *words, HOME=empty, **more)
        assert done.returncode == 2 and done.stdout == "" and "Fix: " in done.stderr and done.stderr.count("\n") == 1, (words, more, done)

    for injected in (None, "", library):
        done = run_with(injected, *show, HOME=empty)
        assert done.returncode == 7 and done.stdout.split()[1:] == [library] and not done.stderr, done
        done = run_with(injected, "--nccl-profiler", *show, HOME=empty)
        assert done.returncode == 7 and done.stdout.split()[1:] == [library, library] and not done.stderr, done
    done = run_with(other, "--nccl-profiler", *show, HOME=empty)
    assert done.returncode == 7 and done.stdout.split()[1:] == [other, library], done
    done = run_with(None, *show, HOME=empty, **{PROFILER: other})
    assert done.returncode == 7 and done.stdout.split()[1:] == [library, other], done
    configured, plugins = os.path.join(directory, "nccl.conf"), os.path.join(directory, "plugins")
    os.mkdir(plugins)
    for path, text in ((configured, f"{PROFILER}={other}\n"), (os.path.join(plugins, "libnccl-profiler.so"), "")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    for theirs in ({PROFILER: other}, {PROFILER: "none"}, {"NCCL_CONF_FILE": configured}, {"LD_LIBRARY_PATH": f"/nowhere:{plugins}"}):
        refused(None, "--nccl-profiler", *show, **theirs)
    for words, injected in ((show, other), (("--", "/nowhere/command"), None), ((), None), (("sh",), None)):
        refused(injected, *words)
    alone = shutil.copy(COLLWIRE, directory)
    done = subprocess.run([alone, "run", *show], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "libcollwire_cupti.so" in done.stderr and "Fix: " in done.stderr, done


def check_doctor(directory):
    with Guest(directory, "doctor", IDLE) as guest:
        done = subprocess.run([COLLWIRE, "doctor", "--json"], stdout=subprocess.PIPE, text=True, check=False)
        found = next(check["found"] for check in json.loads(done.stdout)["checks"] if check["name"] == "GPU trace")
        assert f"loaded in process {guest.process.pid}" in found, found


def check_usage():
    for option in ("--gpu=sometimes", "--gpu=slices:2s", "--gpu=slices:2s/2s", "--gpu=slices:0s/60s", "--gpu=slices:x/60s", "--gpu=stall:x", "--gpu=stall:0s", "--gpu=stalls"):
        done = subprocess.run([COLLWIRE, "record", option, "--dry-run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and "Fix: " in done.stderr, (option, done.stderr)


def main():
    if os.geteuid() != 0:
        own_recorder.skip("recording needs root")
    check_usage()
    with tempfile.TemporaryDirectory() as directory:
        for check in (check_all, check_late, check_kill, check_bad, check_deaf, check_nobody, check_signal, check_rotation, check_slices, check_pid, check_recorder_killed,
                      check_dry_run, check_run, check_doctor):
            since_s = time.monotonic()
            check(directory)
            print(f"{check.__name__}: {time.monotonic() - since_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
