# SPDX-License-Identifier: Apache-2.0
"""The jobs of official NCCL, in the lab and on one machine, and how each is recorded. The nodes and the tests that judge both read this."""

import dataclasses
import os

JOBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs")
QUIET_MS = 2500
APART = ("--gap-ms", str(QUIET_MS))
UNTIL_STOPPED = ("--count", "0")

WIRE = ()
POSTED = ("--no-wire", "--posts=on")
DERIVED = ("--no-wire", "--posts=off")
SLICED = ("--no-wire", "--posts-slice=6s/16s")
TIMED = ("--network-times",)
VERBS = (*POSTED, "--qp-source=verbs")

# NVLink SHARP, on the test double of CUDA.
NVLS = {"NCCL_NVLS_NCHANNELS": "2", "NCCL_P2P_DISABLE": "0", "COLLWIRE_CUDA_P2P": "nvlink", "COLLWIRE_CUDA_NVLS": "1"}

# GPUDirect RDMA, and a NIC next to each GPU: NCCL uses PXN.
PXN = {"NCCL_P2P_DISABLE": "0", "COLLWIRE_CUDA_P2P": "nvlink", "COLLWIRE_CUDA_GDR": "1",
       "NCCL_TOPO_FILE": os.path.join(os.path.dirname(JOBS), "..", "cuda_double", "own_nics.xml")}


@dataclasses.dataclass(frozen=True)
class Case:
    """A job and the way in which it is recorded. Cases whose jobs are equal can be recorded at once, on one job (`jobs_of`)."""
    name: str
    # The job.
    plan: str
    environment: dict = dataclasses.field(default_factory=dict)
    job_options: tuple = ()
    ranks: int = 4 # on one machine
    ranks_per_node: int = 1
    nics: int = 1
    over_sockets: bool = False
    plugin: bool = False # through the test double of network plugins
    gpu: bool = False # with the guest library and the test double of CUPTI, recorded with --gpu
    # Recorder options that name the byte source, and more of them for a job on one machine.
    record: tuple = WIRE
    options: tuple = ()
    # Late attach: each node's recorder starts this many seconds after the one of the node before. 0: recorders start before the job.
    late_s: float = 0
    # The least that has to be compared.
    fewest_figures: int = 20
    fewest_calls: int = 3
    # Sending queue pairs whose measured wire bytes equal those computed from NCCL's messages; all others must be computed, too.
    fewest_headers: int = 0
    fewest_pairs: int = 0
    fewest_for_others: int = 0 # sockets and queue pairs through which a rank sends for another one (PXN)
    fewest_in_launch: int = 0 # proxy operations in one launch of a rank
    # The recorder may read a part of the operations of a launch, if it counts the launch as cut.
    is_cut: bool = False
    fewest_exact_bytes: int = 0 # of launches that no version cuts
    # Communicators use their parents' connections, which NCCL prints with the parents' ranks.
    shares_connections: bool = False
    first_version: tuple = (2, 18)
    # Name of the case whose directory has the job's logs; empty: this case's own.
    of_job: str = ""

    @property
    def plan_path(self):
        path = os.path.join(JOBS, f"{self.plan}.job")
        return path if os.path.exists(path) else self.plan

    @property
    def source(self):
        """The byte source that the report has to name."""
        return {WIRE: "wire", TIMED: "wire", POSTED: "posted", DERIVED: "derived", SLICED: "derived", VERBS: "posted"}[self.record]

    @property
    def is_sliced(self):
        """Posts are counted now and then: the job's node watches where breakpoints are."""
        return self.record == SLICED

    @property
    def local_transports(self):
        """Of all connections inside a node."""
        if "COLLWIRE_CUDA_P2P" not in self.environment:
            return ("shm",)
        return ("nvls", "p2p") if "COLLWIRE_CUDA_NVLS" in self.environment else ("p2p",)

    @property
    def is_apart(self):
        """A long silence follows each operation: its bytes can be told from those of the others on the wire."""
        return self.job_options[:2] == APART

    @property
    def job_name(self):
        return self.of_job or self.name

    @property
    def job(self):
        """Equal for cases that one job can serve. A job with a late recorder runs until it is stopped, which `--count 0` asks for."""
        options = () if self.job_options == UNTIL_STOPPED else self.job_options
        return (self.plan, self.environment, options, self.ranks_per_node, self.nics, self.over_sockets, self.plugin, self.gpu)

    def runs_on(self, version):
        return version >= self.first_version


def jobs_of(names):
    """The cases of each job, of "CASE,CASE+CASE,...": `+` joins cases that are recorded at once on the first one's job."""
    jobs = []
    for joined in names.split(","):
        cases = [CASES[name] for name in joined.split("+")]
        assert all(case.job == cases[0].job for case in cases), f"{joined}: not one job"
        options = next((case.job_options for case in cases if case.late_s), cases[0].job_options)
        jobs.append([dataclasses.replace(case, of_job=cases[0].name, job_options=options) for case in cases])
    return jobs


def _forced(algorithm, protocol, plan, first_version=(2, 18), over_sockets=False):
    return Case(f"{'sockets-' if over_sockets else ''}{algorithm}-{protocol}".lower(), plan, {"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol},
                over_sockets=over_sockets, first_version=first_version)


CASES = {case.name: case for case in (
    # NCCL chooses algorithm and protocol.
    Case("default", "everything", fewest_figures=300, fewest_calls=40, fewest_pairs=40),
    Case("training", "training"),
    *(_forced("Ring", protocol, "ring") for protocol in ("Simple", "LL", "LL128")),
    *(_forced("Tree", protocol, "tree") for protocol in ("Simple", "LL", "LL128")),
    _forced("PAT", "Simple", "pat", (2, 24)),
    Case("shared-node", "training", ranks_per_node=2),
    # With adaptive routing NET/IB makes two requests of a large message, on any network.
    Case("two-qps", "ring", {"NCCL_IB_QPS_PER_CONNECTION": "2"}, fewest_headers=16),
    Case("two-qps-split", "ring", {"NCCL_IB_QPS_PER_CONNECTION": "2", "NCCL_IB_SPLIT_DATA_ON_QPS": "1", "NCCL_IB_ADAPTIVE_ROUTING": "1"},
         fewest_headers=16),
    Case("adaptive-routing", "ring", {"NCCL_IB_ADAPTIVE_ROUTING": "1"}, fewest_headers=8),
    # rxe's devices have no PCI address: with two of them 2.20 compares missing paths and crashes.
    Case("two-nics", "training", nics=2, first_version=(2, 24)),
    # The byte sources of an operation.
    Case("posted", "training", record=POSTED),
    Case("derived", "training", record=DERIVED),
    Case("everything-posted", "everything", record=POSTED, fewest_figures=300, fewest_calls=40, fewest_pairs=40),
    Case("everything-derived", "everything", record=DERIVED, fewest_figures=300, fewest_calls=40, fewest_pairs=40),
    # On the wire each operation is between two silences.
    Case("apart", "apart", job_options=APART),
    # Late attach: the recorders of four nodes start over ten seconds.
    Case("late", "training", job_options=UNTIL_STOPPED, late_s=3.3),
    Case("late-posted", "training", job_options=UNTIL_STOPPED, record=POSTED, late_s=3.3),
    Case("late-derived", "training", job_options=UNTIL_STOPPED, record=DERIVED, late_s=3.3),
    Case("late-sockets", "training", job_options=UNTIL_STOPPED, late_s=3.3, over_sockets=True),
    Case("sockets", "training", over_sockets=True),
    # Clocks of nodes that are apart, by both ways to know when operations end.
    Case("clocks", "training", job_options=("--count", "40")),
    Case("clocks-times", "training", job_options=("--count", "40"), record=TIMED),
    # Kernels of GPUs: one rank is late by far for one operation.
    Case("gpu", "training", job_options=("--count", "4", "--stall-rank", "2", "--stall-at", "12", "--stall-ms", "600"), gpu=True),
    Case("gpu-late", "training", job_options=UNTIL_STOPPED, late_s=3.3, gpu=True),
    Case("sockets-default", "everything", over_sockets=True, fewest_figures=300, fewest_calls=40, fewest_pairs=40),
    Case("sockets-shared-node", "training", ranks_per_node=2, over_sockets=True),
    *(_forced("Ring", protocol, "ring", over_sockets=True) for protocol in ("Simple", "LL", "LL128")),
    *(_forced("Tree", protocol, "tree", over_sockets=True) for protocol in ("Simple", "LL", "LL128")),
    _forced("PAT", "Simple", "pat", (2, 24), over_sockets=True),
    # NCCL splits messages over the sockets of a connection.
    Case("sockets-striped", "ring", {"NCCL_SOCKET_NTHREADS": "2", "NCCL_NSOCKS_PERTHREAD": "2"}, over_sockets=True),
    # Launches of many operations. NCCL gives a proxy at most 2,048 at once where it has 64 channels, 1,024 where it has 32.
    Case("many-pairs", "many-pairs", {"NCCL_MAX_NCHANNELS": "4", "NCCL_MIN_P2P_NCHANNELS": "4", "NCCL_MAX_P2P_NCHANNELS": "4",
                                      "NCCL_NCHANNELS_PER_NET_PEER": "4", "NCCL_P2P_NET_CHUNKSIZE": "4096"},
         over_sockets=True, fewest_calls=0, fewest_pairs=1344, fewest_in_launch=1001, is_cut=True),
    Case("many-trees", "many-trees", {"NCCL_MAX_NCHANNELS": "4", "NCCL_ALGO": "Tree"},
         over_sockets=True, fewest_figures=2000, fewest_calls=600, fewest_in_launch=2049, is_cut=True,
         fewest_exact_bytes=2 * 3 * 64 * 1024 + 4 * 16 * 1024),
    Case("exchanges", "exchanges", over_sockets=True, fewest_figures=0, fewest_calls=10, fewest_pairs=40, first_version=(2, 28)),
    # Communicators on the connections of their parent.
    Case("shared", "shared", {"NCCL_COMM_SPLIT_SHARE_RESOURCES": "1"}, over_sockets=True, fewest_calls=9, fewest_pairs=30, first_version=(2, 20),
         shares_connections=True),
    Case("shrunk", "shrunk", over_sockets=True, fewest_calls=4, fewest_pairs=14, first_version=(2, 27)),
    Case("shrunk-shared", "shrunk", {"NCCL_COMM_SHRINK_SHARE_RESOURCES": "1"}, over_sockets=True, fewest_calls=4, fewest_pairs=14,
         first_version=(2, 27), shares_connections=True),
    # With options of `collwire record`.
    Case("refused", "refused", {"NCCL_CHECK_POINTERS": "1"}, over_sockets=True, options=("--api-returns",), fewest_calls=6, fewest_pairs=4),
    Case("one-node", "everything", ranks_per_node=4, over_sockets=True, options=("--local-launches",), fewest_figures=0, fewest_calls=30,
         first_version=(2, 24)),
    # Two nodes of two ranks: on each channel a rank has one neighbour in its node and one on the network.
    # The pauses let the recorder read the connections.
    # NVLink SHARP: the ranks of a node reduce through the test double's switch. Over two nodes, each of the three sends its part to the other node.
    Case("nvls-node", "nvls-node", {"NCCL_ALGO": "allreduce:nvls;allgather:nvls;reducescatter:nvls", **NVLS}, ranks_per_node=4,
         over_sockets=True, options=("--local-launches",), fewest_figures=0, fewest_calls=8, first_version=(2, 24), job_options=("--gap-ms", "400")),
    Case("nvls-tree", "nvls-tree", {"NCCL_ALGO": "allreduce:nvlstree;allgather:ring", **NVLS},
         ranks=6, ranks_per_node=3, nics=3, over_sockets=True, first_version=(2, 24), job_options=("--gap-ms", "400")),
    Case("pxn", "pxn", PXN, ranks=6, ranks_per_node=3, nics=3, over_sockets=True, fewest_calls=10, fewest_pairs=40, fewest_for_others=8,
         first_version=(2, 24), job_options=("--gap-ms", "400")),
    Case("pxn-everything", "everything", PXN, ranks_per_node=2, nics=2, over_sockets=True, fewest_figures=200, fewest_calls=30, fewest_pairs=40,
         fewest_for_others=8, first_version=(2, 24)),
    # Two nodes as most are: NVLink SHARP in them, and a NIC next to each of eight GPUs.
    Case("eight-gpus", "eight-gpus", {**PXN, **NVLS}, ranks=16, ranks_per_node=8, nics=8, over_sockets=True, fewest_calls=10, fewest_pairs=40,
         options=("--local-launches",), fewest_for_others=8, first_version=(2, 24), job_options=("--gap-ms", "400")),
    Case("two-nodes-default", "everything", ranks_per_node=2, over_sockets=True, fewest_figures=100, fewest_calls=30, first_version=(2, 24)),
    Case("two-nodes", "ring", {"NCCL_ALGO": "Ring"}, ranks_per_node=2, over_sockets=True, first_version=(2, 24), job_options=("--gap-ms", "400")),
)}

GPU = ("gpu", "gpu-late")

# Posts are counted in slices.
SLICES = ("sliced",)
CASES["sliced"] = Case("sliced", "training", job_options=("--count", "24"), record=SLICED)

# Through a network plugin whose layouts collwire does not know: pointers lead to its queue pairs, or (hidden) none does.
PLUGIN = ("plugin", "plugin-hidden", "plugin-late", "plugin-posted")
# The recorder searches the memory of connections that exist, and a node's only CPU is busy while NCCL polls.
RESTING = ("--gap-ms", "500")
HIDDEN = {"COLLWIRE_NETWORK_DOUBLE_HIDE": "1"}
CASES.update({case.name: case for case in (
    Case("plugin", "training", job_options=RESTING, plugin=True),
    Case("plugin-hidden", "training", HIDDEN, plugin=True),
    Case("plugin-late", "training", job_options=UNTIL_STOPPED, late_s=3.3, plugin=True),
    Case("plugin-posted", "training", job_options=RESTING, record=POSTED, plugin=True),
)})

# Queue pairs from libibverbs, as where ib_core cannot be read.
CASES["verbs"] = Case("verbs", "everything", record=VERBS, fewest_figures=300, fewest_calls=40, fewest_pairs=40)
CASES["late-verbs"] = Case("late-verbs", "training", job_options=UNTIL_STOPPED, record=VERBS, late_s=3.3)

# For versions whose kernels the double cannot run.
CASES["communicators"] = Case("communicators", "communicators", over_sockets=True, fewest_figures=0, fewest_calls=0)

# On one machine, over sockets.
HERE = ("sockets-default", "two-nodes-default", "nvls-node", "nvls-tree", "eight-gpus", "exchanges", "many-pairs", "many-trees", "shared", "shrunk-shared", "refused",
        "one-node")
HERE_FULL = (*HERE, "two-nodes", "pxn", "pxn-everything", "shrunk", "sockets-ring-simple", "sockets-ring-ll", "sockets-ring-ll128", "sockets-tree-simple", "sockets-tree-ll",
             "sockets-tree-ll128", "sockets-pat-simple", "sockets-striped")
# On four nodes, each case on a job of its own.
ALL = ",".join(name for name in CASES if name not in (*HERE_FULL[1:], *PLUGIN, *GPU, *SLICES, "verbs", "late-verbs", "communicators"))
# Of every run of the tests: the byte sources are recorded at once, on one job.
FEW = "default+everything-posted+everything-derived,late,two-qps-split,sockets,plugin"
# Only calls are recorded.
CASES["calls"] = Case("calls", "calls", job_options=("--count", "3", "--gap-ms", str(QUIET_MS)))
