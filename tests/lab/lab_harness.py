# SPDX-License-Identifier: Apache-2.0
"""What lab tests share: starting a lab, its packet files, and the check that nothing of it stays."""

import argparse
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "scale")]

import both_cores  # noqa: E402  (the path has to be set first)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
COLLWIRE = os.path.join(ROOT, "build", "release", "collwire")
LAB = os.path.join(ROOT, "tools", "lab")
HERE = os.path.dirname(os.path.realpath(__file__))
SKIPPED = 77  # CTest: SKIP_RETURN_CODE
# The report over all nodes of a lab, in its directory of results.
REPORT = "report.json"

# Every process of a lab inherits this variable, which names the lab's directory of results.
MARK = "COLLWIRE_LAB_TEST"
_LAB_INTERFACE = re.compile(r"tap\d+(_\d+)?|up\d+|down\d+|leaf\d+|spine\d+|loss-.*")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_started = []


# This kernel preempts tasks in kernel code. Where two tasks are in both programs of a function, a call is missed (docs/sources/rxe_wire.md); an
# emulated CPU is slow enough for that.
MISSES_CALLS = "newest"
# Exit status of a report over captures that lost something.
LOST = 5

NOT_POSSIBLE = 69  # tools/lab: this machine cannot run a lab
# Programs that the jobs and the truth run, and their packages.
_PROGRAMS = {"tshark": "tshark", "ib_write_bw": "perftest", "rping": "rdmacm-utils"}
_BUILT = os.path.join(ROOT, "build", "release", "tests", "lab")


def skip(reason):
    """Fails instead where tools/test has installed the packages: nothing may be missing there."""
    if os.environ.get("COLLWIRE_LAB_REQUIRED") == "1":
        print(f"not skipped, since the lab's packages were installed: {reason}")
        sys.exit(1)
    print(f"skip: {reason}")
    sys.exit(SKIPPED)


def need_root():
    if os.geteuid() != 0:
        skip("the lab needs root")


def need_programs():
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin"
    missing = sorted(package for program, package in _PROGRAMS.items() if not shutil.which(program, path=path))
    if missing:
        skip(f"not installed: {', '.join(missing)}. Fix: tools/install-deps lab")
    assert os.path.exists(COLLWIRE), f"{COLLWIRE} is not there. Fix: cmake --preset release && cmake --build --preset release"
    if not os.path.exists(os.path.join(_BUILT, "rdma_wr_post")):
        skip("the RDMA test programs were not built: rdma-core's development files are missing. Fix: tools/install-deps build, and build again")


def scratch():
    """A directory for results, removed at the end of the block."""
    return tempfile.TemporaryDirectory(prefix="collwire-lab-test-")


def run_on_a_kernel(test, takes_loss=False, then=()):
    """The frame of a test that runs on several kernels, as the command line says: test(arguments, out), where the lab makes `out`, which is
    removed afterwards. No process and no interface may stay. then: jobs that may follow in the same boot."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", default="6.1", help="a series of tools/lab")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    if takes_loss:
        parser.add_argument("--loss", type=float, default=0, metavar="PERCENT")
    if then:
        parser.add_argument("--then", action="append", default=[], choices=then, help="a job that follows in the same boot; may be repeated")
    arguments = parser.parse_args()
    need_root()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print(f"skip: kernel {arguments.kernel} is for tools/test --full")
        sys.exit(SKIPPED)
    need_programs()
    before = interfaces()
    with scratch() as directory:
        out = os.path.join(directory, "out")
        test(arguments, out)
        expect_nothing_left(out, before)


def _end_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _asked_to_end(number, _frame):
    """Ends the labs, then this test. Popen.wait() is not reentrant: the code that this interrupts may be in it, so its lock stays alone here.
    A second signal (of a killed ctest and of its end, say) finds this one at work."""
    signal.signal(number, signal.SIG_IGN)
    running = [process.pid for process in _started if process.returncode is None]
    for ask in (lambda pid: os.kill(pid, signal.SIGTERM), lambda pid: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)):
        for pid in running:
            try:
                ask(pid)
            except (ProcessLookupError, ChildProcessError):  # its status was collected meanwhile
                pass
    sys.exit(128 + number)


# A test ends with its ctest, its labs first.
signal.signal(signal.SIGTERM, _asked_to_end)
_end_with_parent()


def start(*arguments, command=(LAB,)):
    """A lab, or `command` that becomes one."""
    environment = dict(os.environ)
    if "--out" in arguments:
        environment[MARK] = arguments[arguments.index("--out") + 1]
    process = subprocess.Popen([*command, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment,
                               preexec_fn=_end_with_parent)
    _started.append(process)
    return process


def run(*arguments):
    """(exit status, standard error). Skips the test where no lab can run."""
    process = start(*arguments)
    said = process.communicate()[1]
    print(said)
    skip_if_not_possible(process.returncode, said)
    return process.returncode, said


def skip_if_not_possible(status, said):
    if status == NOT_POSSIBLE:
        skip(said.strip().splitlines()[-1].replace("lab: error: ", ""))


def run_job(out, kernel, nodes, job, *options, limit_s=900):
    """Boots the nodes with a job of jobs/, which has to return 0, and prints its log of each node."""
    status, said = run("--nodes", str(nodes), "--kernel", kernel, "--limit", str(limit_s), "--boot-limit", "600", "--out", out,
                       "--job", os.path.join(HERE, "jobs", job), *options)
    print_logs(out)
    assert status == 0, said


def missed_calls_options(kernel):
    """For tools/lab: the jobs accept a recorder's exit status that says so."""
    return ["--env", "RECORDED_MAY_MISS_CALLS=1"] if kernel == MISSES_CALLS else []


def report_statuses(kernel):
    """The exit statuses of a report that this kernel may cause."""
    return (0, LOST) if kernel == MISSES_CALLS else (0,)


def losses(report, kernel):
    """Losses without those known on this kernel."""
    return [entry for entry in report["loss"]["entries"] if kernel != MISSES_CALLS or entry["class"] != "probe_missed"]


def load(*path):
    with open(os.path.join(*path), encoding="utf-8") as source:
        return json.load(source)


def print_logs(out):
    """The jobs' logs, and QEMU's where it is not empty."""
    logs = [log for name in ("job.log", "qemu.log") for log in glob.glob(os.path.join(out, "node*", name)) if os.path.getsize(log)]
    for log in sorted(logs):
        with open(log, encoding="utf-8", errors="replace") as source:
            print(f"--- {os.path.relpath(log, out)}\n{source.read()}", flush=True)


def collwire_report(out, *options, capture="capture", name=REPORT, expected=(0,)):
    """The report over the captures of this name of all nodes, as JSON, left in `out` too."""
    return report_of(sorted(glob.glob(os.path.join(out, "node*", capture))), os.path.join(out, name),
                     "--topology", os.path.join(out, "topology.json"), *options, expected=expected)


def report_of(captures, path, *options, quiet=False, expected=(0,)):
    """The report over these captures, as JSON, left in `path` too. quiet: the text is printed on failure only."""
    words = [COLLWIRE, "report", *captures, "--json", path, *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if not quiet or done.returncode not in expected:
        print(done.stdout + done.stderr, flush=True)
    assert done.returncode in expected, f"collwire report: exit status {done.returncode}"
    report = load(path)
    both_cores.check(COLLWIRE, report, captures)
    return report


def compare(out, *options, **reports):
    """Holds the reports of these names in `out` against the packet captures; the keyword says what kind each is: wire, posted, from_first."""
    words = [os.path.join(HERE, "truth", "compare.py"), out, *options]
    for kind, name in reports.items():
        words += [f"--{kind.replace('_', '-')}", os.path.join(out, name)]
    done = subprocess.run(words, check=False)
    assert done.returncode == 0, "collwire and tshark differ"


def event_s(out, event):
    """When a job announced the event: seconds since the epoch, by the host's clock."""
    at_ns, = (entry["unix_ns"] for entry in load(out, "lab.json")["events"] if entry["event"] == event)
    return at_ns / 1e9


def _records(path):
    """(time in seconds since the epoch, original length, kept bytes) of every frame of a packet file."""
    with open(path, "rb") as source:
        data = source.read()
    assert struct.unpack_from("<I", data)[0] == 0xA1B2C3D4, path
    at = 24
    while at < len(data):
        seconds, micros, kept, length = struct.unpack_from("<IIII", data, at)
        yield seconds + micros / 1e6, length, data[at + 16:at + 16 + kept]
        at += 16 + kept


def frames(path):
    """(source MAC, destination MAC, ethertype, original length, kept bytes) of every frame of a packet file."""
    for _, length, frame in _records(path):
        yield frame[6:12], frame[0:6], struct.unpack_from(">H", frame, 12)[0], length, frame


def stamped_frames(path):
    """(source MAC, destination MAC, seconds since the epoch, kept bytes) of every frame of a packet file."""
    for time_s, _, frame in _records(path):
        yield frame[6:12], frame[0:6], time_s, frame


def is_roce(frame):
    """RoCE v2 over IPv4 without options, or over IPv6: UDP to port 4791."""
    if frame[12:14] == b"\x86\xdd":
        return frame[20] == 17 and frame[56:58] == b"\x12\xb7"
    return frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == b"\x12\xb7"


def mac(node, nic=0):
    return bytes((0x52, 0x54, 0, 0, nic, node + 1))


def _content(path):
    try:
        with open(path, "rb") as source:
            return source.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has ended
        return ""


def processes_of(out):
    """"PID COMMAND LINE" of all living processes of a lab whose results go to `out` or below it, in all namespaces."""
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            line = _content(f"/proc/{pid}/cmdline")
            if line and (out in line or f"{MARK}={out}" in _content(f"/proc/{pid}/environ")):
                found.append(f"{pid} {line[:120]}")
    return found


def interfaces():
    """Interfaces of this network namespace that have a name of the lab's."""
    with open("/proc/net/dev", encoding="ascii") as source:
        names = [line.split(":")[0].strip() for line in source if ":" in line]
    return sorted(name for name in names if _LAB_INTERFACE.fullmatch(name))


def expect_nothing_left(out, before):
    """No process (and with the last of them its namespaces) and no interface. The kernel takes a short time to end the processes of a killed
    sandbox."""
    end = time.monotonic() + 60
    while processes_of(out) and time.monotonic() < end:
        time.sleep(0.05)
    left = processes_of(out)
    assert not left, f"these processes stay: {left}"
    assert interfaces() == before, f"interfaces changed: {before} -> {interfaces()}"


def add_arguments(parser):
    """The options of every test of official NCCL."""
    parser.add_argument("--kernel", default="6.1")
    parser.add_argument("--nccl", default="2.32.3", metavar="VERSION")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    parser.add_argument("--keep", metavar="DIR", help="leave the results in DIR/out")


def run_main(arguments, check):
    """check(arguments, directory of the results), or a skip where no lab can run. Nothing of the lab may stay."""
    need_root()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skip: this one is for tools/test --full")
        sys.exit(SKIPPED)
    need_programs()
    before = interfaces()
    with scratch() as directory:
        out = os.path.join(arguments.keep or directory, "out")
        check(arguments, out)
        expect_nothing_left(out, before)
