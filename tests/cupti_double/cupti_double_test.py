#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL on the double of CUDA, watched by a simple client of the double of CUPTI: the client's records equal the kernels in the double's log.

cupti_double_test.py --build DIRECTORY_OF_TESTS [--nccl libnccl.so.2] [--version VERSION] [--keep DIRECTORY]
"""

import argparse
import collections
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cuda_double"))
from double_job import Job, fetched, lines_of, lines_so_far, realtime_ahead_ns, run_job, signals_held # pylint: disable=wrong-import-position

SKIPPED = 77
RANKS = 2
OTHER_KERNELS = 3
# What the clock of the log of CUDA's double may have been set by since, against this one's. The same thread writes both.
MOST_DIFFERENCE_NS = 50_000_000


def events(lines, name):
    return [line for line in lines if line["event"] == name]


def client_lines(directory, rank, client="client"):
    paths = [name for name in os.listdir(directory) if name.startswith(f"{client}.{rank}.")]
    assert len(paths) == 1, f"rank {rank}: {paths}: InitializeInjection is called once a process"
    return lines_so_far(os.path.join(directory, paths[0]))


def key_of(kernel):
    """A kernel has no number in CUPTI's records: its API call, and its node in a graph."""
    return kernel["correlation"], kernel["graph_node"]


class CuptiJob(Job):
    """A job whose ranks have the client. `settings`: of the double and the client."""

    def __init__(self, arguments, major, directory, settings):
        super().__init__(arguments.nccl, os.path.join(arguments.build, "cuda_double"), ranks=RANKS)
        self.folder = os.path.join(arguments.build, "cupti_double")
        self.major, self.directory, self.settings = major, directory, settings

    def environment_of(self, rank, directory):
        environment = super().environment_of(rank, directory)
        environment = {name: value for name, value in environment.items() if not name.startswith("COLLWIRE_CUPTI_")}
        environment.update({
            "LD_LIBRARY_PATH": f"{self.folder}/cuda{self.major}:{environment['LD_LIBRARY_PATH']}",
            "CUDA_INJECTION64_PATH": f"{self.folder}/libcupti_client.so",
            "COLLWIRE_CUPTI_LOG": f"{directory}/cupti.{rank}",
            "COLLWIRE_CUPTI_CLIENT_OUT": f"{directory}/client.{rank}",
            "COLLWIRE_CUPTI_OTHER_KERNELS": str(OTHER_KERNELS),
            **self.settings,
        })
        return environment


def check_summary(log, client):
    summary, = events(log, "summary")
    assert summary["misuses"] == 0 and not summary["lacking"] and summary["dropped"] == 0, summary
    assert summary["records_held"] == 0, f"the forced flush at exit left records: {summary}"
    assert sum(summary["calls"].values()) > 0 and events(client, "exit")[0]["result"] == 0
    return summary


def offsets_of(log):
    """Kernel id: (offset of CUPTI's clock, by how much it may be wrong)."""
    return {kernel: (delivered["clock_offset_ns"], delivered["clock_error_ns"]) for delivered in events(log, "delivered")
            for kernel in delivered["kernels"]}


def check_record(record, kernel, offset_ns, error_ns):
    for field in ("name", "device", "context", "stream", "grid", "block", "cluster", "graph", "channel"):
        assert record[field] == kernel[field], f"{field}: {record} is not {kernel}"
    if kernel["record"] in ("before_cupti", "without_times"):
        assert record["start"] == record["end"] == 0, record
        return
    assert record["end"] - record["start"] == kernel["end_ns"] - kernel["start_ns"], f"{record} is not {kernel}"
    assert record["start"] - kernel["start_ns"] == offset_ns, f"{record} is not {kernel}"
    assert kernel["launched_ns"] <= kernel["start_ns"] <= kernel["end_ns"], kernel
    assert error_ns < MOST_DIFFERENCE_NS, error_ns


def check_records(log, client):
    """Every kernel that CUPTI recorded is in the client's hands, once and unchanged. Returns both by key."""
    kernels = {key_of(kernel): kernel for kernel in events(log, "kernel")}
    assert len(kernels) == len(events(log, "kernel")), "two kernels with one correlation and node"
    records = {key_of(record): record for record in events(client, "record")}
    assert len(records) == len(events(client, "record")), "a record came twice"
    offsets = offsets_of(log)
    delivered = {key for key, kernel in kernels.items() if kernel["id"] in offsets}
    assert set(records) == delivered, f"missing {delivered - set(records)}, not expected {set(records) - delivered}"
    assert all((kernel["record"] == "recorded") <= (key in delivered) for key, kernel in kernels.items())
    for key, record in records.items():
        check_record(record, kernels[key], *offsets[kernels[key]["id"]])
    return kernels, records


def check_nccl_kernels(directory, rank, kernels):
    """NCCL's kernels are those in the log of CUDA's double, in order, at their times."""
    truth = lines_of(f"{directory}/truth.{rank}")
    ours = [kernel for kernel in kernels.values() if "ncclDevKernel_" in kernel["name"]]
    ours.sort(key=lambda kernel: kernel["start_ns"])
    truth.sort(key=lambda kernel: kernel["begun_ns"])
    assert len(ours) == len(truth) > 0, f"rank {rank}: {len(ours)} kernels, {len(truth)} in CUDA's log"
    to_realtime = realtime_ahead_ns()
    for kernel, work in zip(ours, truth):
        assert kernel["nccl"] and work["kernel"] in kernel["name"], f"{kernel['name']} is not {work['kernel']}"
        assert bin(int(work["channel_mask"], 16)).count("1") == kernel["grid"][0], f"{kernel['grid']}: {work['channel_mask']}"
        # The scheduler may hold the thread in between.
        begin_ns, end_ns = kernel["start_ns"] + to_realtime, kernel["end_ns"] + to_realtime
        assert begin_ns - MOST_DIFFERENCE_NS < work["begun_ns"] <= work["ended_ns"] < end_ns + MOST_DIFFERENCE_NS, f"{kernel} is not {work}"
    return len(ours)


def check_calls(kernels):
    """Other kernels are beside NCCL's and overlap them; the kernels of a graph launch share a correlation."""
    launches = collections.defaultdict(list)
    for kernel in kernels.values():
        launches[kernel["correlation"]].append(kernel)
    shared = [together for together in launches.values() if len(together) > 1]
    assert all(len({kernel["graph"] for kernel in together}) == 1 and together[0]["graph"] != 0 for together in shared)
    nccl = [kernel for kernel in kernels.values() if kernel["nccl"]]
    others = [kernel for kernel in kernels.values() if not kernel["nccl"]]
    calls = len({kernel["correlation"] for kernel in nccl})
    assert len(others) == OTHER_KERNELS * calls, f"{len(others)} others after {calls} launches"
    assert any(one["start_ns"] < other["end_ns"] and other["start_ns"] < one["end_ns"] for one in nccl for other in others), "none overlap"
    return len(others), len(shared), sum(kernel["graph"] != 0 for kernel in nccl)


def check_armed_from_the_start(arguments, directory, major, settings, script, count):
    job = CuptiJob(arguments, major, directory, settings)
    run_job(job, directory, "job", ["--plan", script, "--count", str(count)])
    lines = []
    for rank in range(RANKS):
        log, client = lines_of(f"{directory}/cupti.{rank}"), client_lines(directory, rank)
        check_summary(log, client)
        kernels, records = check_records(log, client)
        assert set(kernels) == set(records), "armed from the start, and not every kernel has a record"
        nccl = check_nccl_kernels(directory, rank, kernels)
        others, graph_launches, in_graphs = check_calls(kernels)
        buffers = len(events(client, "buffer"))
        lines.append(f"rank {rank}: {nccl} kernels of NCCL ({in_graphs} in graphs, {graph_launches} launches of several), {others} others, "
                     f"{buffers} buffers")
    return "; ".join(lines)


def check_two_clients(arguments, directory):
    """A profiler that is linked with CUPTI, as PyTorch's, beside the client: it takes the records over, and ends them for both."""
    build = os.path.join(arguments.build, "cuda_double")
    file = f"{directory}/arm"
    job = CuptiJob(arguments, 13, directory, {"COLLWIRE_CUPTI_PROFILER_ARM_FILE": file, "LD_PRELOAD": f"{build}/libcuda_double.so:"
                                              f"{arguments.build}/cupti_double/cuda13/libcupti_profiler.so"})
    job.write_layout(directory)
    processes = []

    def records_so_far(client):
        return min(len(events(client_lines(directory, rank, client), "record")) for rank in range(RANKS))

    def launched_after_disarming(rank, log):
        stopped = events(client_lines(directory, rank, "profiler"), "disarmed")[0]["at_ns"]
        return [kernel for kernel in events(log, "kernel") if kernel["launched_ns"] > stopped]

    try:
        for rank in range(RANKS):
            job.settings["COLLWIRE_CUPTI_PROFILER_OUT"] = f"{directory}/profiler.{rank}"
            job.settings["COLLWIRE_CUPTI_CLIENT_BUFFER"] = job.settings["COLLWIRE_CUPTI_PROFILER_BUFFER"] = "2048"
            with signals_held() as mask:
                processes.append(job.start(rank, directory, "job", ["--plan", "training", "--seconds", "600"], mask))
        wait_for(lambda: all(any(name.startswith(f"client.{rank}.") for name in os.listdir(directory)) for rank in range(RANKS)), "no client", processes)
        wait_for(lambda: records_so_far("client") > 10, "the client has no records", processes)
        with open(file, "w", encoding="utf-8"):
            pass
        wait_for(lambda: records_so_far("profiler") > 10, "the profiler has no records", processes)
        os.unlink(file)
        wait_for(lambda: all(events(client_lines(directory, rank, "profiler"), "flushed") for rank in range(RANKS)), "not disarmed", processes)
        wait_for(lambda: all(launched_after_disarming(rank, lines_so_far(f"{directory}/cupti.{rank}")) for rank in range(RANKS)),
                 "no kernel after disarming", processes)
        processes[-1].terminate()
        for process in processes:
            assert process.wait(timeout=job.limit_s) == 0, process.args
    finally:
        for process in processes:
            process.kill()
            process.wait()
    lines = []
    for rank in range(RANKS):
        log, client, profiler = lines_of(f"{directory}/cupti.{rank}"), client_lines(directory, rank), client_lines(directory, rank, "profiler")
        check_summary(log, client)
        first, second = events(log, "registered")
        assert (first["registration"], second["registration"]) == (1, 2)
        taken = [line for line in events(log, "delivered") if line["at_ns"] > second["at_ns"]]
        assert taken and all(line["registration"] == 2 for line in taken), taken
        assert sum(len(line["kernels"]) for line in taken) == len(events(profiler, "record"))
        # Nobody disarmed the client.
        late = launched_after_disarming(rank, log)
        assert late and all(kernel["record"] == "disabled" for kernel in late), late
        check_records(log, client + profiler)
        lines.append(f"rank {rank}: {len(events(client, 'record'))} records, then the profiler {len(events(profiler, 'record'))}, then none of "
                     f"{len(late)}")
    return "; ".join(lines)


def wait_for(condition, what, processes):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end and all(process.poll() is None for process in processes), what
        time.sleep(0.01)


def check_armed_late(arguments, directory, earlier):
    """CUPTI is loaded in the middle, is disarmed, and armed again. Until then no call of it."""
    file = f"{directory}/arm"
    job = CuptiJob(arguments, 13, directory, {"COLLWIRE_CUPTI_CLIENT_ARM_FILE": file, "COLLWIRE_CUPTI_EARLIER": earlier})
    job.write_layout(directory)
    processes = []
    paths = [f"{directory}/cupti.{rank}" for rank in range(RANKS)]

    def happened(event, times):
        return all(os.path.exists(path) and len(events(client_lines(directory, rank), event)) >= times for rank, path in enumerate(paths))

    def kernels_so_far():
        return min(len(lines_so_far(f"{directory}/truth.{rank}")) for rank in range(RANKS))

    try:
        for rank in range(RANKS):
            with signals_held() as mask:
                processes.append(job.start(rank, directory, "job", ["--plan", "training", "--seconds", "600"], mask))
        wait_for(lambda: kernels_so_far() > 10, "no kernel", processes)
        assert not any(os.path.exists(path) for path in paths), "CUPTI is loaded and nobody asked for it"
        for turn in (1, 2):
            with open(file, "w", encoding="utf-8"):
                pass
            wait_for(lambda turn=turn: happened("armed", turn), "not armed", processes)
            before = kernels_so_far()
            wait_for(lambda before=before: kernels_so_far() > before + 10, "no kernel while armed", processes)
            os.unlink(file)
            wait_for(lambda turn=turn: happened("flushed", turn), "not disarmed", processes)
            before = kernels_so_far()
            wait_for(lambda before=before: kernels_so_far() > before + 10, "no kernel while disarmed", processes)
        processes[-1].terminate()
        for process in processes:
            assert process.wait(timeout=job.limit_s) == 0, process.args
    finally:
        for process in processes:
            process.kill()
            process.wait()
    lines = []
    for rank in range(RANKS):
        log, client = lines_of(paths[rank]), client_lines(directory, rank)
        check_summary(log, client)
        kernels, records = check_records(log, client)
        counts = collections.Counter(kernel["record"] for kernel in kernels.values())
        without_times = sum(record["end"] == 0 for record in records.values())
        earlier_kernels = counts["before_cupti"] + counts["without_times"]
        assert min(counts["recorded"], counts["disabled"], earlier_kernels) > 10, counts
        assert without_times == (earlier_kernels if earlier == "loaded" else 0), f"{without_times}: {counts}"
        check_nccl_kernels(directory, rank, kernels)
        lines.append(f"rank {rank}: {dict(counts)}")
    return "; ".join(lines)


CASES = {
    "13, CLOCK_MONOTONIC, every operation": lambda arguments, directory: check_armed_from_the_start(
        arguments, directory, 13, {"COLLWIRE_CUPTI_CLIENT_BUFFER": "4096"}, "everything", 1),
    "12, CLOCK_REALTIME, a training, buffers with a period": lambda arguments, directory: check_armed_from_the_start(
        arguments, directory, 12, {"COLLWIRE_CUPTI_CLIENT_CLOCK": "realtime", "COLLWIRE_CUPTI_CLIENT_PERIOD_MS": "20",
                                   "COLLWIRE_CUPTI_CLIENT_BUFFER": "8192"}, "training", 20),
    "13, loaded late, earlier kernels without times": lambda arguments, directory: check_armed_late(arguments, directory, "loaded"),
    "13, a profiler beside the client": check_two_clients,
    "13, loaded late, no earlier kernels": lambda arguments, directory: check_armed_late(arguments, directory, "none"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="folder of cuda_double and cupti_double in the build")
    parser.add_argument("--nccl")
    parser.add_argument("--version", default="2.28.9")
    parser.add_argument("--keep", help="folder for the logs")
    arguments = parser.parse_args()
    arguments.build = os.path.realpath(arguments.build)
    try:
        arguments.nccl = os.path.realpath(arguments.nccl or fetched(arguments.version))
    except RuntimeError as problem:
        print(f"skip: {problem}")
        return SKIPPED
    for number, (name, check) in enumerate(CASES.items()):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as temporary:
            directory = temporary
            if arguments.keep:
                directory = os.path.join(arguments.keep, str(number))
                os.makedirs(directory)
            print(f"{name}: {check(arguments, directory)} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
