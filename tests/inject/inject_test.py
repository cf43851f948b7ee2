#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guest library is loaded into sleeping processes, which check themselves that nothing of them has changed.

inject_test.py --build DIRECTORY [--cases NAME,...] [--only-full] [--rounds N]"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

SKIPPED = 77
LIMIT_S = 60
GUEST, THREAD = "libcollwire_cupti.so", "collwire-gpu"
# What a thread can sleep in, and be borrowed.
MODES = ("poll", "poll-timed", "read", "select", "epoll", "nanosleep", "nanosleep-until", "futex-timed")
TIMED = {"poll-timed", "nanosleep", "nanosleep-until", "futex-timed", "epoll-timed", "futex-lock"}
QUICK_ROUNDS, FULL_ROUNDS = 24, 200
# A sleep that started again from its begin would take this much longer, at least.
SLEEP_MS, INJECTED_AT_MS, LATE_MS = 2000, 1200, 800
BATCH_MS = 6000
# Requests of ptrace, in hexadecimal, in the order in which the injector makes them.
REQUESTS = {"seize": "4206", "interrupt": "4207", "getregs": "c", "getsigmask": "420a", "peeksiginfo": "4209", "setregs": "d", "setsigmask": "420b",
            "detach": "11"}
CAME_BACK_LATE = "later than the limit of 100 ms"


class Target:
    def __init__(self, build, mode, *options, prefix=(), cuda=True, environment=None):
        self.mode = mode
        words = {**os.environ, **(environment or {})}
        if cuda:
            words["LD_PRELOAD"] = f"{build}/tests/inject/libcuda.so.1"
        self.process = subprocess.Popen([*prefix, f"{build}/tests/inject/inject_target", mode, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=words)
        line = self.process.stdout.readline()
        assert line.startswith("ready "), line
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def status(self, field):
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as file:
            return re.search(rf"^{field}:\s*(.*)$", file.read(), re.MULTILINE).group(1)

    def threads(self):
        names = []
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{self.pid}/task/{task}/comm", encoding="utf-8") as file:
                names.append(file.read().strip())
        return names

    def maps(self):
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as file:
            return file.read()

    def has_guest(self):
        return GUEST in self.maps() and THREAD in self.threads()

    def gets_guest(self):
        """Its thread has its name a moment after it was started."""
        wait_until(self.has_guest, f"{self.mode}: the guest")
        return True

    def settled(self):
        """The injection's own thread, file and memory are gone."""
        def links():
            for fd in os.listdir(f"/proc/{self.pid}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    yield os.readlink(f"/proc/{self.pid}/fd/{fd}")

        def is_settled():
            return not any("memfd" in link for link in links()) and len(self.threads()) == self.n_threads + 1
        wait_until(is_settled, f"{self.mode}: threads {self.threads()}")

    def last_words(self):
        """Its input stays open until it has ended: the end of it would wake the process."""
        self.process.wait(timeout=LIMIT_S)
        return self.process.communicate()[0]

    def wake(self):
        """Returns what the process found out about itself."""
        if self.mode not in TIMED:
            self.process.stdin.write("x")
            self.process.stdin.flush()
        text = self.last_words()
        assert text, f"{self.mode}: ended with {self.process.returncode} and no result"
        result = json.loads(text)
        assert self.process.returncode == 0 and result["bad"] == "", f"{self.mode}: {result}"
        return result


def wait_until(is_true, what):
    end_s = time.monotonic() + LIMIT_S
    while not is_true():
        assert time.monotonic() < end_s, f"never happened: {what}"
        time.sleep(0.01)


def injected(build, pid, *options):
    """Exit status and what the injector said."""
    done = subprocess.run([f"{build}/tests/inject/inject_once", *options, f"{build}/{GUEST}", str(pid)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout.strip()


def inject(build, pid):
    """Microseconds of the pause, or None: the machine was so busy that the injection was cancelled, or that the sleep was over before it."""
    status, said = injected(build, pid)
    if CAME_BACK_LATE in said or "it has exited" in said:
        return None
    assert status == 0, said
    return int(re.search(r"paused_ns (\d+)", said).group(1)) / 1000


def exact_restart(arguments):
    """With a time: the call ends when it would have ended. Without: it goes on until it is woken. Threads with locks run meanwhile."""
    said = []
    for mode in MODES:
        with Target(arguments.build, mode, "--sleep-ms", str(SLEEP_MS), "--load") as target:
            time.sleep((INJECTED_AT_MS if mode in TIMED else 100) / 1000)
            pause_us = inject(arguments.build, target.pid)
            assert pause_us is None or target.gets_guest()
            result = target.wake()
            if mode in TIMED:
                assert result["took_ms"] < SLEEP_MS + LATE_MS, f"{mode}: started again: {result}"
            said.append(f"{mode} {'cancelled' if pause_us is None else format(pause_us, '.0f') + ' us'}")
    return ", ".join(said)


def many(arguments):
    """Fresh processes, a batch of one in each call at a time."""
    rounds = arguments.rounds or (FULL_ROUNDS if arguments.only_full else QUICK_ROUNDS)
    pauses, cancelled, n = [], 0, 0
    while n < rounds:
        modes = MODES[:rounds - n]
        n += len(modes)
        with contextlib.ExitStack() as stack:
            targets = [stack.enter_context(Target(arguments.build, mode, "--sleep-ms", str(BATCH_MS), *(["--load"] if i % 4 == n % 4 else [])))
                       for i, mode in enumerate(modes)]
            for target in targets:
                target.n_threads = len(target.threads())
                target.pause_us = inject(arguments.build, target.pid)
            for target in targets:
                if target.pause_us is None:
                    cancelled += 1
                elif target.mode not in TIMED: # those may have ended, if the machine is busy
                    target.gets_guest()
                    target.settled()
            pauses += [target.pause_us for target in targets if target.pause_us is not None]
            for target in targets:
                target.wake()
    assert cancelled <= rounds // 5, f"{cancelled} of {rounds} came back too late, or had ended"
    pauses.sort()
    return f"{len(pauses)} processes, pause {pauses[len(pauses) // 2]:.0f} us (median), {pauses[-1]:.0f} us (longest), {cancelled} cancelled"


def signals(arguments):
    """Real-time signals meet the sleeping thread all the time: each is handled once, and the read is restarted, as its handler asks for."""
    rounds = arguments.rounds or (40 if arguments.only_full else 3)
    total = loaded = 0
    for _ in range(rounds):
        with Target(arguments.build, "read", "--signals") as target:
            end_s, sent = time.monotonic() + 0.7, 0
            with subprocess.Popen([f"{arguments.build}/tests/inject/inject_once", f"{arguments.build}/{GUEST}", str(target.pid)],
                                  stdout=subprocess.PIPE, text=True) as injector:
                while time.monotonic() < end_s:
                    # Between two, the thread sleeps long enough to be borrowed, and not much longer.
                    os.kill(target.pid, signal.SIGRTMIN)
                    sent += 1
                    time.sleep(random.uniform(0.015, 0.045))
                text, _ = injector.communicate(timeout=LIMIT_S)
            result = target.wake()
            assert result["handled"] == sent, f"{sent} sent, {result}"
            total += sent
            loaded += text.startswith("injected")
    assert loaded, text
    return f"{total} signals, {rounds} processes, {loaded} with the guest"


def interrupted(arguments):
    """A signal that comes while the thread is borrowed: its handler runs once, and ends the call with EINTR where it would without the guest."""
    at = ("--signal-at", REQUESTS["detach"])
    for mode, option, ends in (("read", "--signals", False), ("read", "--signals-eintr", True), ("nanosleep", "--signals", True), ("poll", "--signals", True),
                               ("epoll", "--signals", True)):
        with Target(arguments.build, mode, option, "--sleep-ms", "20000") as target:
            status, said = injected(arguments.build, target.pid, *at)
            # With EINTR the process ends, maybe before the library is loaded.
            assert status == 0 or CAME_BACK_LATE in said or (ends and "it has exited" in said), f"{mode}: {said}"
            if not ends:
                target.wake()
                continue
            result = json.loads(target.last_words())
            assert result["result"] == -4 and result["handled"] == 1 and result["bad"].strip() in ("result -4", "result -4 early"), f"{mode}: {result}"
    with Target(arguments.build, "read", "--signals-eintr") as target:
        assert inject(arguments.build, target.pid) is None or target.gets_guest()
        os.kill(target.pid, signal.SIGRTMIN)
        result = json.loads(target.last_words())
        assert result["result"] == -4 and result["handled"] == 1, result
    return "EINTR as without the guest"


def killed(arguments):
    """The injector dies before each of its calls in turn, and at random points."""
    said = []
    # In epoll_wait any tracer's stop is EINTR, unless it lives to put that right.
    modes = [mode for mode in MODES if mode != "epoll"]
    names = list(REQUESTS) + (["writev"] if arguments.only_full else [])
    for i, name in enumerate(names):
        mode = modes[i % len(modes)]
        with Target(arguments.build, mode, "--sleep-ms", "600", "--load") as target:
            status, text = injected(arguments.build, target.pid, "--die-before", REQUESTS.get(name, name))
            assert status == -signal.SIGSYS, f"{name}: {status} {text}"
            check_free(target)
            if name == "writev":
                target.n_threads = len(target.threads()) - 2
                target.settled()
                assert not target.has_guest()
            target.wake()
        said.append(name)
    rounds = arguments.rounds or (FULL_ROUNDS // 4 if arguments.only_full else QUICK_ROUNDS)
    with_guest = 0
    for i in range(rounds):
        mode = modes[i % len(modes)]
        with Target(arguments.build, mode, "--sleep-ms", "500", "--load") as target:
            with subprocess.Popen([f"{arguments.build}/tests/inject/inject_once", f"{arguments.build}/{GUEST}", str(target.pid)],
                                  stdout=subprocess.DEVNULL) as injector:
                time.sleep(random.uniform(0.015, 0.12))
                injector.kill()
            check_free(target)
            target.wake()
            with_guest += injector.returncode == 0
    return f"before {', '.join(said)}; at {rounds} random points ({with_guest} had ended)"


def check_free(target):
    wait_until(lambda: target.status("TracerPid") == "0", "still traced")
    for task in os.listdir(f"/proc/{target.pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{target.pid}/task/{task}/status", encoding="utf-8") as file:
            text = file.read()
            assert not re.search(r"^State:\s*[Tt]", text, re.MULTILINE), text


def refused(arguments):
    """Each in one line, with what to do, and the process goes on."""
    said = []

    def expect(target, words, pid=None, prefix=()):
        before = target.maps()
        pid = pid or target.pid
        done = subprocess.run([*prefix, f"{arguments.build}/tests/inject/inject_once", f"{arguments.build}/{GUEST}", str(pid)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
        text = done.stdout.strip()
        assert done.returncode == 1 and words in text and ". Fix: " in text and "\n" not in text, f"{words}: {text}"
        assert target.maps() == before, words
        said.append(words)

    with Target(arguments.build, "poll", cuda=False) as target:
        expect(target, "has not loaded CUDA's driver")
        target.wake()
    with Target(arguments.build, "poll", environment={"CUDA_INJECTION64_PATH": "/opt/profiler.so"}) as target:
        expect(target, "CUDA_INJECTION64_PATH=/opt/profiler.so")
        target.wake()
    with Target(arguments.build, "seccomp") as target:
        expect(target, "seccomp filter")
        target.wake()
    with Target(arguments.build, "traced") as target:
        expect(target, "traces it")
        target.wake()
    with Target(arguments.build, "poll") as target:
        os.kill(target.pid, signal.SIGSTOP)
        wait_until(lambda: target.status("State").startswith("T"), "stopped")
        expect(target, "it is stopped")
        os.kill(target.pid, signal.SIGCONT)
        target.wake()
    with Target(arguments.build, "vfork") as target:
        wait_until(lambda: target.status("State").startswith("D"), "waits for its child")
        expect(target, "cannot be interrupted")
    with Target(arguments.build, "futex-lock", "--sleep-ms", "3800") as target:
        expect(target, "it waits for a lock")
        target.wake()
    with Target(arguments.build, "epoll-timed", "--sleep-ms", "3800") as target:
        expect(target, "its time limit would start again")
        target.wake()
    with Target(arguments.build, "poll") as target:
        expect(target, "may not be read", prefix=("setpriv", "--reuid", "65534", "--clear-groups"))
        target.n_threads = len(target.threads())
        wait_until(lambda: inject(arguments.build, target.pid) is not None, "injected")
        target.settled()
        expect(target, "has the guest library already")
        target.wake()
    with subprocess.Popen(["sleep", "0"]) as child:
        pass
    with Target(arguments.build, "poll") as target:
        expect(target, "it has exited", pid=child.pid)
    return "; ".join(said)


def container(arguments):
    """A process in namespaces of its own, where the library's file is not."""
    with Target(arguments.build, "poll", prefix=("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c",
                                                 "exec \"$@\"", "sh")) as target:
        with open(f"/proc/{target.process.pid}/task/{target.process.pid}/children", encoding="utf-8") as children:
            target.pid = int(children.read().split()[0])
        subprocess.run(["nsenter", "-t", str(target.pid), "-m", "mount", "-t", "tmpfs", "none", arguments.build], check=True)
        assert not os.path.exists(f"/proc/{target.pid}/root{arguments.build}/{GUEST}")
        pause_us = inject(arguments.build, target.pid)
        assert pause_us is None or target.gets_guest()
        target.wake()
    return "loaded"


CASES = {"exact": exact_restart, "many": many, "signals": signals, "interrupted": interrupted, "killed": killed, "refused": refused, "container": container}
LONG = ("many", "killed", "signals")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--cases", default="")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--only-full", action="store_true", help="the long forms, with COLLWIRE_FULL=1 only")
    arguments = parser.parse_args()
    arguments.build = os.path.realpath(arguments.build)
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skip: runs with tools/test --full")
        return SKIPPED
    if os.geteuid() != 0:
        print("skip: needs root")
        return SKIPPED
    names = arguments.cases.split(",") if arguments.cases else LONG if arguments.only_full else list(CASES)
    failed = 0
    for name in names:
        begin_s = time.monotonic()
        try:
            said = CASES[name](arguments)
        except (AssertionError, subprocess.TimeoutExpired) as problem:
            failed += 1
            said = f"FAILED: {problem}"
        print(f"{name}: {said} ({time.monotonic() - begin_s:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
