# SPDX-License-Identifier: Apache-2.0
"""Runs the lab as process 1 of its own pid and network namespaces. When it exits, for any reason, the kernel kills every process in
them and removes every tap, bridge and capture. A later start has nothing to clean up."""

import ctypes
import os
import select
import signal
import sys

from . import report
from .report import LabError, NotPossible

_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PATIENCE_S = 20

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """The calling process gets SIGKILL when its parent exits. Usable as preexec_fn."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _unshare(flags, what):
    if _libc.unshare(flags) != 0:
        raise NotPossible(f"cannot create a {what} namespace: {os.strerror(ctypes.get_errno())}. Fix: run as root, outside a container that forbids unshare")


def run(body):
    """Runs body() in the sandbox and returns its exit status. SIGINT, SIGTERM and SIGHUP arrive as SIGTERM."""
    guard_read, guard_write = os.pipe()
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
    _unshare(_CLONE_NEWPID, "pid")
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(body, guard_read, guard_write, asked)
    os.close(guard_read)
    got = []

    def forward(number, _frame):
        got.append(number)
        # A second signal kills a process 1 that hangs.
        os.kill(child, signal.SIGKILL if len(got) > 1 else signal.SIGTERM)
        signal.alarm(_PATIENCE_S)

    for number in asked:
        signal.signal(number, forward)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, asked)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    os.close(guard_write)
    if got:
        return 128 + got[0]
    if os.WIFSIGNALED(status):
        print(f"lab: killed by signal {os.WTERMSIG(status)}", file=sys.stderr)
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def _child(body, guard_read, guard_write, asked):
    status = 1
    try:
        os.close(guard_write)
        die_with_parent()
        # The parent may have died before PDEATHSIG was set.
        if select.select([guard_read], [], [], 0)[0]:
            os._exit(1)
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, asked)
        _unshare(_CLONE_NEWNET, "network")
        status = body()
    except LabError as error:
        status = report.failure(error)
    except Interrupted:
        print("lab: interrupted", file=sys.stderr)
    except BaseException:  # pylint: disable=broad-except
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Interrupted(Exception):
    """The user interrupted the lab."""


def _interrupt(_number, _frame):
    raise Interrupted()
