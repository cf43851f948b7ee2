# SPDX-License-Identifier: Apache-2.0
"""For jobs that run on every node of the lab: barriers, servers and clients, and the bytes that a benchmark says it sent."""

import errno
import json
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Callable, List, NoReturn, Optional, Sequence, Set, Tuple

NODE = int(os.environ["NODE"])
NODES = int(os.environ["NODES"])
OUT = os.environ["OUT"]
ADDRESS = [os.environ[f"PEER_{node}"] for node in range(NODES)]

BARRIER_PORT = 7470
_ALARM_PORT = 7471
_PATIENCE_S = 240
_READS = 10
# Another node may work for long; the lab's --limit bounds the run.
_BARRIER_PATIENCE_S = 1800


class Barrier:
    """All nodes meet. Node 0 counts them, over TCP."""

    def __init__(self) -> None:
        self._links: List[socket.socket] = []
        if NODE == 0:
            with socket.create_server((ADDRESS[0], BARRIER_PORT), backlog=NODES) as server:
                server.settimeout(_BARRIER_PATIENCE_S)
                while len(self._links) < NODES - 1:
                    link, _ = server.accept()
                    link.settimeout(_BARRIER_PATIENCE_S)
                    self._links.append(link)
        else:
            self._links = [_connect(ADDRESS[0], BARRIER_PORT)]

    def wait(self) -> None:
        self.any(False)

    def any(self, here: bool) -> bool:
        """All nodes meet. Returns whether it is so on any of them."""
        if NODE == 0:
            answers = [_receive(link) for link in self._links]
            result = here or any(answers)
            for link in self._links:
                link.sendall(_WORDS[result])
            return result
        self._links[0].sendall(_WORDS[here])
        return _receive(self._links[0])


_WORDS = (b"n", b"y")


def _receive(link: socket.socket) -> bool:
    word = link.recv(1)
    if not word:
        raise RuntimeError("another node ended before the barrier")
    return word == _WORDS[True]


class Alarm:
    """Sends word of a failure to the other nodes, which would wait in vain. A lost datagram costs time alone."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", _ALARM_PORT))
        self._socket.setblocking(False)
        self._told: Set[str] = set()

    def tell(self, what: str) -> None:
        for address in ADDRESS:
            self._socket.sendto(what.encode(), (address, _ALARM_PORT))

    def heard(self, what: str) -> bool:
        try:
            while True:
                self._told.add(self._socket.recv(256).decode())
        except BlockingIOError:
            return what in self._told


def _connect(address: str, port: int) -> socket.socket:
    deadline = time.monotonic() + _BARRIER_PATIENCE_S
    while True:
        try:
            link = socket.create_connection((address, port), timeout=_BARRIER_PATIENCE_S)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return link
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def poll_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {_PATIENCE_S} s")
        time.sleep(0.05)


def announce(event: str) -> None:
    """Tells tools/lab that `event` has happened: a --fault may start or end at it."""
    with open(os.environ["LAB_CHANNEL"], "w", encoding="ascii") as channel:
        channel.write(f"EVENT {event}\n")


def read_growing(path: str) -> str:
    """The text so far. The nodes' file system (9p) may refuse to read a file while it is written."""
    for _ in range(_READS):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as problem:
            if problem.errno != errno.ENODATA:
                raise
    return ""


def listens(port: int) -> bool:
    """Whether a process of this node listens on the TCP port. From the kernel's tables: a server would take a connection for its client."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                cells = line.split()
                if cells[3] == "0A" and int(cells[1].rsplit(":", 1)[1], 16) == port:
                    return True
    return False


def cm_listens(port: int) -> bool:
    listing = subprocess.run(["rdma", "res", "show", "cm_id"], capture_output=True, text=True, check=False).stdout
    return any("state LISTEN" in line and f":{port} " in line + " " for line in listing.splitlines())


def tell_state() -> None:
    """For a transfer that fails: does the network still work, and where do frames stay?"""
    script = "".join(f"busybox ping -c 2 -W 2 {address} | tail -3\n" for node, address in enumerate(ADDRESS) if node != NODE)
    script += """ip -s -s link show eth0
tc -s qdisc show dev eth0
rdma resource show qp
grep . /sys/class/infiniband/rxe0/ports/1/hw_counters/* | grep -v ':0$' | sed 's/.*hw_counters.//'
grep -E 'virtio|CPU0' /proc/interrupts
grep -E 'NET|TASKLET|TIMER|CPU0' /proc/softirqs
dmesg | tail -60
"""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    print(f"state of node{NODE}:\n{done.stdout}{done.stderr}", flush=True)


@dataclass
class Running:
    """A server and a client; process is the side of this node, None on the others."""
    name: str
    log: str
    process: Optional[subprocess.Popen] = None


def _give_up(running: Running, reason: str) -> NoReturn:
    """The reason comes last: readers look at the end of a long output."""
    tell_state()
    with open(running.log, encoding="utf-8", errors="replace") as file:
        print(f"{running.name} on node{NODE}: {reason}. The end of its output:\n{file.read()[-_SAID_CHARACTERS:]}", flush=True)
    sys.exit(1)


# rping's main thread closes the channel of the connection manager while another thread may wait on it. That thread then ends the process, after
# all data was transferred and checked.
_CHANNEL_CLOSED, _CHANNEL_CLOSED_SAYS = 255, "rdma_get_cm_event: Bad file descriptor"
_SAID_CHARACTERS = 2000


class Job:
    """The phases of a job, one after the other on all nodes. Ends the process with status 1 if anything failed."""

    def __init__(self) -> None:
        self.barrier = Barrier()
        self.expected: List[dict] = []
        self._port = 18600
        self.barrier.wait()

    def start(self, name: str, server: int, client: int, command: Callable[[int, Optional[str]], List[str]],
              ready: Callable[[int], bool] = listens) -> "Running":
        """Starts command(port, None) on the server node and command(port, address) on the client node."""
        self._port += 1
        running = Running(name, os.path.join(OUT, f"{name}.log"))
        with open(running.log, "w", encoding="utf-8") as file:
            if NODE == server:
                running.process = subprocess.Popen(command(self._port, None), stdout=file, stderr=subprocess.STDOUT)
                poll_until(lambda: running.process.poll() is not None or ready(self._port), f"{name}: the server listens")
            self.barrier.wait()
            if NODE == client:
                running.process = subprocess.Popen(command(self._port, ADDRESS[server]), stdout=file, stderr=subprocess.STDOUT)
        return running

    def finish(self, running: "Running", expected: Sequence[int] = (0,)) -> Optional[str]:
        """Waits for the end of both sides. Returns the output of the side that ran here, None elsewhere. An exit status that is not
        expected ends the job."""
        if running.process is None:
            self.barrier.wait()
            return None
        try:
            status = running.process.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            _give_up(running, f"not over in {_PATIENCE_S} s")
        with open(running.log, encoding="utf-8") as file:
            output = file.read()
        if status not in expected and not (status == _CHANNEL_CLOSED and _CHANNEL_CLOSED_SAYS in output):
            _give_up(running, f"exit status {status}")
        self.barrier.wait()
        print(f"{running.name}: done", flush=True)
        return output

    def pair(self, name: str, server: int, client: int, command: Callable[[int, Optional[str]], List[str]],
             ready: Callable[[int], bool] = listens) -> Optional[str]:
        """start() and finish()."""
        return self.finish(self.start(name, server, client, command, ready))

    def expect(self, phase: str, qpn: int, node: int = NODE, **figures: int) -> None:
        """The bytes that a program says a queue pair carried. answered_payload_bytes: the answers to the peer's READ and ATOMIC, which
        count as sent where packets are counted."""
        self.expected.append({"phase": phase, "host": f"node{node}", "qpn": qpn, **figures})

    def expect_process(self, comm: str, **figures: int) -> None:
        """The same for a program that does not print its queue pair's number: the only one of the only process of that name."""
        self.expected.append({"phase": comm, "host": f"node{NODE}", "comm": comm, **figures})

    def end(self) -> None:
        with open(os.path.join(OUT, "expected.json"), "w", encoding="utf-8") as file:
            json.dump(self.expected, file, indent=1)
        self.barrier.wait()


def kernel_release() -> Tuple[int, int]:
    major, minor = re.match(r"(\d+)\.(\d+)", os.uname().release).groups()
    return int(major), int(minor)


# 4.096 us * 2^n: an emulated node stands still for longer than perftest's own 14 allows.
PERFTEST_TIMEOUT = "16"


def perftest(program: str, size_bytes: int, iterations: int, *options: str) -> Callable[[int, Optional[str]], List[str]]:
    """Both sides of a benchmark, for Job.start()."""
    def command(port: int, address: Optional[str]) -> List[str]:
        words = [program, "-d", "rxe0", "-x", "1", "-F", "-p", str(port), "-s", str(size_bytes),
                 "-n", str(iterations), "-u", PERFTEST_TIMEOUT, *options]
        return words + ([address] if address else [])
    return command


def local_qpns(output: str) -> List[int]:
    """From perftest's lines "local address: LID 0000 QPN 0x0012 PSN ..."."""
    return [int(match, 16) for match in re.findall(r"local address:.*?QPN (0x[0-9a-f]+)", output)]


# Linux 5.10's rdma_rxe never completes atomics between nodes, and may panic in __icmp_send.
HAS_ATOMICS = kernel_release() >= (5, 11)
NO_ATOMICS = "rdma_rxe of this kernel never answers atomics"
# For rdma_wr_post.
OPERATIONS = "send,send_imm,write,write_imm,read" + (",fetch_add,compare_swap" if HAS_ATOMICS else "")
