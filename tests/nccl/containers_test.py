#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of official NCCL in two containers of podman, with overlay storage, over sockets: collwire on the host, and in a privileged container with the
host's pids, against the logs of the double and the job, and against podman's own list of containers.

containers_test.py --collwire FILE --build DIRECTORY --version VERSION [--cases NAME,...] [--debootstrap] [--keep DIRECTORY] [--only-full]"""

import dataclasses
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import attached
import busy_machine
import cases
import containers
import double_job
import hangs
import identity_truth
import join_truth

RANKS = 2
CASE = dataclasses.replace(cases.CASES["sockets"], fewest_figures=4, fewest_calls=3)
# Groups as the kubelet and slurmd make them, with containers of podman below them.
POD = "8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d"
JOB, STEP = "4711", "3"
PARENTS = (f"/{containers.GROUP}/kubepods/burstable/pod{POD}", f"/{containers.GROUP}/slurm/uid_0/job_{JOB}/step_{STEP}")
PLACES = ({"pod_uid": POD, "slurm_job": None, "slurm_step": None}, {"pod_uid": None, "slurm_job": JOB, "slurm_step": STEP})
NO_PLACE = {"pod_uid": None, "slurm_job": None, "slurm_step": None}
LIBRARY = f"{containers.PLACE}/libnccl.so.2"
# A recording with late attach is judged from 2 s after its start to 1 s before its end; on a busy machine from later on, and for as long as it takes until
# each rank has made enough launches.
RECORDED_S = 6.5
FEWEST, FEWEST_LAUNCHES = 10, 20
# Launches of attach.job before its ranks make sends, too.
IN_LOOP = 24
ROOTLESS_USER = "nobody"
PATIENCE_S = 120


class RunningContainers:
    """The ranks in their containers, until the end of the block."""

    def __init__(self, job, directory, *words):
        self.job, self.directory = job, directory
        job.directory = directory
        job.write_layout(directory)
        self.processes, self.ids, self.pids = [], (), ()
        for rank in range(RANKS):
            self.processes.append(job.start(rank, directory, "job", words))

    def __enter__(self):
        try:
            self.ids, self.pids = zip(*self.job.containers())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.job.remove()
        for process in self.processes:
            process.wait(timeout=PATIENCE_S)

    def wait_until_running(self):
        double_job.wait_until_running(self.job, self.directory, self.processes)

    def wait_for_launches(self, n):
        double_job.wait_for_launches(self.job, self.directory, self.processes, n, PATIENCE_S)

    def wait_for_end(self):
        double_job.expect_right_data(self.directory, self.processes, one_machine.PATIENCE_S)

    def end(self):
        os.kill(self.pids[0], signal.SIGTERM)
        self.wait_for_end()

    def logs(self):
        """The ranks' logs. A rank knows its pid in its own namespace only."""
        logs = one_machine.logs_of(self.directory, "job", RANKS)
        for log, pid in zip(logs, self.pids):
            log[0]["pid"] = pid
        return logs


def in_groups(podman, arguments, library):
    """The job with a rank in a pod's group, and one in a Slurm step's."""
    job = containers.ContainerJob(podman, library, arguments.build)
    for rank, parent in enumerate(PARENTS):
        job.options[rank] = [f"--cgroup-parent={parent}"]
    return job


def attach_words(directory):
    """The job that runs until it is stopped. The containers see the directory."""
    return ["--plan", shutil.copy(os.path.join(cases.JOBS, "attach.job"), directory), "--count", "0"]


def json_of(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stderr}"
    return json.loads(done.stdout)


def named(what, entries, running, places=PLACES):
    """Problems of the names that the entries, by host pid, have for the ranks' processes. podman knows ids and pids."""
    problems = []
    for rank, (id_, pid) in enumerate(zip(running.ids, running.pids)):
        expected = {"container_id": id_, "namespace_pid": 1, **places[rank]}
        found = {name: entries.get(pid, {}).get(name) for name in expected}
        if found != expected:
            problems.append(f"{what}: rank {rank}, pid {pid}: {found}, not {expected}")
    return problems


def by_pid(processes):
    return {process["pid"]: process for process in processes}


def ranks_of(process):
    return {comm["rank"] for comm in process["communicators"] if comm["n_ranks"] == RANKS}


def inspected(collwire, running, *options):
    """`collwire inspect --json`; only the job's processes."""
    inspection = json_of([*collwire, "inspect", *options, "--json"])
    return {**inspection, "processes": [process for process in inspection["processes"] if process["pid"] in running.pids]}


def check_inspection(what, inspection, running, places=PLACES):
    processes = by_pid(inspection["processes"])
    problems = named(what, processes, running, places)
    for rank, pid in enumerate(running.pids):
        if pid not in processes or ranks_of(processes[pid]) != {rank}:
            problems.append(f"{what}: pid {pid} is not rank {rank}: {processes.get(pid)}")
    return problems


def check_choice(arguments, running):
    """Each way to choose processes finds the right ones and no other."""
    problems = []
    for options, ranks in ((["--container", running.ids[0][:12]], [0]), (["--container", ",".join(running.ids)], [0, 1]), (["--pod", POD], [0]),
                           (["--job", f"{JOB}.{STEP}"], [1]), (["--job", JOB, "--pod", POD], [0, 1]), ([str(running.pids[1])], [1])):
        pids = sorted(process["pid"] for process in json_of([arguments.collwire, "inspect", *options, "--json"])["processes"])
        if pids != sorted(running.pids[rank] for rank in ranks):
            problems.append(f"inspect {options}: pids {pids}, of {running.pids}")
    return problems


def causes_of(arguments, inspection, path):
    """(causes of `collwire diagnose`, its text)."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(inspection, file)
    text = subprocess.run([arguments.collwire, "diagnose", path], capture_output=True, text=True, check=True).stdout
    diagnosis = json_of([arguments.collwire, "diagnose", "--json", path])
    return [cause for comm in diagnosis["communicators"] if comm["stuck"] for cause in comm["causes"]], text


def check_stopped(arguments, running, directory, collwires, places=PLACES):
    """Rank 1 is stopped: `inspect` and `diagnose` name its container. `collwires`: name -> words that run collwire, on the host or elsewhere."""
    problems, hosts = [], set()
    try:
        hangs.stop(running.pids[1])
        end = time.monotonic() + PATIENCE_S
        while not any(proxy["verdict"] == "peers" for process in inspected([arguments.collwire], running, str(running.pids[0]))["processes"]
                      for proxy in process["proxies"]):
            assert time.monotonic() < end, "rank 0 does not wait for rank 1"
        for name, collwire in collwires.items():
            inspection = inspected(collwire, running, "--all")
            hosts.add((inspection["host"], inspection["boot_id"]))
            problems += check_inspection(f"inspect, {name}", inspection, running, places)
            causes, text = causes_of(arguments, inspection, f"{directory}/inspect.{name}.json")
            print(f"{name}: {text}", flush=True)
            problems += named(f"diagnose, {name}", {**by_pid(inspection["processes"]), **by_pid(causes)}, running, places)
            words = f"container {running.ids[1][:12]}"
            if [(cause["kind"], cause["rank"], cause["pid"]) for cause in causes] != [("HOST", 1, running.pids[1])] or words not in causes[0]["text"]:
                problems.append(f"diagnose, {name}: {causes}")
    finally:
        os.kill(running.pids[1], signal.SIGCONT)
    if len(hosts) != 1:
        problems.append(f"one host has the names {hosts}")
    return problems


def record_for(collwire, running, path, *options):
    recording = attached.Recording(collwire, path, *options)
    # The recorder has to read what is there by then.
    recording.healed_after_ns = int(attached.HEALED_NS * busy_machine.slowness())
    judged_ns = recording.ready_ns + recording.healed_after_ns + attached.EDGE_NS
    end = time.monotonic() + one_machine.PATIENCE_S
    while min(launches_since(f"{running.directory}/truth.{rank}", judged_ns) for rank in range(RANKS)) < FEWEST_LAUNCHES:
        assert time.monotonic() < end, "the job does not go on"
        time.sleep(0.1)
    # The judgement ends before the last seconds.
    time.sleep(max(2.5 * attached.EDGE_NS / 1e9, recording.ready_ns / 1e9 + RECORDED_S - time.time()))
    recording.end()
    return recording


def launches_since(path, begin_ns):
    return sum(kernel["launched_ns"] > begin_ns for kernel in double_job.lines_so_far(path))


def judge_late(arguments, recording, running, places=PLACES):
    assert recording.recorder.status == 0, recording.recorder.said()
    compared, problems = attached.judge(arguments, recording, running.directory, FEWEST, recording.healed_after_ns, jobs=running.logs())
    with open(f"{recording.path}.json", encoding="utf-8") as file:
        problems += named("report", by_pid(json.load(file)["processes"]), running, places)
    print(f"{os.path.basename(recording.path)}: {compared} operations compared, {len(problems)} problems", flush=True)
    return [f"{os.path.basename(recording.path)}: {problem}" for problem in problems]


def case_start(arguments, podman, library, directory):
    """From the start, with the image's library probed before a container has it."""
    job = in_groups(podman, arguments, library)
    with one_machine.Recorder(arguments.collwire, f"{directory}/capture", "--nccl", podman.file_of_image(LIBRARY)) as recorder:
        with RunningContainers(job, directory, "--plan", "training", "--count", "2") as running:
            running.wait_for_end()
    assert recorder.status == 0, recorder.said()
    logs = running.logs()
    doubles = one_machine.logs_of(directory, "truth", RANKS)
    report = one_machine.report_of(arguments.collwire, f"{directory}/capture", f"{directory}/report.json", logs)
    line, problems = join_truth.judge(CASE, report, logs, doubles, identity_truth.same_node(logs, 1), one_machine.processes_of(report, logs),
                                      report["loss"]["entries"])
    print(line)
    return problems + named("report", by_pid(report["processes"]), running)


def case_late(arguments, podman, library, directory):
    """Late attach to containers that are chosen by name; inspection from the host and from a privileged container."""
    with RunningContainers(in_groups(podman, arguments, library), directory, *attach_words(directory)) as running:
        running.wait_for_launches(IN_LOOP)
        problems = check_choice(arguments, running)
        recording = record_for(arguments.collwire, running, f"{directory}/chosen", "--container", running.ids[0], "--job", JOB)
        problems += check_stopped(arguments, running, directory, {"host": [arguments.collwire], "privileged": podman.privileged(directory)})
        running.end()
    return problems + judge_late(arguments, recording, running)


def case_privileged(arguments, podman, library, directory):
    """A recorder in a privileged container with the host's pids."""
    with RunningContainers(in_groups(podman, arguments, library), directory, *attach_words(directory)) as running:
        running.wait_for_launches(IN_LOOP)
        recording = record_for(podman.privileged(directory), running, f"{directory}/privileged", "--pid", ",".join(map(str, running.pids)))
        alone = record_for(arguments.collwire, running, f"{directory}/pod", "--pod", POD)
        running.end()
    report = json_of([arguments.collwire, "report", alone.path, "--json", "-"])
    pids = {rank["pid"] for comm in report["communicators"] for rank in comm["ranks"] if not rank["missing"]}
    problems = [] if pids == {running.pids[0]} else [f"record --pod: pids {pids} of {running.pids}"]
    problems += judge_late(arguments, recording, running)
    with open(f"{recording.path}.json", encoding="utf-8") as file:
        [host] = json.load(file)["hosts"]
    if host["name"] != socket.gethostname():
        problems.append(f"the privileged container records as {host['name']}, the host is {socket.gethostname()}")
    return problems


def case_replaced(arguments, podman, library, directory):
    """Rank 1 replaces the library in its overlay before it loads it. Later rank 0 deletes its own, and rank 1 replaces its own, while they run."""
    job = in_groups(podman, arguments, library)
    replace = f"cp {LIBRARY} {LIBRARY}.new && mv {LIBRARY}.new {LIBRARY}"
    job.shell[1] = replace
    with RunningContainers(job, directory, *attach_words(directory)) as running:
        running.wait_for_launches(IN_LOOP)
        podman.run("exec", job.name_of(0), "/bin/rm", LIBRARY)
        podman.run("exec", job.name_of(1), "/bin/sh", "-c", replace)
        recording = record_for(arguments.collwire, running, f"{directory}/replaced", "--pid", ",".join(map(str, running.pids)))
        problems = check_stopped(arguments, running, directory, {"host": [arguments.collwire], "privileged": podman.privileged(directory)})
        running.end()
    return problems + judge_late(arguments, recording, running)


def case_removed(arguments, podman, library, directory):
    """Rank 1's container is removed while it is recorded, and inspected over and over."""
    job = in_groups(podman, arguments, library)
    looks, is_over = [], threading.Event()

    def inspect_on():
        while not is_over.is_set():
            looks.append(subprocess.run([arguments.collwire, "inspect", "--all", "--json", "--between", "20ms"], capture_output=True, text=True, check=False))

    with RunningContainers(job, directory, *attach_words(directory)) as running:
        running.wait_until_running()
        inspecting = threading.Thread(target=inspect_on)
        inspecting.start()
        try:
            with one_machine.Recorder(arguments.collwire, f"{directory}/capture", "--container", ",".join(running.ids)) as recorder:
                time.sleep(RECORDED_S / 2)
                podman.run("rm", "-f", "-t", "0", job.name_of(1))
                time.sleep(RECORDED_S / 2)
        finally:
            is_over.set()
            inspecting.join()
    problems = [] if recorder.status == 0 else [f"recorder: {recorder.status}: {recorder.said()}"]
    problems += [f"inspect: exit {look.returncode}: {look.stderr}" for look in looks if look.returncode != 0]
    seen = [{process["pid"] for process in json.loads(look.stdout)["processes"]} & set(running.pids) for look in looks if look.returncode == 0]
    if set(running.pids) not in seen or set(running.pids) == seen[-1]:
        problems.append(f"inspections saw {seen}")
    report = json_of([arguments.collwire, "report", f"{directory}/capture", "--json", "-"])
    problems += named("report", by_pid(report["processes"]), running)
    doubles = [containers.lines_of_cut(f"{directory}/truth.{rank}") for rank in range(RANKS)]
    exact = sum(operation["rung"] == "exact" for operation in report["collectives"])
    print(f"{len(looks)} inspections; {exact} exact collectives, the double logged {[len(log) for log in doubles]} kernels", flush=True)
    if exact < FEWEST:
        problems.append(f"only {exact} exact collectives")
    with open("/proc/mounts", encoding="utf-8") as mounts:
        left = [line for line in mounts if running.ids[1] in line]
    return problems + [f"still mounted: {line}" for line in left]


def case_rootless(arguments, podman, library, directory):
    """Containers of another user, in user namespaces; collwire is root on the host."""
    del podman
    try:
        user = pwd.getpwnam(ROOTLESS_USER).pw_uid
    except KeyError:
        print(f"skipped: no user {ROOTLESS_USER}")
        return []
    os.chmod(os.path.dirname(directory), 0o755)
    os.chown(directory, user, user)
    with containers.podman_in(f"{directory}/podman", user) as rootless:
        containers.make_image(rootless, double_job.Job(library, arguments.build, RANKS), arguments.collwire)
        rootless.choose_runtime()
        job = containers.ContainerJob(rootless, library, arguments.build)
        places = (NO_PLACE, NO_PLACE)
        with RunningContainers(job, directory, *attach_words(directory)) as running:
            running.wait_for_launches(IN_LOOP)
            spaces = {os.readlink(f"/proc/{pid}/ns/user") for pid in running.pids}
            assert os.readlink("/proc/self/ns/user") not in spaces, "the containers are in the host's user namespace"
            # Captures are written below directories of root alone.
            short = ",".join(id_[:12] for id_ in running.ids)
            recording = record_for(arguments.collwire, running, f"{os.path.dirname(directory)}/rootless.capture", "--container", short)
            problems = check_stopped(arguments, running, directory, {"host": [arguments.collwire]}, places)
            of_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", shutil.copy(arguments.collwire, directory)]
            problems += check_inspection("inspect by its user", inspected(of_user, running, *map(str, running.pids)), running, places)
            running.end()
        return problems + judge_late(arguments, recording, running, places)


CASES = {"start": case_start, "late": case_late, "privileged": case_privileged, "replaced": case_replaced, "removed": case_removed, "rootless": case_rootless}
QUICK = ("start", "late")


def run(arguments, library, directory):
    os.chmod(directory, 0o755)
    problems = []
    base = containers.debootstrapped() if arguments.debootstrap else ""
    with containers.podman_in(f"{directory}/podman") as podman:
        begin = time.monotonic()
        containers.make_image(podman, double_job.Job(library, arguments.build, RANKS), arguments.collwire, base)
        podman.choose_runtime()
        print(f"image{' of debootstrap' if base else ''}: {time.monotonic() - begin:.1f} s; podman with {podman.runtime or 'its own choice of runtime'}, "
              f"network {podman.network}", flush=True)
        for name in arguments.cases.split(","):
            place = f"{directory}/{name}"
            os.mkdir(place)
            begin = time.monotonic()
            problems += [f"{name}: {problem}" for problem in CASES[name](arguments, podman, library, place)]
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
    assert not problems, "\n".join(problems[:40])


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--cases", {"default": ",".join(QUICK)}),
                                                       ("--debootstrap", {"action": "store_true"})), run))
