#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The command of the systemd unit, run by hand with the unit's rights and no more: a job of another user comes and goes, its bytes are those of the test
double of CUDA, the recorder is killed and started again, and what is kept is bounded.

service_test.py [--version VERSION] [--double DIRECTORY] [--drop-each]
--drop-each: for each capability of the unit, what a recorder without it says and loses, in place of the test (docs/install.md)."""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile

import service

sys.path[:0] = [os.path.join(service.ROOT, *path) for path in (("tools", "demo_lib"), ("tests", "support"))]
import recorder_status  # noqa: E402  (the path has to be set first)
import verdict  # noqa: E402  (the path has to be set first)

COLLWIRE = os.path.join(service.ROOT, "build", "release", "collwire")
SKIPPED = 77
LOSS = 5


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(SKIPPED)


def library_of(version):
    fetched = subprocess.run([os.path.join(service.ROOT, "tools", "fetch-nccl"), version], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        skip(fetched.stderr.strip())
    return fetched.stdout.strip()


def words_of(state, **values):
    words = service.command(state, values)
    assert words[0] == "collwire" and words[1] == "record", words
    return [COLLWIRE, *words[1:]]


def report_of(state):
    out = os.path.join(os.path.dirname(state), "report.json")
    done = subprocess.run([COLLWIRE, "report", state, "--json", out, "--detail"], capture_output=True, text=True, check=False)
    with open(out, encoding="utf-8") as file:
        return done, json.load(file)


def same_as_the_log(report, logs):
    return verdict.compare(report, sorted(glob.glob(f"{logs}/truth.*")), sorted(glob.glob(f"{logs}/job.*")))


def record_job(state, job, logs, kept, library):
    """The recorder, after its end, and whether it recorded at all."""
    os.makedirs(state, mode=0o700, exist_ok=True)
    recorder = service.Recorder(service.confined(words_of(state, COLLWIRE_OPTIONS=f"--nccl {library}"), state, kept))
    try:
        started = recorder.wait_until_recording()
        if started:
            service.run_job(job, logs)
    finally:
        recorder.end()
    return recorder, started


def every_capability():
    listed = subprocess.run(["setpriv", "--list-caps"], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if not name.startswith("cap_")]


def drop_each(directory, job, logs, library):
    for name in ["all", "none", *service.capabilities(), *(name for name in ("bpf", "perfmon", "dac_override", "ipc_lock", "net_admin", "sys_resource") if name not in service.capabilities())]:
        kept = [kept for kept in service.capabilities() if kept != name]
        if name == "all":
            kept = [number.removeprefix("cap_") for number in every_capability()]
        elif name not in ("none", *service.capabilities()):
            kept.append(name)
        state = os.path.join(directory, f"state-{name}")
        recorder, started = record_job(state, job, logs, kept, library)
        print(f"=== {'without' if name in service.capabilities() else 'with'} {name}: status {recorder.process.returncode}\n{recorder.said}", flush=True)
        if started:
            done, report = report_of(state)
            print(f"report: status {done.returncode}; operations {len(report.get('operations', []))}, warnings {report.get('warnings')}")
            same_as_the_log(report, logs)


def check_job(directory, state, job, logs, library):
    recorder, started = record_job(state, job, logs, service.capabilities(), library)
    if not started and (reason := recorder_status.lacks(recorder.process.returncode, recorder.said)):
        skip(reason)
    # 5: what was lost of other jobs of this machine is not this job's, whose figures are compared.
    assert started and recorder.process.returncode in (0, LOSS), (recorder.process.returncode, recorder.said)
    done, report = report_of(state)
    assert done.returncode in (0, LOSS), done.stderr
    assert same_as_the_log(report, logs)
    captures = os.listdir(state)
    assert captures and all(os.stat(os.path.join(state, name)).st_mode & 0o777 == 0o600 for name in captures), captures
    assert not [name for name in os.listdir(directory) if name.endswith(".cwc")]


def check_restart(state, job, logs, library):
    """Killed in the middle of a job, and started again by hand as `Restart=` does: the earlier capture can be read, and the job goes on."""
    values = {"COLLWIRE_OPTIONS": f"--nccl {library}"}
    before = set(os.listdir(state))
    recorder = service.Recorder(service.confined(words_of(state, **values), state, service.capabilities()))
    assert recorder.wait_until_recording(), recorder.said
    os.killpg(recorder.process.pid, signal.SIGKILL)
    recorder.end()
    subprocess.run([os.path.join(service.ROOT, "deploy", "collwire-trim"), state, "2048"], check=True)
    recorder, started = record_job(state, job, logs, service.capabilities(), library)
    assert started and recorder.process.returncode in (0, LOSS), recorder.said
    assert len(set(os.listdir(state)) - before) >= 2, os.listdir(state)
    done, report = report_of(state)
    assert done.returncode in (0, LOSS), done.stderr
    assert same_as_the_log(report, logs)
    subprocess.run([os.path.join(service.ROOT, "deploy", "collwire-trim"), state, "0"], check=True)
    assert not os.listdir(state), os.listdir(state)


def check_doctor():
    """Each capability of the unit that doctor knows is named when it is missing; with those of the unit alone nothing is."""
    def found(kept):
        done = subprocess.run(service.confined([COLLWIRE, "doctor", "--json"], "/tmp", kept), capture_output=True, text=True, check=False)
        return next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "capabilities")

    assert found(service.capabilities())["state"] == "ok", found(service.capabilities())
    for name in service.capabilities():
        check = found([kept for kept in service.capabilities() if kept != name])
        assert check["found"] == f"this process lacks CAP_{name.upper()}" and check["code"] == "cap-missing-to-root", check


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default="2.28.9")
    parser.add_argument("--double", default=os.path.join(service.ROOT, "build", "release", "tests", "cuda_double"))
    parser.add_argument("--drop-each", action="store_true")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        skip("needs root")
    library = library_of(arguments.version)
    with tempfile.TemporaryDirectory(prefix="collwire-service-") as directory:
        job, logs = service.prepare_job(directory, library, arguments.double)
        if arguments.drop_each:
            drop_each(directory, job, logs, job.library)
            return
        check_doctor()
        state = os.path.join(directory, "state")
        check_job(directory, state, job, logs, job.library)
        check_restart(state, job, logs, job.library)
    print("the unit's command records with the unit's rights")


if __name__ == "__main__":
    main()
