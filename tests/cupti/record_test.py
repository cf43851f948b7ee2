#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire record --gpu` of official NCCL with the guest library, on the doubles of CUDA and CUPTI: each kernel of NCCL has its launch, and the report
has the waits and the last ranks that the doubles' logs have.

record_test.py --collwire FILE --build DIRECTORY --version VERSION [--cases NAME,...] [--cupti 12|13] [--only-full] [--keep DIRECTORY]"""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("cuda_double", "cupti_double", "nccl")]

import double_job # pylint: disable=wrong-import-position
import gpu_truth # pylint: disable=wrong-import-position
import one_machine # pylint: disable=wrong-import-position

OTHER_KERNELS = 1
# The pairs of readings of two clocks, in the guest and in the double.
TOLERANCE_NS = 300_000
RECORDED_S = 4
TRACED_KERNELS = 20
STALL_SEEN_S, STALL_S = 2, 6


class RecordedJob(double_job.Job):
    """A job whose processes have the guest library."""

    def __init__(self, arguments, library, **options):
        super().__init__(library, os.path.join(arguments.build, "tests", "cuda_double"), **options)
        self.root, self.major = arguments.build, arguments.cupti

    def environment_of(self, rank, directory):
        environment = super().environment_of(rank, directory)
        return {
            **{name: value for name, value in environment.items() if not name.startswith("COLLWIRE_CUPTI_")},
            "LD_LIBRARY_PATH": f"{self.root}/tests/cupti_double/cuda{self.major}:{environment['LD_LIBRARY_PATH']}",
            "CUDA_INJECTION64_PATH": f"{self.root}/libcollwire_cupti.so",
            "COLLWIRE_CUPTI_LOG": f"{directory}/cupti.{rank}",
            "COLLWIRE_CUPTI_OTHER_KERNELS": str(OTHER_KERNELS),
        }


def judge(arguments, job, directory, is_late=False):
    """The line of a case."""
    capture = f"{directory}/capture"
    suffixes = [f"{first}.{rank}" if job.ranks_per_process > 1 else str(rank) for first in job.processes
                for rank in range(first, first + job.ranks_per_process)]
    logs = [double_job.lines_of(f"{directory}/job.{suffix}") for suffix in suffixes]
    report = one_machine.report_of(arguments.collwire, capture, f"{directory}/report.json", logs)
    host = report["hosts"][0]["name"]
    processes = [(host, log[0]["pid"]) for log in logs[::job.ranks_per_process]]
    kernels = [kernel for number, first in enumerate(job.processes) for kernel in gpu_truth.kernels_of(
        number, double_job.lines_of(f"{directory}/cupti.{first}"), double_job.lines_of(f"{directory}/truth.{first}"), True)]
    if is_late:
        kernels = gpu_truth.without_straddling(report, processes, kernels)
    coverage, problems = gpu_truth.check_coverage(report, processes, kernels, is_late)
    phases, of_phases = gpu_truth.check_phases(report, kernels, TOLERANCE_NS)
    problems += of_phases
    assert not problems, "\n".join(problems[:20])
    if is_late:
        handed = sum(kernel.is_handed for kernel in kernels)
        assert TRACED_KERNELS < handed < len(kernels), f"{handed} of {len(kernels)} kernels while the recorder was there"
    return f"{coverage}; {phases}"


def from_the_start(arguments, library, directory, plan="everything", **options):
    job = RecordedJob(arguments, library, **{"ranks": 2, **options})
    with one_machine.Recorder(arguments.collwire, f"{directory}/capture", "--gpu", "--nccl", library) as recorder:
        double_job.run_job(job, directory, "job", ["--plan", plan, "--count", "3" if plan == "training" else "1"])
    assert recorder.status == 0, recorder.said()
    return judge(arguments, job, directory)


def in_the_middle(arguments, library, directory, **options):
    """The recorder attaches to the running job and detaches from it."""
    job = RecordedJob(arguments, library, **{"ranks": 2, **options})
    job.write_layout(directory)
    processes = []
    try:
        for rank in job.processes:
            with double_job.signals_held() as mask:
                processes.append(job.start(rank, directory, "job", ["--plan", "training", "--count", "0"], mask))
        double_job.wait_until_running(job, directory, processes)
        with one_machine.Recorder(arguments.collwire, f"{directory}/capture", "--gpu") as recorder:
            begin_ns = time.monotonic_ns()
            time.sleep(RECORDED_S) # the recorded part of the job
            double_job.wait_for_traced(job, directory, processes, 2 * TRACED_KERNELS, begin_ns)
        assert recorder.status == 0, recorder.said()
        before = len(double_job.lines_so_far(f"{directory}/truth.0"))
        end_s = time.monotonic() + job.limit_s
        while len(double_job.lines_so_far(f"{directory}/truth.0")) < before + TRACED_KERNELS:
            assert time.monotonic() < end_s and processes[0].poll() is None, "no kernel after the recording"
            time.sleep(0.05)
        processes[-1].terminate()
        for rank, process in zip(job.processes, processes):
            assert process.wait(timeout=job.limit_s) == 0, double_job.output_of(directory, rank)[-2000:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return judge(arguments, job, directory, is_late=True)


def on_a_stall(arguments, library, directory):
    """One rank is late for one operation: the recorder arms while the others wait."""
    job = RecordedJob(arguments, library, ranks=2)
    with one_machine.Recorder(arguments.collwire, f"{directory}/capture", f"--gpu=stall:{STALL_SEEN_S}s", "--nccl", library) as recorder:
        double_job.run_job(job, directory, "job", ["--plan", "training", "--count", "8", "--stall-rank", "1", "--stall-at", "20", "--stall-ms",
                                                   str(STALL_S * 1000)])
    assert recorder.status == 0, recorder.said()
    stall = next(line for line in double_job.lines_of(f"{directory}/job.1") if line["event"] == "stall")
    for rank in job.processes:
        armed = [line for line in double_job.lines_of(f"{directory}/cupti.{rank}") if line["event"] == "call" and line["function"] == "cuptiActivityEnable"]
        assert len(armed) == 1, armed
        seen_s = (armed[0]["begin_ns"] - stall["at_ns"]) / 1e9
        assert STALL_SEEN_S <= seen_s < STALL_S, f"armed {seen_s:.1f} s after the stall began"
    return judge(arguments, job, directory, is_late=True)


CASES = {
    "start": from_the_start,
    "middle": in_the_middle,
    "stall": on_a_stall,
    # One process, four devices, a thread for each: several communicators on each device.
    "devices": lambda *where: from_the_start(*where, plan="training", ranks=4, ranks_per_node=4, ranks_per_process=4),
    "devices-middle": lambda *where: in_the_middle(*where, ranks=4, ranks_per_node=4, ranks_per_process=4),
    # Two such processes with two devices each, on two nodes.
    "two-nodes": lambda *where: from_the_start(*where, plan="training", ranks=4, ranks_per_node=2, ranks_per_process=2),
}
QUICK = ("middle", "devices")


def run(arguments, library, directory):
    names = arguments.cases.split(",") if arguments.cases else CASES if arguments.only_full else QUICK
    failed = []
    for name in names:
        begin_s = time.monotonic()
        os.makedirs(f"{directory}/{name}")
        try:
            said = CASES[name](arguments, library, f"{directory}/{name}")
        except AssertionError as problem:
            failed.append(name)
            said = f"FAILED: {problem}"
        print(f"{arguments.version}, CUPTI {arguments.cupti}, {name}: {said} ({time.monotonic() - begin_s:.0f} s)", flush=True)
    assert not failed, failed


if __name__ == "__main__":
    ARGUMENTS = one_machine.arguments_of(__doc__, ("--cases", {"default": ""}), ("--cupti", {"type": int, "choices": (12, 13), "default": 13}))
    ARGUMENTS.build = os.path.realpath(ARGUMENTS.build)
    sys.exit(one_machine.main(ARGUMENTS, run))
