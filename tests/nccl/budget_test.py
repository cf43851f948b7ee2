#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire record --budget`. Under 50,000 NCCL operations a second the probes take at most 1.1 times the budget, by the kernel's count of the programs'
runs and this test's own measurement of a trap; the capture and the report name what was taken off, and do not show operations of later. A budget that is
never reached changes nothing: the reports of two recorders of one job have the same figures.

budget_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY]"""

import contextlib
import ctypes
import glob
import json
import os
import re
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import double_job

RATE, SHARE, TOLERANCE = 50_000, 0.003, 1.1
RECORDED_S, LEAST_RECORDED_S = 11, 10
BPF_ENABLE_STATS, BPF = 32, 321  # enum bpf_cmd, system call (x86-64)
KPROBE = 2  # enum bpf_prog_type: of uprobes, too
LATER_NS = 1_000_000_000  # after what was taken off: the breakpoints are gone
EQUAL_PARTS = ("communicators", "identity", "matrix", "tiers", "total", "control", "findings", "nccl", "sockets", "loss")


@contextlib.contextmanager
def kernel_counts():
    """The kernel counts runs of BPF programs meanwhile, whether the recorder asks for it or not."""
    attributes = ctypes.create_string_buffer(128)
    file = ctypes.CDLL(None, use_errno=True).syscall(BPF, BPF_ENABLE_STATS, attributes, 128)
    if file < 0:
        raise one_machine.Skip(f"BPF_ENABLE_STATS: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        os.close(file)


def waited_s(pid):
    """How long the threads of a process have waited for a CPU so far: the recorder can take nothing off meanwhile."""
    waited_ns = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            waited_ns += int(file.read().split()[1])
    return waited_ns / 1e9


class Programs(threading.Thread):
    """Runs and run time of the uprobes' programs that a process holds, read again and again from outside, until the end of the block."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.over, self.seen, self.reads = pid, threading.Event(), {}, []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def run(self):
        while not self.over.is_set():
            self.read()
            self.over.wait(0.05)

    def read(self):
        for path in glob.glob(f"/proc/{self.pid}/fdinfo/*"):
            with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
                fields = dict(re.findall(r"(\w+):\s*(\w+)", file.read()))
                if fields.get("prog_type") == str(KPROBE) and "run_cnt" in fields:
                    self.seen[fields["prog_id"]] = (int(fields["run_cnt"]) + int(fields.get("recursion_misses", 0)), int(fields["run_time_ns"]))
        self.reads.append((time.monotonic(), *map(sum, zip((0, 0), *self.seen.values()))))


def start_load(arguments, library, directory, seconds):
    job = double_job.Job(library, arguments.build, 1)
    job.write_layout(directory)
    words = [f"{arguments.build}/steady_calls", library, str(RATE), str(seconds)]
    return subprocess.Popen(words, env=job.environment_of(0, directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def dumped(collwire, capture):
    files = [f"{capture}/{name}" for name in sorted(os.listdir(capture))]
    done = subprocess.run([collwire, "dump", *files], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_load(arguments, library, directory):
    trap_ns = min(float(subprocess.run([f"{arguments.build}/steady_calls", "--trap"], stdout=subprocess.PIPE, check=True).stdout) for _ in range(3))
    capture = f"{directory}/budget"
    with kernel_counts(), start_load(arguments, library, directory, RECORDED_S + 60) as load:
        try:
            assert "running\n" in iter(load.stdout.readline, ""), "the load did not start"  # after NCCL's own lines
            recorder = one_machine.Recorder(arguments.collwire, capture, "--nccl", library, "--pid", str(load.pid), "--budget", f"{SHARE * 100:g}%")
            begin_s, begin_waited_s = time.monotonic(), waited_s(recorder.process.pid)
            with recorder, Programs(recorder.process.pid) as programs:
                load.stdin.write("go\n")
                load.stdin.flush()
                time.sleep(RECORDED_S)
                programs.read()
                end_s, not_run_s = time.monotonic(), waited_s(recorder.process.pid) - begin_waited_s
                assert load.poll() is None, "the load has ended"
        finally:
            load.kill()
    _, runs, run_time_ns = programs.reads[-1]
    taken_ns = runs * trap_ns + run_time_ns
    share = taken_ns / 1e9 / (end_s - begin_s)
    # What the probes take while nothing is taken off.
    highest = max(((n - m) * trap_ns + now_ns - then_ns) / 1e9 / (at - before) for (before, m, then_ns), (at, n, now_ns)
                  in zip(programs.reads, programs.reads[1:]) if at - before > 0.02)
    most = TOLERANCE * SHARE + highest * max(0.0, not_run_s) / (end_s - begin_s)
    last = [(run, at) for at, run, _ in programs.reads if run < runs]
    print(f"a trap takes {trap_ns:.0f} ns here; {runs} runs, {run_time_ns / 1e6:.1f} ms in programs: {share * 100:.3f} % of one CPU in "
          f"{end_s - begin_s:.1f} s, budget {SHARE * 100:g} %, at most {most * 100:.3f} %, since the recorder waited {not_run_s * 1e3:.0f} ms for a CPU; the "
          f"last run {last[-1][1] - begin_s if last else 0:.1f} s after the start")
    print(recorder.said())
    # 50,000 a second for the whole time would be far above it.
    assert RATE * RECORDED_S * trap_ns / 1e9 > 3 * SHARE * RECORDED_S, "the load is too small for this test"
    assert runs > 1000 and end_s - begin_s >= LEAST_RECORDED_S and share <= most, (share, most)
    assert "nccl: --budget 0.3%: probes (operations) were taken off" in recorder.said(), "the recorder does not say what it took off"
    assert re.search(r"budget 0\.3%: probes took .*Taken off: nccl operations after", recorder.said()), "the recorder does not sum up"
    check_capture(arguments, capture, directory, load.pid)


def check_capture(arguments, capture, directory, pid):
    records = dumped(arguments.collwire, capture)
    off = [record for record in records if record["kind"] == "probe" and "taken_off" in record["flags_names"]]
    off_ns = min(record["time_ns"] for record in off)
    assert "ncclEnqueueCheck" in {record["function"] for record in off}, off
    calls = [record["time_ns"] for record in records if record["kind"] == "nccl_call" and record["tgid"] == pid]
    assert calls and max(calls) < off_ns + LATER_NS, (len(calls), max(calls, default=0), off_ns)
    states = [record for record in records if record["kind"] == "source" and record["name"] == "nccl"]
    assert states[-1]["state_name"] == "degraded" and "--budget" in states[-1]["reason"], states[-1]
    words = [arguments.collwire, "report", capture]
    text = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout
    head = " ".join(text[:text.index("How sure")].split())
    assert re.search(r"0x\w+ .* [\d,]+ \(incomplete\)", text), text
    assert "source nccl is degraded" in head and "--budget 0.3%: probes (operations) were taken off" in head, head
    subprocess.run([*words, "--json", f"{directory}/budget.json"], check=False)
    with open(f"{directory}/budget.json", encoding="utf-8") as file:
        report = json.load(file)
    assert any(source["name"] == "nccl" and source["state"] == "degraded" for source in report["sources"]), report["sources"]


def figures_of(report):
    """Without times, and without NCCL's parameters: each recorder reads them at another moment, and NCCL sets them when it first needs them."""
    def cleaned(value):
        if isinstance(value, dict):
            return {key: cleaned(each) for key, each in value.items() if not key.endswith("_ns") and key != "parameters"}
        if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
            return "a time"
        return sorted(map(cleaned, value), key=json.dumps) if isinstance(value, list) else value  # in the order of their records
    figures = {part: cleaned(report[part]) for part in EQUAL_PARTS if part in report}
    # When an operation ended is sampled.
    for part in ("collectives", "p2p"):
        figures[part] = [[operation.get(name) for name in ("op", "seq", "ranks", "tx_payload_bytes", "rung")] for operation in report[part]]
    assert figures["collectives"] and any(operation[3] for operation in figures["collectives"])
    return figures


def are_rings_known(figures):
    """They are read when the communicator is recorded: a recorder that waits too long for a CPU finds the process ended."""
    return all(channel["ring"] for comm in figures["communicators"] for channel in comm["channels"])


def check_nothing_taken(arguments, library, directory):
    job = double_job.Job(library, arguments.build, 2)

    def is_judged(place):
        reports, _, said = one_machine.record_at_once(arguments.collwire, job, place, ["--plan", os.path.join(cases.JOBS, "ring.job")],
                                                      {"without": [], "with": ["--budget", "100%"]})
        assert "Taken off: nothing" in said["with"], said["with"]
        without, with_budget = (figures_of(reports[name]) for name in ("without", "with"))
        if not are_rings_known(without) or not are_rings_known(with_budget):
            return False
        for part, figures in without.items():
            assert figures == with_budget[part], f"{part} differs:\n{json.dumps(figures)[:2000]}\n{json.dumps(with_budget[part])[:2000]}"
        print(f"a budget that is not reached: {', '.join(without)} are equal in both reports")
        return True
    one_machine.judge_one(is_judged, directory, "a recorder was too late for the rings")


def run(arguments, library, directory):
    check_load(arguments, library, directory)
    check_nothing_taken(arguments, library, directory)


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
