#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recorders that start in the middle of a transfer that runs and of one that stands at its gate. While they record, another process
dies in the middle of its own transfer. Nodes 0 and 1 take part, every other node waits; the other transfers verify every byte."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import Job, NODE, OUT, poll_until
from recording import Recorder, bpf_objects, tracer_of, verified_instructions


def transfer(name, *options, server_options=()):
    def command(port, address):
        words = ["rdma_wr_post", "--device", "rxe0", "--gid-index", "1"]
        # What does not cross Linux 5.10's rdma_rxe is left out everywhere: see docs/testing.md.
        if address:
            return words + ["--connect", f"{address}:{port}", "--json", os.path.join(OUT, f"{name}.json"),
                            "--operations", "send,send_imm,write,write_imm,read", "--qps", "2", *options]
        return words + ["--listen", str(port), "--json", os.path.join(OUT, f"{name}.json"), *server_options]
    return command


PARTNERS = 2


def at_gate(name):
    return os.path.exists(os.path.join(OUT, f"{name}.go.ready"))


def gate(name):
    return ["--go", os.path.join(OUT, f"{name}.go"), "--go-after", "4"]


def touch(name):
    with open(os.path.join(OUT, name), "w", encoding="ascii"):
        pass


def follow(job):
    """The barriers of a node that takes no part."""
    job.barrier.wait()
    transfers = [job.start("running", 0, 1, None), job.start("gated", 1, 0, None)]
    job.barrier.wait()
    job.barrier.wait()
    job.finish(transfers[1])
    job.finish(job.start("dying", 1, 0, None))
    job.barrier.wait()
    job.finish(transfers[0])
    job.end()


def main():
    job = Job()
    if NODE >= PARTNERS:
        follow(job)
        return
    # Its gate is open: it only says that it is in its middle.
    touch("running.go")
    job.barrier.wait()
    running = job.start("running", 0, 1, transfer("running", *gate("running"), "--until", os.path.join(OUT, "running.end")))
    gated = job.start("gated", 1, 0, transfer("gated", *gate("gated"), "--rounds", "12"))
    poll_until(lambda: at_gate("running" if NODE == 1 else "gated"), "both transfers are in their middle")
    job.barrier.wait()

    before = bpf_objects()
    recorder = Recorder("capture", "--posts", "on")
    tracers = {one.name: tracer_of(one.process.pid) for one in (running, gated)}
    assert recorder.process.poll() is None, recorder.said()
    verified = verified_instructions(recorder.process.pid)
    job.barrier.wait()

    touch("gated.go")
    job.finish(gated)
    dying = job.start("dying", 1, 0, transfer("dying", "--rounds", "8", "--die-after", "3", "--batch", "32",
                                              server_options=["--peer-may-die"]))
    job.finish(dying, expected=(-9,) if NODE == 0 else (0,))
    tracers["running, later"] = tracer_of(running.process.pid)
    job.barrier.wait()
    touch("running.end")
    job.finish(running)
    status = recorder.stop()
    poll_until(lambda: bpf_objects() == before, "no BPF program or link stays")
    with open(os.path.join(OUT, "result.json"), "w", encoding="utf-8") as file:
        json.dump({"status": status, "said": recorder.said(), "tracers": tracers, "dying": dying.process.returncode,
                   "verified_instructions": verified}, file, indent=1)
    print(recorder.said(), flush=True)
    job.end()


if __name__ == "__main__":
    main()
