# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on the nodes of the lab: how a test runs them, and what each recorded case leaves for its judges."""

import argparse
import dataclasses
import glob
import os
import subprocess
import sys

import lab_harness as harness

sys.path.insert(0, os.path.join(harness.ROOT, "tests", "nccl"))

import cases  # noqa: E402  (the path has to be set first)
import identity_truth as truth  # noqa: E402

NODES = 4
DOUBLE = os.path.join(harness.ROOT, "build", "release", "tests", "cuda_double")
BOOT_S, JOB_S = 300, 600


def library_of(version):
    """Path of the official library. Skips the test where it cannot be fetched."""
    fetched = subprocess.run([os.path.join(harness.ROOT, "tools", "fetch-nccl"), version], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        # The package index is not reached, which is no fault of the lab.
        print(f"skip: {fetched.stderr.strip()}")
        sys.exit(harness.SKIPPED)
    return fetched.stdout.strip()


def run(out, kernel, library, jobs, *options, job="nccl.py"):
    """Boots the nodes and runs `jobs` (tests/nccl/cases.py: jobs_of) on them, by a script of jobs/."""
    names = ",".join("+".join(case.name for case in of_job) for of_job in jobs)
    harness.run_job(out, kernel, NODES, job, "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={DOUBLE}", "--env", f"NCCL_CASES={names}",
                    *harness.missed_calls_options(kernel), *options, limit_s=BOOT_S + JOB_S * len(jobs))


def ready_ns_of(case, out):
    """By rank: when the recorder of its node was ready."""
    return [harness.load(out, f"node{node}", case.name, "result.json")["ready_ns"] for node in range(NODES) for _ in range(case.ranks_per_node)]


@dataclasses.dataclass
class Recorded:
    """A case of the results `out`: the report over its captures, and the logs of its job, all of them by rank."""
    case: object
    out: str

    def __post_init__(self):
        self.captures = sorted(glob.glob(os.path.join(self.out, "node*", self.case.name, "capture")))
        self.report = harness.report_of(self.captures, os.path.join(self.out, f"{self.case.name}.json"), "--topology",
                                        os.path.join(self.out, "topology.json"), "--detail", quiet=True, expected=(0, harness.LOST))
        self.jobs = [truth.lines_of(path) for path in self.files("job.*")]
        self.doubles = [truth.lines_of(path) for path in self.files("double.*")]
        self.is_local = truth.same_node(self.jobs, self.case.ranks_per_node)
        # (host, pid)
        self.processes = [(os.path.relpath(path, self.out).split(os.sep)[0], job[0]["pid"]) for path, job in zip(self.files("job.*"), self.jobs)]
        self.ready_ns = ready_ns_of(self.case, self.out) if self.case.late_s else None

    def files(self, pattern):
        """Files of the job."""
        return sorted(glob.glob(os.path.join(self.out, "node*", self.case.job_name, pattern)))

    def of_processes(self, pattern):
        """(host, pid) -> file of the job."""
        return dict(zip(self.processes, self.files(pattern)))


def main(judge, default):
    """The program of a test: runs the cases `default`, or those of the command line. `judge`: from a Recorded to its problems."""
    def judge_all(jobs, out):
        problems = [f"{case.name}: {problem}" for of_job in jobs for case in of_job for problem in judge(Recorded(case, out))]
        assert not problems, "\n".join(problems[:40])

    def check(arguments, out):
        jobs = cases.jobs_of(arguments.cases)
        run(out, arguments.kernel, library_of(arguments.nccl), jobs)
        judge_all(jobs, out)

    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--cases", default=default, metavar=default)
    parser.add_argument("--judge", metavar="DIR", help="judge the results in DIR, and run nothing")
    arguments = parser.parse_args()
    if arguments.judge:
        judge_all(cases.jobs_of(arguments.cases), arguments.judge)
    else:
        harness.run_main(arguments, check)
