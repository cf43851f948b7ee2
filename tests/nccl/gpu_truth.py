# SPDX-License-Identifier: Apache-2.0
"""NCCL's kernels in a report against the logs of the test doubles of CUDA and CUPTI: how many have their launch, how long each rank waited for the last
one, and which rank that was. Nothing here uses collwire's own arithmetic."""

import collections
import dataclasses
import statistics

import identity_truth

# Both logs are written by one thread of the double.
MOST_DIFFERENCE_NS = 50_000_000
NEVER_NS = 10**18
# Counts of a device in a report that stay 0 where each kernel has its launch.
UNJOINED = ("contradicted", "without_launch", "without_kernel", "odd_times")


@dataclasses.dataclass
class Kernel:
    """One kernel of NCCL, as both doubles have it."""
    process: int # index of its logs
    device: int
    hash_: str
    rank: int
    place: int # among the kernels of its communicator and rank
    works: list # (function, bytes; None: sends and receives)
    start_ns: int
    end_ns: int # 0: it never ended
    is_handed: bool # CUPTI gave it to the guest library


def kernels_of(process, cupti_log, cuda_log, has_one_clock):
    """The kernels of one process. Times: CLOCK_MONOTONIC, or CLOCK_REALTIME where the processes have several clocks."""
    delivered = {number for line in cupti_log if line["event"] == "delivered" for number in line["kernels"]}
    ours = sorted((line for line in cupti_log if line["event"] == "kernel" and line["nccl"] and line["end_ns"]), key=lambda line: line["start_ns"])
    theirs = sorted(cuda_log, key=lambda line: line["begun_ns"])
    assert len(ours) == len(theirs) > 0, f"process {process}: {len(ours)} kernels in the log of CUPTI, {len(theirs)} in that of CUDA"
    ahead_ns = int(statistics.median(work["begun_ns"] - kernel["start_ns"] for kernel, work in zip(ours, theirs)))
    places, found = collections.Counter(), []
    for kernel, work in zip(ours, theirs):
        # The scheduler may hold the thread in between.
        assert work["kernel"] in kernel["name"] and kernel["start_ns"] - MOST_DIFFERENCE_NS < work["begun_ns"] - ahead_ns and \
            work["ended_ns"] - ahead_ns < kernel["end_ns"] + MOST_DIFFERENCE_NS, f"{kernel} is not {work}"
    # In the order of the launches: the streams of a device overtake one another.
    for kernel, work in sorted(zip(ours, theirs), key=lambda pair: (pair[0]["correlation"], pair[0]["graph_node"])):
        key = (work["comm_hash"], work["rank"])
        shift_ns = 0 if has_one_clock else ahead_ns
        found.append(Kernel(process, kernel["device"], *key, places[key], [(each["function"].split("_")[0], each.get("bytes")) for each in work["works"]],
                            kernel["start_ns"] + shift_ns, kernel["end_ns"] + shift_ns,
                            kernel["id"] in delivered and kernel["record"] == "recorded"))
        places[key] += 1
    return found


def without_straddling(report, processes, kernels):
    """The kernels, where the first one of a device is not taken for handed over if the report has one without its launch: a thread may be in a launch when
    the recording starts, so that NCCL's part of it comes before, and CUDA's part after the guest was armed."""
    devices = {(host_and_pid, device["device"]) for guest in report["gpu"]["processes"] for device in guest["devices"]
               for host_and_pid in ((guest["host"], guest["pid"]),) if device["without_launch"] == 1}
    first = {}
    for kernel in kernels:
        key = processes[kernel.process], kernel.device
        if kernel.is_handed and key in devices:
            first.setdefault(key, kernel) # in the order of launches
    return [dataclasses.replace(kernel, is_handed=False) if kernel is first.get((processes[kernel.process], kernel.device)) else kernel
            for kernel in kernels]


def check_coverage(report, processes, kernels, is_late):
    """Each kernel that CUPTI handed to the guest is in the report, with its launch; of a late recorder: less without_straddling. `processes`: (host, pid) of
    each. Returns (said, problems)."""
    handed = collections.Counter((kernel.process, kernel.device) for kernel in kernels if kernel.is_handed)
    problems, joined, by_time = [], 0, 0
    guests = {(guest["host"], guest["pid"]): guest for guest in report["gpu"]["processes"]}
    for number, process in enumerate(processes):
        guest = guests.get(process)
        if guest is None:
            problems.append(f"{process}: not traced")
            continue
        if guest["dropped"] or guest["unknown_names"]:
            problems.append(f"{process}: {guest['dropped']} dropped, names {guest['unknown_names']}")
        for device in guest["devices"]:
            wanted, has = handed[(number, device["device"])], device["exact"] + device["by_time"]
            joined, by_time = joined + has, by_time + device["by_time"]
            straddling = 1 if is_late and device["without_launch"] == 1 else 0
            unjoined = sum(device[name] for name in UNJOINED)
            if not device["kernels"] - straddling == wanted == has == device["traced_launches"] or unjoined != straddling:
                problems.append(f"{process} device {device['device']}: the double handed over {wanted}: {device}")
        missing = {device for process_, device in handed if process_ == number} - {device["device"] for device in guest["devices"]}
        if missing:
            problems.append(f"{process}: devices {missing} are not in the report")
    if by_time and not is_late:
        problems.append(f"{by_time} kernels are joined by time")
    return f"{joined} of {sum(handed.values())} kernels with their launch ({by_time} by time) in {len(processes)} processes", problems


@dataclasses.dataclass
class Phases:
    """Of the operations of a kind."""
    operations: int = 0
    whole: int = 0
    waiting: list = dataclasses.field(default_factory=list)
    moving: list = dataclasses.field(default_factory=list)
    last_ranks: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    close: int = 0 # the last two ranks are closer than the tolerance


def phases_of(kernels, tolerance_ns):
    """(hash, function, bytes) -> Phases of collectives, by their places in the order of each rank."""
    ranks_of, by_place = collections.defaultdict(set), collections.defaultdict(list)
    for kernel in kernels:
        ranks_of[kernel.hash_].add(kernel.rank)
    ordinals = collections.Counter()
    for kernel in sorted(kernels, key=lambda kernel: kernel.place):
        for work in kernel.works:
            key = (kernel.hash_, *work)
            by_place[(key, ordinals[(key, kernel.rank)])].append(kernel)
            ordinals[(key, kernel.rank)] += 1
    found = collections.defaultdict(Phases)
    for (key, _), each in by_place.items():
        handed = [kernel for kernel in each if kernel.is_handed]
        if not handed:
            continue
        phases = found[key]
        phases.operations += 1
        if {kernel.rank for kernel in handed} != ranks_of[key[0]]:
            continue
        phases.whole += 1
        starts = sorted((kernel.start_ns, kernel.rank) for kernel in handed)
        for kernel in handed:
            met_ns = min(starts[-1][0], kernel.end_ns)
            phases.waiting.append(met_ns - kernel.start_ns)
            phases.moving.append(kernel.end_ns - max(met_ns, kernel.start_ns))
        if len(starts) > 1:
            phases.last_ranks[starts[-1][1]] += 1
            phases.close += starts[-1][0] - starts[-2][0] < tolerance_ns
    return found


def percentile(values, percent):
    values = sorted(values)
    return values[max((len(values) * percent + 99) // 100, 1) - 1]


def check_phases(report, kernels, tolerance_ns):
    """Phases and last ranks of each kind of collective. Returns (said, problems)."""
    hashes = {comm["id"]: comm["hash"] for comm in report["communicators"]}
    kinds = collections.defaultdict(list)
    for kind in report["gpu"]["operations"]:
        kinds[(hashes[kind["comm"]], kind["op"], kind["size_bytes"])].append(kind)
    # NCCL makes one operation of the broadcasts of a group (2.29): the double has no size of each.
    grouped = {kernel.hash_ for kernel in kernels for function, _ in kernel.works if function == "AllGatherV"}
    problems, compared, furthest_ns, close, inside = [], 0, 0, 0, 0
    for key, wanted in phases_of(kernels, tolerance_ns).items():
        if key[1] in identity_truth.SUMMED or (key[1] == "Broadcast" and key[0] in grouped):
            continue
        has = kinds[key]
        last = collections.Counter()
        for kind in has:
            last.update({int(rank): n for rank, n in kind["last_ranks"].items()})
        counts = sum(kind["operations"] for kind in has), sum(kind["whole"] for kind in has)
        if counts != (wanted.operations, wanted.whole):
            problems.append(f"{key}: {counts} operations and whole ones, the doubles have {wanted.operations} and {wanted.whole}")
            continue
        compared += wanted.whole
        close += wanted.close
        if sum((last - wanted.last_ranks).values()) > wanted.close:
            problems.append(f"{key}: last ranks {dict(last)}, the double has {dict(wanted.last_ranks)} ({wanted.close} too close to tell)")
        if len(has) != 1 or not wanted.whole:
            continue # several algorithms: the percentiles are of each
        for name in ("waiting", "moving"):
            values = getattr(wanted, name)
            for text, value in (("p50_ns", percentile(values, 50)), ("p95_ns", percentile(values, 95)), ("max_ns", max(values))):
                if has[0][name][text] is None: # inside the error of the clocks
                    inside += 1
                    continue
                difference_ns = abs(has[0][name][text] - value)
                furthest_ns = max(furthest_ns, difference_ns)
                if has[0][name]["n"] != len(values) or difference_ns > tolerance_ns:
                    problems.append(f"{key}: {name} {has[0][name]}, the double has {len(values)}, {text} {value}")
    return f"{compared} operations with all ranks, their times {furthest_ns / 1e6:.3f} ms off at most, {inside} times inside the clocks' error, " \
           f"{close} with two last ranks", problems


def check_clocks(report, kernels, hosts):
    """The differences of the hosts' clocks in a report are possible: no rank's kernel of a collective ends before the last one has started. `hosts`: of each
    process. Returns (said, problems)."""
    operations = collections.defaultdict(list)
    for kernel in kernels:
        if kernel.works[0][0] not in identity_truth.SUMMED:
            operations[(kernel.hash_, kernel.place)].append(kernel)
    least, most = {}, {}
    for each in operations.values():
        for one in each:
            for other in each:
                pair = hosts[one.process], hosts[other.process]
                least[pair] = max(other.start_ns - one.end_ns, least.get(pair, -NEVER_NS))
                most[pair] = min(other.end_ns - one.start_ns, most.get(pair, NEVER_NS))
    problems, compared = [], 0
    for pair in report["clock_differences"]:
        key, ahead_ns = (pair["host_a"], pair["host_b"]), pair["b_minus_a_ns"]
        if key not in least:
            continue
        compared += 1
        if not least[key] <= ahead_ns <= most[key]:
            problems.append(f"clocks {key}: {ahead_ns / 1e6:.1f} ms, the double's kernels need {least[key] / 1e6:.1f} to {most[key] / 1e6:.1f} ms")
    return f"clocks of {compared} pairs of nodes possible", problems


def on_common_clock(report, kernels, hosts):
    """The kernels with times on one clock, by the report's differences (check_clocks judges them)."""
    ahead_ns, todo = {hosts[0]: 0}, [hosts[0]]
    while todo:
        host = todo.pop(0)
        for pair in report["clock_differences"]:
            for one, other, apart_ns in ((pair["host_a"], pair["host_b"], pair["b_minus_a_ns"]), (pair["host_b"], pair["host_a"], -pair["b_minus_a_ns"])):
                if one == host and other not in ahead_ns:
                    ahead_ns[other] = ahead_ns[host] + apart_ns
                    todo.append(other)
    def there(kernel, ns):
        # The report, too, takes a clock that no connection shows for right.
        return ns - ahead_ns.get(hosts[kernel.process], 0)
    return [dataclasses.replace(kernel, start_ns=there(kernel, kernel.start_ns), end_ns=there(kernel, kernel.end_ns)) for kernel in kernels]
