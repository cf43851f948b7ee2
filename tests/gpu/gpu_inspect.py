# SPDX-License-Identifier: Apache-2.0
"""`collwire inspect` of each rank of a running job on a GPU: its communicators equal NCCL's events for a profiler plugin."""

import json
import subprocess
import time

import double_job

FEWEST_INSPECTIONS, MOST_INSPECTIONS = 5, 60
# For the fastest inspection, which reads the memory twice, 0.2 s apart: ranks spin on the CPUs, and the first one reads the library.
MOST_S = 1.0


def inspect(collwire, pid, path):
    begin = time.monotonic()
    with open(path, "w", encoding="utf-8") as file:
        subprocess.run([collwire, "inspect", str(pid), "--json"], stdout=file, check=True)
    took_s = time.monotonic() - begin
    with open(path, encoding="utf-8") as file:
        [process] = json.load(file)["processes"]
    return process, took_s


def check(collwire, job, directory, plan_path):
    job.write_layout(directory)
    processes, problems, times_s, moving, is_blamed = [], [], [], 0, []
    files = [f"{directory}/inspect.{rank}.json" for rank in range(job.ranks)]
    try:
        for rank in range(job.ranks):
            processes.append(job.start(rank, directory, "job", ["--plan", plan_path, "--count", "0"]))
        double_job.wait_until_running(job, directory, processes)
        while len(is_blamed) < FEWEST_INSPECTIONS or (not moving and len(is_blamed) < MOST_INSPECTIONS):
            for process, path in zip(processes, files):
                seen, took_s = inspect(collwire, process.pid, path)
                times_s.append(took_s)
                moving += any(proxy["operations"] for proxy in seen["proxies"])
            diagnosis = json.loads(subprocess.run([collwire, "diagnose", "--json", *files], capture_output=True, text=True, check=True).stdout)
            is_blamed.append([cause for comm in diagnosis["communicators"] for cause in comm["causes"]])
        logs = [double_job.lines_so_far(f"{directory}/job.{rank}") for rank in range(job.ranks)]
        for rank, (process, path) in enumerate(zip(processes, files)):
            with open(path, encoding="utf-8") as file:
                [seen] = json.load(file)["processes"]
            known = {(line["hash"], line["rank"]) for line in double_job.lines_so_far(f"{directory}/profiler.{process.pid}")}
            seen_comms = {(comm["hash"], comm["rank"]) for comm in seen["communicators"]}
            if seen_comms != known:
                problems.append(f"inspect, rank {rank}: communicators {seen_comms}, NCCL has {known}")
            number = logs[rank][0]["nccl_version"]
            if seen["libraries"][0]["version"] != f"{number // 10000}.{number // 100 % 100}.{number % 100}":
                problems.append(f"inspect, rank {rank}: {seen['libraries']}, the job has {number}")
        # A rank that checks its data is late for the other, but not in each inspection.
        if all(is_blamed):
            problems.append(f"diagnose: {is_blamed[-1]} of a running job, each time")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    times_s.sort()
    print(f"inspect: {len(times_s)} inspections of {times_s[0]:.2f} to {times_s[-1]:.2f} s, {moving} of them with operations in flight", flush=True)
    if times_s[0] >= MOST_S:
        problems.append(f"inspect: none in less than {MOST_S} s")
    if not moving:
        problems.append("inspect: no operation in flight")
    return problems
