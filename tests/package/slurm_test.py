#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/slurm: prolog and epilog as slurmd would call them, with Slurm's variables faked. A recorder runs between the two, and its capture is where the
epilog puts it; nothing that goes wrong makes one of them fail, since that would drain the node."""

import os
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
SLURM = os.path.join(ROOT, "deploy", "slurm")
RELEASE = os.path.join(ROOT, "build", "release")
SKIPPED = 77
LIMIT_S = 120
NOBODY = 65534


def call(script, directory, settings, **variables):
    """Standard error of the script. The environment is what slurmd gives, as far as the scripts read it."""
    path = os.path.join(directory, "settings")
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(f"{name}='{value}'\n" for name, value in settings.items()))
    begin_s = time.monotonic()
    # Standard error is a file: a recorder that held it would make a pipe wait.
    with open(os.path.join(directory, "stderr"), "w+", encoding="utf-8") as log:
        done = subprocess.run([os.path.join(SLURM, script)], env={"COLLWIRE_SETTINGS": path, **variables}, stdin=subprocess.DEVNULL, stderr=log,
                              stdout=subprocess.DEVNULL, check=False, timeout=LIMIT_S)
        log.seek(0)
        said = log.read()
    assert done.returncode == 0, (script, done.returncode, said)
    print(f"{script} {variables}: {time.monotonic() - begin_s:.1f} s {said.strip()}", flush=True)
    return said


def pid_of(state, job):
    with open(f"{state}/{job}/pid", encoding="utf-8") as file:
        return int(file.read().split()[0])


def log_of(state, job):
    """Empty before the recorder's process has opened it, which may be after the prolog's end."""
    if not os.path.exists(f"{state}/{job}/log"):
        return ""
    with open(f"{state}/{job}/log", encoding="utf-8") as file:
        return file.read()


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_recording(state, job):
    end_s = time.monotonic() + LIMIT_S
    while "recording\n" not in log_of(state, job):
        if not runs(pid_of(state, job)):
            assert "not permitted" in log_of(state, job) or "no BTF" in log_of(state, job), log_of(state, job)
            print(f"skip: {log_of(state, job).strip()}")
            sys.exit(SKIPPED)
        assert time.monotonic() < end_s, log_of(state, job)
        time.sleep(0.05)


def check_job(directory, settings):
    state, shared = settings["COLLWIRE_DIR"], settings["COLLWIRE_SHARED"]
    job = {"SLURM_JOB_ID": "4711", "SLURM_JOB_UID": str(NOBODY)}
    call("prolog.sh", directory, settings, **job)
    wait_until_recording(state, "4711")
    pid = pid_of(state, "4711")
    assert "already" in call("prolog.sh", directory, settings, **job) and pid_of(state, "4711") == pid
    subprocess.run(["sh", "-c", "true"], check=True)  # the job comes and goes
    call("epilog.sh", directory, settings, **job)
    assert not runs(pid) and not os.path.exists(f"{state}/4711")
    captures = os.listdir(f"{shared}/4711")
    assert captures and os.stat(f"{shared}/4711/{captures[0]}").st_uid == NOBODY, captures
    done = subprocess.run([f"{RELEASE}/collwire", "report", f"{shared}/4711"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 5), (done.returncode, done.stderr)


def check_recorder_that_died(directory, settings):
    """The epilog says so, ends no other process that has its number, and keeps what there is."""
    state = settings["COLLWIRE_DIR"]
    call("prolog.sh", directory, settings, SLURM_JOB_ID="4712")
    wait_until_recording(state, "4712")
    os.kill(pid_of(state, "4712"), signal.SIGKILL)
    with subprocess.Popen(["sleep", "600"]) as bystander:
        try:
            with open(f"{state}/4712/pid", encoding="utf-8") as file:
                start = file.read().split()[1]
            with open(f"{state}/4712/pid", "w", encoding="utf-8") as file:
                file.write(f"{bystander.pid} {start}\n")
            said = call("epilog.sh", directory, {**settings, "COLLWIRE_SHARED": ""}, SLURM_JOB_ID="4712")
            assert "ended before the job" in said and bystander.poll() is None, said
        finally:
            bystander.kill()
    assert [name for name in os.listdir(f"{state}/4712") if name.endswith(".cwc")]


def check_nothing_fails(directory, settings):
    assert "SLURM_JOB_ID" in call("prolog.sh", directory, settings)
    assert "SLURM_JOB_ID" in call("epilog.sh", directory, settings, SLURM_JOB_ID="../etc")
    assert "no recorder" in call("epilog.sh", directory, settings, SLURM_JOB_ID="99")
    call("prolog.sh", directory, {**settings, "COLLWIRE_OPTIONS": "--no-such-option"}, SLURM_JOB_ID="4713")
    end_s = time.monotonic() + LIMIT_S
    while runs(pid_of(settings["COLLWIRE_DIR"], "4713")) and time.monotonic() < end_s:
        time.sleep(0.05)
    said = call("epilog.sh", directory, {**settings, "COLLWIRE_SHARED": ""}, SLURM_JOB_ID="4713")
    assert "no-such-option" in said, said


def check_disk_is_bounded(directory, settings):
    """Earlier jobs' folders go, the oldest first; those of jobs that run stay."""
    state = settings["COLLWIRE_DIR"]
    for age, job in enumerate(("5003", "5002", "5001")):
        os.makedirs(f"{state}/{job}")
        with open(f"{state}/{job}/big.cwc", "wb") as file:
            file.write(b"\1" * (3 << 20))
        os.utime(f"{state}/{job}", (1_700_000_000 - age, 1_700_000_000 - age))
    with open(f"{state}/5001/pid", "w", encoding="utf-8") as file:
        file.write("1 1\n")
    call("prolog.sh", directory, {**settings, "COLLWIRE_ALL_JOBS_MIB": "7", "COLLWIRE_OPTIONS": "--no-such-option"}, SLURM_JOB_ID="5004")
    assert [job for job in ("5001", "5002", "5003") if os.path.exists(f"{state}/{job}")] == ["5001", "5003"], os.listdir(state)


def end_recorders(state):
    """Those that a failed step has left. Each is the leader of a session whose command names this state."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if entry.isdigit() and f"{state}/".encode() in file.read():
                    os.kill(int(entry), signal.SIGKILL)
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            continue  # it has ended


def main():
    if os.geteuid() != 0:
        print("skip: needs root")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="collwire-slurm-") as directory:
        settings = {"COLLWIRE_DIR": f"{directory}/state", "COLLWIRE_SHARED": f"{directory}/shared", "COLLWIRE_BIN": RELEASE}
        try:
            check_job(directory, settings)
            check_recorder_that_died(directory, settings)
            check_nothing_fails(directory, settings)
            check_disk_is_bounded(directory, settings)
        finally:
            end_recorders(settings["COLLWIRE_DIR"])
    print("prolog and epilog never fail, and leave the capture of the job")


if __name__ == "__main__":
    main()
