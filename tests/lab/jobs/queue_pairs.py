# SPDX-License-Identifier: Apache-2.0
"""Destroys the queue pairs of a running process, as a driver that resets its device would: through a copy of the process's own open file of the
verbs (pidfd_getfd, Linux 5.6)."""

import ctypes
import fcntl
import glob
import os
import struct

_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
_libc = ctypes.CDLL(None, use_errno=True)
# rdma/rdma_user_ioctl_cmds.h, rdma/ib_user_ioctl_cmds.h
_RDMA_VERBS_IOCTL = 0xC0181B01
_OBJECT_QP, _METHOD_QP_DESTROY = 4, 1
_ATTR_HANDLE, _ATTR_RESPONSE, _MANDATORY = 0, 1, 1
_DRIVER_RXE = 14
_MOST_HANDLES = 256


def _copies(pid):
    pidfd = _libc.syscall(_PIDFD_OPEN, pid, 0)
    assert pidfd >= 0, os.strerror(ctypes.get_errno())
    try:
        for link in glob.glob(f"/proc/{pid}/fd/*"):
            if os.readlink(link).startswith("/dev/infiniband/uverbs"):
                copy = _libc.syscall(_PIDFD_GETFD, pidfd, int(os.path.basename(link)), 0)
                assert copy >= 0, os.strerror(ctypes.get_errno())
                yield copy
    finally:
        os.close(pidfd)


def _destroy(file, handle):
    """Whether a queue pair with this handle was there."""
    response = ctypes.create_string_buffer(8)
    attributes = struct.pack("<HHHHQ", _ATTR_HANDLE, 0, _MANDATORY, 0, handle)
    attributes += struct.pack("<HHHHQ", _ATTR_RESPONSE, 4, _MANDATORY, 0, ctypes.addressof(response))
    header = struct.pack("<HHHHQII", 24 + len(attributes), _OBJECT_QP, _METHOD_QP_DESTROY, 2, 0, _DRIVER_RXE, 0)
    try:
        fcntl.ioctl(file, _RDMA_VERBS_IOCTL, bytearray(header + attributes))
    except OSError:
        return False
    return True


def destroy_all(pid):
    """Returns their number."""
    n = 0
    for file in _copies(pid):
        n += sum(_destroy(file, handle) for handle in range(_MOST_HANDLES))
        os.close(file)
    return n
