# SPDX-License-Identifier: Apache-2.0
"""Times of AllReduces with and without a recorder, in turns of one job: a ratio for each size. The ratio is printed and not judged, since the machine is
noisy; missing samples are an error."""

import statistics
import time

import double_job
import one_machine

ROUNDS, ROUNDS_ON_DOUBLE = 12, 2
TURN_S = 2.0


def samples_of(log):
    """(bytes, start, nanoseconds until its wait returned) of each AllReduce with a wait of its own."""
    call = None
    for line in log:
        if line["event"] == "call":
            call = line if line["op"] == "AllReduce" and not line["purpose"] else None
        elif line["event"] == "waited" and call is not None:
            yield call["bytes"], call["at_ns"], line["at_ns"] - call["at_ns"]
            call = None


def measure(collwire, job, directory, plan_path, rounds):
    job.write_layout(directory)
    processes, turns = [], {"with": [], "without": []}
    try:
        for rank in range(job.ranks):
            processes.append(job.start(rank, directory, "job", ["--plan", plan_path, "--count", "0"]))
        double_job.wait_until_running(job, directory, processes)
        for number in range(rounds):
            begin = time.monotonic_ns()
            time.sleep(TURN_S)
            turns["without"].append((begin, time.monotonic_ns()))
            with one_machine.Recorder(collwire, f"{directory}/capture.{number}", "--nccl", job.library) as recorder:
                begin = time.monotonic_ns()
                time.sleep(TURN_S)
                turns["with"].append((begin, time.monotonic_ns()))
            assert recorder.status == 0, recorder.said()
        assert all(process.poll() is None for process in processes), "the job exited"
    finally:
        for process in processes:
            process.kill()
            process.wait()
    taken = {}
    for log in one_machine.logs_of(directory, "job", job.ranks):
        for size, begin, took_ns in samples_of(log):
            for how, of_turns in turns.items():
                if any(first <= begin and begin + took_ns <= last for first, last in of_turns):
                    taken.setdefault(size, {"with": [], "without": []})[how].append(took_ns)
    problems = []
    print("AllReduce, microseconds: median with a recorder, without one, ratio; samples", flush=True)
    for size, of_size in sorted(taken.items()):
        if not of_size["with"] or not of_size["without"]:
            problems.append(f"{size} B: no samples {'with' if of_size['without'] else 'without'} a recorder")
            continue
        with_, without = (statistics.median(of_size[how]) / 1000 for how in ("with", "without"))
        print(f"  {size:>10} B {with_:12.1f} {without:12.1f}  {with_ / without:6.3f}  {len(of_size['with'])}, {len(of_size['without'])}", flush=True)
    return problems if taken else ["no AllReduce was measured"]
