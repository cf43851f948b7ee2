#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guest library is loaded into sleeping processes, which check themselves that nothing of them has changed.

inject_test.py --build DIRECTORY [--cases NAME,...] [--only-full] [--rounds N]"""

import argparse
import concurrent.futures
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
BATCH, BATCH_MS = 12, 6000
# Processes with a load, which sleep most of the time.
AT_ONCE = 2
# Requests of ptrace, in hexadecimal, in the order in which the injector makes them.
REQUESTS = {"seize": "4206", "interrupt": "4207", "getregs": "c", "getsigmask": "420a", "peeksiginfo": "4209", "setregs": "d", "setsigmask": "420b",
            "detach": "11"}
CAME_BACK_LATE, EXITED = "later than the limit of 100 ms", "it has exited"
# On a machine without a CPU to spare a sleep may be over before the test has done its part.
TRIES = 3


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

    def gets_guest_or_ends(self):
        """Whether it has the guest. Without, its sleep was over first."""
        wait_until(lambda: self.process.poll() is not None or self.has_guest(), f"{self.mode}: the guest")
        return self.process.returncode is None

    def settled(self):
        """The injection's own thread, file and memory are gone."""
        def links():
            for fd in os.listdir(f"/proc/{self.pid}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    yield os.readlink(f"/proc/{self.pid}/fd/{fd}")

        def is_settled():
            return not any("memfd" in link for link in links()) and len(self.threads()) == self.n_threads + 1
        wait_until(is_settled, f"{self.mode}: the injection's thread, file and memory are gone")

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
    if CAME_BACK_LATE in said or EXITED in said:
        return None
    assert status == 0, said
    return int(re.search(r"paused_ns (\d+)", said).group(1)) / 1000


def at_once(function, items):
    """The results of function(item)."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(function, items))


def exact_restart(arguments):
    """With a time: the call ends when it would have ended. Without: it goes on until it is woken. Threads with locks run meanwhile."""
    def restart(mode):
        for _ in range(TRIES):
            with Target(arguments.build, mode, "--sleep-ms", str(SLEEP_MS), "--load") as target:
                time.sleep((INJECTED_AT_MS if mode in TIMED else 100) / 1000)
                pause_us = inject(arguments.build, target.pid)
                has_guest = pause_us is None or (target.gets_guest_or_ends() if mode in TIMED else target.gets_guest())
                result = target.wake()
            # A sleep that starts again is late each time, one that the machine held is not.
            if has_guest and (mode not in TIMED or result["took_ms"] < SLEEP_MS + LATE_MS):
                return f"{mode} {'cancelled' if pause_us is None else format(pause_us, '.0f') + ' us'}"
        raise AssertionError(f"{mode}: {TRIES} times started again, or without the guest: {result}")
    return ", ".join(at_once(restart, MODES))


def many(arguments):
    """Fresh processes, a batch at a time, in each call in turn."""
    rounds = arguments.rounds or (FULL_ROUNDS if arguments.only_full else QUICK_ROUNDS)
    pauses, cancelled, ended, n = [], 0, 0, 0
    # The sleep of a process may be over before its turn: another one takes its place.
    while n - ended < rounds:
        assert n < TRIES * rounds, f"{ended} of {n} had ended before the injection"
        modes = [MODES[i % len(MODES)] for i in range(n, min(n + BATCH, rounds + ended))]
        n += len(modes)
        with contextlib.ExitStack() as stack:
            targets = [stack.enter_context(Target(arguments.build, mode, "--sleep-ms", str(BATCH_MS), *(["--load"] if i % 4 == n % 4 else [])))
                       for i, mode in enumerate(modes)]
            for target in targets:
                target.n_threads = len(target.threads())
                target.pause_us = inject(arguments.build, target.pid)
                target.has_ended = target.process.poll() is not None
            for target in targets:
                if target.pause_us is None and target.has_ended:
                    ended += 1
                elif target.pause_us is None:
                    cancelled += 1
                elif target.mode not in TIMED: # those may have ended, if the machine is busy
                    target.gets_guest()
                    target.settled()
            pauses += [target.pause_us for target in targets if target.pause_us is not None]
            for target in targets:
                target.wake()
    assert cancelled <= rounds // 5, f"{cancelled} of {rounds} came back too late"
    pauses.sort()
    return f"{len(pauses)} processes, pause {pauses[len(pauses) // 2]:.0f} us (median), {pauses[-1]:.0f} us (longest), {cancelled} cancelled"


def signals(arguments):
    """Real-time signals meet the sleeping thread all the time: each is handled once, and the read is restarted, as its handler asks for."""
    rounds = arguments.rounds or (40 if arguments.only_full else 3)
    total = loaded = n = 0
    # Whether one of them has the guest is a matter of luck: the signals meet the injection, too.
    while n < rounds or not loaded:
        assert n < 10 * rounds, f"{n} processes, none with the guest: {text}"
        n += 1
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
    return f"{total} signals, {n} processes, {loaded} with the guest"


def interrupted(arguments):
    """A signal that comes while the thread is borrowed: its handler runs once, and ends the call with EINTR where it would without the guest."""
    at = ("--signal-at", REQUESTS["detach"])
    for mode, option, ends in (("read", "--signals", False), ("read", "--signals-eintr", True), ("nanosleep", "--signals", True), ("poll", "--signals", True),
                               ("epoll", "--signals", True)):
        with Target(arguments.build, mode, option, "--sleep-ms", "20000") as target:
            status, said = injected(arguments.build, target.pid, *at)
            # With EINTR the process ends, maybe before the library is loaded.
            assert status == 0 or CAME_BACK_LATE in said or (ends and EXITED in said), f"{mode}: {said}"
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
        # After the last one the process has to be there for longer than its new thread waits: 10 s for the file, as long for the injector.
        mode = modes[i % len(modes)] if name != "writev" else "poll"
        for number in range(TRIES):
            with Target(arguments.build, mode, "--sleep-ms", str(600 * 4 ** number), "--load") as target:
                status, text = injected(arguments.build, target.pid, "--die-before", REQUESTS.get(name, name))
                check_free(target)
                if status == -signal.SIGSYS and name == "writev":
                    target.n_threads = len(target.threads()) - 2
                    target.settled()
                    assert not target.has_guest()
                target.wake()
            if status == -signal.SIGSYS:
                break
            assert CAME_BACK_LATE in text or (EXITED in text and mode in TIMED), f"{name}: {status} {text}"
        assert status == -signal.SIGSYS, f"{name}: {TRIES} times it did not come so far: {text}"
        said.append(name)
    rounds = arguments.rounds or (FULL_ROUNDS // 4 if arguments.only_full else QUICK_ROUNDS)

    def kill_at_random(i):
        with Target(arguments.build, modes[i % len(modes)], "--sleep-ms", "500", "--load") as target:
            with subprocess.Popen([f"{arguments.build}/tests/inject/inject_once", f"{arguments.build}/{GUEST}", str(target.pid)],
                                  stdout=subprocess.DEVNULL) as injector:
                time.sleep(random.uniform(0.015, 0.12))
                injector.kill()
            check_free(target)
            target.wake()
            return injector.returncode == 0
    return f"before {', '.join(said)}; at {rounds} random points ({sum(at_once(kill_at_random, range(rounds)))} had ended)"


def check_free(target):
    wait_until(lambda: target.status("TracerPid") == "0", "traced no more")

    def stopped():
        for task in os.listdir(f"/proc/{target.pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{target.pid}/task/{task}/status", encoding="utf-8") as file:
                if re.search(r"^State:\s*[Tt]", file.read(), re.MULTILINE):
                    return True
        return False
    wait_until(lambda: not stopped(), "stopped no more")


def refused(arguments):
    """Each in one line, with what to do, and the process goes on."""
    said = []

    def expect(target, words, pid=None, prefix=(), may_end=False):
        """False, where it may: the target had ended before."""
        before = target.maps()
        pid = pid or target.pid
        done = subprocess.run([*prefix, f"{arguments.build}/tests/inject/inject_once", f"{arguments.build}/{GUEST}", str(pid)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
        text = done.stdout.strip()
        if may_end and EXITED in text:
            return False
        assert done.returncode == 1 and words in text and ". Fix: " in text and "\n" not in text, f"{words}: {text}"
        assert target.maps() == before or target.process.poll() is not None, words
        said.append(words)
        return True

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

    def expect_of_timed(mode_and_words):
        mode, words = mode_and_words
        for number in range(TRIES):
            with Target(arguments.build, mode, "--sleep-ms", str(3800 * 4 ** number)) as target:
                is_refused = expect(target, words, may_end=True)
                target.wake()
            if is_refused:
                return
        raise AssertionError(f"{mode}: {TRIES} times it had ended before")

    at_once(expect_of_timed, (("futex-lock", "it waits for a lock"), ("epoll-timed", "its time limit would start again")))
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
