# SPDX-License-Identifier: Apache-2.0
"""The guest library on a GPU: NCCL's kernels under `record --gpu`, PyTorch's profiler beside it, what it costs, and many records."""

import json
import os
import subprocess
import time

import double_job
import gpu_job
import one_machine
import paired

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH_GUEST = os.path.join(HERE, "torch_guest.py")
RANKS = 2
ORDERS = ("none", "dormant", "guest-first", "profiler-first")
ATTACHED_S, LIMIT_S = 5, 150
BENCH_TURNS, BENCH_TURN_MS, RECORDS_MS = 10, 1000, 46_000
NETWORK = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_MNNVL_ENABLE": "0", "NCCL_MAX_NCHANNELS": "4"}


class Files:
    """Of the build."""

    def __init__(self, bench):
        build = os.path.dirname(os.path.dirname(bench.programs))
        self.guest = f"{build}/libcollwire_cupti.so"
        self.receiver = f"{build}/tests/cupti/libgpu_receiver.so"
        self.launch_bench = f"{bench.programs}/launch_bench"


class SharedGpu:
    """CUDA's multi-process service, for ranks that share the GPU: without it they take turns of milliseconds."""

    def __enter__(self):
        self.is_started = subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False).returncode == 0
        return self

    def __exit__(self, *_):
        if self.is_started:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False)


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def sums_of(report):
    devices = [device for process in (report["gpu"] or {"processes": []})["processes"] for device in process["devices"]]
    return {key: sum(device[key] for device in devices)
            for key in ("kernels", "traced_launches", "exact", "by_time", "contradicted", "without_launch", "without_kernel", "running", "queued")}


def judge(report, name):
    """Every launch that was made while the GPU was traced has its kernel, and there is no doubt which."""
    sums = sums_of(report)
    print(f"kernels, {name}: {sums}", flush=True)
    is_right = 0 < sums["traced_launches"] == sums["exact"] and not sums["contradicted"] and not sums["without_launch"]
    return [] if is_right else [f"{name}: {sums}"]


def report_of(bench, capture):
    out = f"{capture}.json"
    subprocess.run([bench.collwire, "report", capture, "--json", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def kernels(bench):
    files, problems = Files(bench), []
    with SharedGpu():
        for name, count in (("ddp", 20), ("graph", 5)):
            directory = bench.make_directory(f"kernels-{name}")
            job = bench.job(directory, gpu_job.TorchJob, is_profiled=False, CUDA_INJECTION64_PATH=files.guest)
            one_machine.record(bench.collwire, job, directory, ["--plan", name, "--count", str(count)], "--nccl", bench.of_torch, "--gpu",
                               "--network-times", "--local-launches")
            problems += judge(report_of(bench, f"{directory}/capture"), name)
        problems += attached(bench, files)
    return problems


def attached(bench, files):
    """A job that runs already: attached and detached, then in slices."""
    directory = bench.make_directory("kernels-attached")
    job = bench.job(directory, gpu_job.TorchJob, is_profiled=False, CUDA_INJECTION64_PATH=files.guest)
    problems = []
    processes = [job.start(rank, directory, "job", ["--plan", "ddp", "--count", "100000"]) for rank in range(job.ranks)]
    try:
        double_job.wait_until_running(job, directory, processes)
        for name, option in (("attached", "--gpu"), ("slices", "--gpu=slices:1/3")):
            with one_machine.Recorder(bench.collwire, f"{directory}/{name}", "--nccl", bench.of_torch, option) as recorder:
                time.sleep(ATTACHED_S)
            problems += [] if recorder.status == 0 else [f"{name}: {recorder.said()}"]
            problems += judge(report_of(bench, f"{directory}/{name}"), name)
        assert all(process.poll() is None for process in processes), "the job ended"
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return problems


def start_ranks(bench, directory, plan, order, **environment):
    processes = []
    for rank in range(RANKS):
        words = [bench.python, "-W", "ignore", TORCH_GUEST, "--rank", str(rank), "--ranks", str(RANKS), "--id", f"{directory}/id", "--log",
                 f"{directory}/log.{rank}", "--plan", plan, "--order", order]
        with open(f"{directory}/out.{rank}", "w", encoding="utf-8") as out:
            processes.append(subprocess.Popen(words, env={**os.environ, **NETWORK, **environment, "NCCL_HOSTID": f"h{rank}"}, stdout=out, stderr=out))
    return processes


def wait_for(processes):
    try:
        assert all(process.wait(timeout=LIMIT_S) == 0 for process in processes), "a rank failed"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def with_guest(files, directory):
    return {"CUDA_INJECTION64_PATH": files.guest, "LD_PRELOAD": files.receiver, "COLLWIRE_RECEIVED": f"{directory}/items",
            "COLLWIRE_RECEIVED_LINES": "20000"}


def items_of(directory):
    return [line for name in sorted(os.listdir(directory)) if name.startswith("items.") for line in lines_of(f"{directory}/{name}")]


def profilers(bench):
    """PyTorch's profile holds the same with the guest as without it, in both orders, and the guest comes back afterwards."""
    files, processes, directories = Files(bench), [], {}
    with SharedGpu():
        for order in ORDERS:
            directories[order] = bench.make_directory(f"profilers-{order}")
            guest = {} if order == "none" else with_guest(files, directories[order])
            processes += start_ranks(bench, directories[order], "profiler", order, **guest)
        wait_for(processes)
    problems, wanted = [], None
    for order, directory in directories.items():
        profiles = [(line["nccl"], line["on_gpu"], line["bad_times"]) for line in lines_of(f"{directory}/log.0") if line["what"].startswith("profile of")]
        items = items_of(directory)
        states = [line["state"] for line in items if line["item"] == "state" and line["state"] != 8]
        sums = [line for line in items if line["item"] == "sum"]
        print(f"profilers, {order}: {profiles}, the guest's states {states}, kernels {sum(line['kernels'] for line in sums)}", flush=True)
        wanted = wanted or profiles
        second = [(2 * wanted[1][0], 2 * wanted[1][1], 0)] if order == "profiler-first" else [wanted[1]] # it profiles twice as many steps
        if profiles != [wanted[0], *second, wanted[2]]:
            problems.append(f"{order}: profiles {profiles}, without the guest {wanted}")
        if any(line["backwards"] or line["in_future"] or line["bad_batches"] for line in sums):
            problems.append(f"{order}: bad times: {sums}")
        if order == "guest-first" and states.count(1) < 2 * RANKS:
            problems.append(f"{order}: the guest did not come back: {states}")
    return problems


def run_bench(files, directory, name, words, **environment):
    with open(f"{directory}/{name}.json", "w", encoding="utf-8") as out:
        subprocess.run([files.launch_bench, *words], env={**os.environ, **environment}, stdout=out, check=True, timeout=LIMIT_S)
    return lines_of(f"{directory}/{name}.json")


def guest_cost(bench):
    """Ratios of turns with the guest armed to those before and after; printed and not judged."""
    files, directory = Files(bench), bench.make_directory("guest-cost")
    words = [str(BENCH_TURNS), str(BENCH_TURN_MS)]
    absent = run_bench(files, directory, "absent", words)
    turns = run_bench(files, directory, "toggled", words, **with_guest(files, directory))
    for key in ("launch_ns", "node_ns"):
        print(f"guest cost, armed, {paired.text(key, paired.pairs_of(turns, lambda turn: turn['is_armed'], lambda turn, key=key: turn[key]))}", flush=True)
        before, after = (sum(turn[key] for turn in of) / len(of) for of in (absent, [turn for turn in turns[2:] if not turn["is_armed"]]))
        print(f"guest cost, {key}: {before:.1f} without the library, {after:.1f} after traces", flush=True)
    directory = bench.make_directory("guest-cost-allreduce")
    with SharedGpu():
        wait_for(start_ranks(bench, directory, "allreduce", "none", TURNS="36", **with_guest(files, directory)))
    turns = [line for line in lines_of(f"{directory}/log.0") if line["what"] == "turn"]
    for size in sorted({turn["bytes"] for turn in turns}):
        of_size = [turn for turn in turns if turn["bytes"] == size]
        pairs = paired.pairs_of(of_size, lambda turn: turn["is_armed"], lambda turn: turn["median_us"])
        print(f"guest cost, armed, AllReduce of {paired.text(f'{size} B', pairs)}", flush=True)
    return [] if turns else ["no AllReduce was measured"]


def records(bench):
    """Some 25 million kernels: no bad time, and each one is handed over or counted as lost."""
    files, directory = Files(bench), bench.make_directory("records")
    turn, = run_bench(files, directory, "turn", ["1", str(RECORDS_MS), "nccl", "graph", "1000", "armed"], **with_guest(files, directory))
    items = items_of(directory)
    total = max((line for line in items if line["item"] == "sum"), key=lambda line: line["kernels"])
    last = [line for line in items if line["item"] == "state"][-1]
    print(f"records: {total['kernels']} kernels, {last['dropped']} lost, {turn['launches'] + turn['nodes']} in the measured turn; {total}", flush=True)
    bad = {key: total[key] for key in ("backwards", "in_future", "too_old", "bad_batches") if total[key]}
    return [f"bad: {bad}"] if bad else []
