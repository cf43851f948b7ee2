#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Known traffic under a recorder of everything (RECORD_OPTIONS) and one of counters alone; before that, doctor's verdict."""

import json
import os
import shutil
import subprocess

from lab_job import Job, NODE, OPERATIONS, OUT, cm_listens
from recording import Recorder


def doctor():
    text = subprocess.run(["collwire", "doctor"], capture_output=True, text=True, check=False)
    print(text.stdout + text.stderr, flush=True)
    checked = subprocess.run(["collwire", "doctor", "--json"], capture_output=True, text=True, check=False)
    with open(os.path.join(OUT, "doctor.json"), "w", encoding="utf-8") as file:
        file.write(checked.stdout)
    return checked.returncode


def work_requests(port, address):
    words = ["rdma_wr_post", "--device", "rxe0", "--gid-index", "1", "--json", os.path.join(OUT, "work-requests.json")]
    if address:
        return words + ["--connect", f"{address}:{port}", "--api", "post", "--qps", "2", "--rounds", "4", "--operations", OPERATIONS]
    return words + ["--listen", str(port)]


def datagrams(port, address):
    words = ["ib_send_bw", "-d", "rxe0", "-x", "1", "-F", "-p", str(port), "-c", "UD", "-s", "1000", "-n", "100"]
    return words + ([address] if address else [])


def rping(port, address):
    if address:
        return ["rping", "-c", "-a", address, "-p", str(port), "-C", "20", "-S", "3000", "-v"]
    return ["rping", "-s", "-p", str(port), "-C", "20", "-S", "3000"]


def kernel():
    """Whether the stack is the kernel's own. Node 0 leaves the kernel's BTF, which the modules' BTF refers to."""
    with open("/sys/module/ib_core/taint", encoding="ascii") as file:
        taint = file.read().strip()
    if NODE == 0:
        shutil.copyfile("/sys/kernel/btf/vmlinux", os.path.join(OUT, "vmlinux.btf"))
    return {"taint": taint, "module_btf": len(os.listdir("/sys/kernel/btf")) > 1}


def main():
    result = {**kernel(), "doctor": doctor()}
    job = Job()
    recorder = Recorder("capture", *os.environ.get("RECORD_OPTIONS", "").split())
    counters = Recorder("counters", "--counters-only")
    job.barrier.wait()
    job.pair("work-requests", 1, 0, work_requests)
    job.pair("datagrams", 1, 0, datagrams)
    job.pair("rping", 1, 0, rping, cm_listens)
    result["record"], result["counters"] = recorder.stop(), counters.stop()
    result["said"], result["counters_said"] = recorder.said(), counters.said()
    print(recorder.said() + counters.said(), flush=True)
    with open(os.path.join(OUT, "result.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    job.end()
    print(f"node{NODE}: {result['record']} {result['counters']}", flush=True)


if __name__ == "__main__":
    main()
