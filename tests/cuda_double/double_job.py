# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the double: a process for each rank, on this machine."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import tempfile
import time

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
LOADER = "ld-linux-x86-64.so.2"


@contextlib.contextmanager
def signals_held():
    """Blocks signals, so that no handler raises between the start of a process and the line that stores it. Yields the earlier mask, which the process
    has to restore."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclasses.dataclass
class Job:
    library: str
    build: str
    ranks: int
    ranks_per_node: int = 1
    ranks_per_process: int = 1 # threads, each with a device of its own
    id_place: str = ""
    environment: dict = dataclasses.field(default_factory=dict)
    # Directory of the C library and loader that the library needs; empty: this machine's.
    c_library: str = ""
    limit_s: int = 240

    @property
    def processes(self):
        """The first rank of each process."""
        return range(0, self.ranks, self.ranks_per_process)

    def write_layout(self, directory):
        subprocess.run([f"{self.build}/nccl_layout", self.library, directory], check=True, stdout=subprocess.DEVNULL)

    def environment_of(self, rank, directory):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "COLLWIRE_CUDA_"))}
        environment.update({
            "LD_LIBRARY_PATH": ":".join(filter(None, (self.build, os.path.dirname(self.library), self.c_library))),
            "LD_PRELOAD": f"{self.build}/libcuda_double.so:{self.build}/libsend_counter.so",
            "NCCL_HOSTID": f"node{rank // self.ranks_per_node}",
            "NCCL_P2P_DISABLE": "1",
            "NCCL_IB_DISABLE": "1",
            "NCCL_NET_PLUGIN": "none",
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_MAX_NCHANNELS": "2",
            "NCCL_RAS_ENABLE": "0",
            "NCCL_DEBUG": "WARN",
            "COLLWIRE_CUDA_DEVICES": str(self.ranks_per_node),
            "COLLWIRE_CUDA_LAYOUTS": directory,
            "COLLWIRE_CUDA_LOG": f"{directory}/truth.{rank}",
            "SEND_COUNTER": f"{directory}/sent.{rank}",
            **self.environment,
        })
        return environment

    def command(self, program):
        return [f"{self.build}/{program}"]

    def start(self, rank, directory, program, arguments, mask=frozenset()):
        words = [f"{self.c_library}/{LOADER}"] if self.c_library else []
        words += [*self.command(program), "--rank", str(rank), "--ranks", str(self.ranks), "--id", self.id_place or f"file:{directory}/id",
                  "--device", str(rank % self.ranks_per_node), *arguments]
        if self.ranks_per_process > 1:
            words += ["--local-ranks", str(self.ranks_per_process)]
        if program == "job":
            words += ["--log", f"{directory}/job.{rank}"]
        with open(f"{directory}/output.{rank}", "w", encoding="utf-8") as output:
            return subprocess.Popen(words, env=self.environment_of(rank, directory), stdout=output, stderr=subprocess.STDOUT,
                                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask))


def output_of(directory, rank):
    with open(f"{directory}/output.{rank}", encoding="utf-8") as output:
        return output.read()


def wait_until_running(job, directory, processes):
    end = time.monotonic() + job.limit_s
    while not all(output_of(directory, rank).count("running") == job.ranks_per_process for rank in job.processes):
        assert time.monotonic() < end and all(process.poll() is None for process in processes), f"{job}: not running"
        time.sleep(0.1)


def wait_for_launches(job, directory, processes, n, patience_s):
    """Until each rank has made so many."""
    end = time.monotonic() + patience_s
    while min(len(lines_so_far(f"{directory}/truth.{rank}")) for rank in job.processes) < n:
        assert time.monotonic() < end and all(process.poll() is None for process in processes), f"{job}: it does not go on"
        time.sleep(0.1)


def wait_for_traced(job, directory, processes, n, since_ns=0):
    """Until each process has ended so many kernels of NCCL that CUPTI records, launched since then (CLOCK_MONOTONIC)."""
    def traced(first):
        return sum(line["event"] == "kernel" and line["nccl"] and line["record"] == "recorded" and line["launched_ns"] >= since_ns
                   for line in lines_so_far(f"{directory}/cupti.{first}"))
    end = time.monotonic() + job.limit_s
    while min(traced(first) for first in job.processes) < n:
        assert time.monotonic() < end and all(process.poll() is None for process in processes), f"{job}: CUPTI does not record {n} kernels"
        time.sleep(0.1)


def expect_right_data(directory, processes, patience_s):
    """The ranks end well, and say that the data was right."""
    for process in processes:
        process.wait(timeout=patience_s)
    for rank, process in enumerate(processes):
        text = output_of(directory, rank)
        assert process.returncode == 0 and "all data right" in text, f"rank {rank}: exit {process.returncode}\n{text[-2000:]}"


def run_job(job, directory, program, arguments, end_after_s=None):
    """Runs the job to its end, with logs and counts of the ranks in the directory. `end_after_s`: after it the last rank gets SIGTERM."""
    job.write_layout(directory)
    processes = []
    try:
        for rank in job.processes:
            with signals_held() as mask:
                processes.append(job.start(rank, directory, program, arguments, mask))
        if end_after_s is not None:
            wait_until_running(job, directory, processes)
            time.sleep(end_after_s)
            processes[-1].send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=job.limit_s)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, process in zip(job.processes, processes):
        text = output_of(directory, rank)
        assert process.returncode == 0 and text.count("all data right") == job.ranks_per_process, f"{job} rank {rank}: exit {process.returncode}\n{text[-2000:]}"


def run_late_load(job):
    """One process with all the job's devices. Returns what it printed."""
    with tempfile.TemporaryDirectory() as directory:
        job.write_layout(directory)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "late_load.py")
        done = subprocess.run(["/usr/bin/python3", script, job.library, "--devices", str(job.ranks), "--wait", "0.2"],
                              env=job.environment_of(0, directory), capture_output=True, text=True, timeout=job.limit_s, check=False)
        assert done.returncode == 0 and "all data right" in done.stdout, f"{job}: {done}"
        return done.stdout + done.stderr


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def lines_so_far(path):
    """The complete lines of a file that may still be written. Empty: not there yet."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def realtime_ahead_ns():
    """CLOCK_REALTIME less CLOCK_MONOTONIC, of the closest pair of readings: the scheduler may hold this process between two."""
    pairs = []
    for _ in range(20):
        before_ns, realtime_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        pairs.append((after_ns - before_ns, realtime_ns - (before_ns + after_ns) // 2))
    return min(pairs)[1]


def counted_bytes(job, arguments):
    """For every rank: (bytes in the double's log, posts in it, bytes given to send())."""
    with tempfile.TemporaryDirectory() as directory:
        run_job(job, directory, "collectives", arguments)
        counts = []
        for rank in range(job.ranks):
            sends = [connection for kernel in lines_of(f"{directory}/truth.{rank}") for connection in kernel["connections"]
                     if connection["direction"] == "send"]
            with open(f"{directory}/sent.{rank}", encoding="utf-8") as sent:
                counts.append((sum(connection["bytes"] for connection in sends), sum(connection["posts"] for connection in sends),
                               int(sent.read().split()[0])))
        return counts


def version_of(library):
    with open(library, "rb") as file:
        return tuple(int(part) for part in re.search(rb"NCCL version (\d+)\.(\d+)\.(\d+)", file.read()).groups())


def fetched(version):
    answer = subprocess.run([os.path.join(TOOLS, "fetch-nccl"), version], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr.strip())
    return answer.stdout.strip()
