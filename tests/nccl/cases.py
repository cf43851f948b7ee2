# SPDX-License-Identifier: Apache-2.0
"""What official NCCL is made to do in the lab, on four nodes, and how it is recorded. The nodes and the test that judges both read this."""

import dataclasses
import os

PLANS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plans")
QUIET_MS = 2500

WIRE = ()
POSTED = ("--no-wire", "--posts=on")
DERIVED = ("--no-wire", "--posts=off")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    plan: str
    environment: dict = dataclasses.field(default_factory=dict)
    job_options: tuple = ()
    record: tuple = WIRE
    # What else the recorder is told, on one machine.
    options: tuple = ()
    ranks_per_node: int = 1
    nics: int = 1
    over_sockets: bool = False
    # Through the test double of network plugins.
    plugin: bool = False
    # The recorders begin in the middle, each node's this much after the one before.
    late_s: float = 0
    fewest_figures: int = 20
    fewest_calls: int = 3
    fewest_pairs: int = 0
    # Operations of the proxy in one launch of a rank.
    fewest_in_launch: int = 0
    # It may be that not all of them are looked at, if that is counted.
    is_cut: bool = False
    # Of launches that are whole on every version.
    fewest_exact_bytes: int = 0
    # Communicators have the connections of their parents, which NCCL tells of by the parents' ranks.
    shares_connections: bool = False
    first_version: tuple = (2, 18)

    @property
    def plan_path(self):
        path = os.path.join(PLANS, f"{self.plan}.plan")
        return path if os.path.exists(path) else self.plan

    @property
    def source(self):
        """How the report is to know the bytes."""
        return {WIRE: "wire", POSTED: "posted", DERIVED: "derived"}[self.record]

    def runs_on(self, version):
        return version >= self.first_version


def _forced(algorithm, protocol, plan, first_version=(2, 18), over_sockets=False):
    return Case(f"{'sockets-' if over_sockets else ''}{algorithm}-{protocol}".lower(), plan, {"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol},
                over_sockets=over_sockets, first_version=first_version)


CASES = {case.name: case for case in (
    # NCCL chooses.
    Case("default", "everything", fewest_figures=300, fewest_calls=40, fewest_pairs=40),
    Case("training", "training"),
    *(_forced("Ring", protocol, "ring") for protocol in ("Simple", "LL", "LL128")),
    *(_forced("Tree", protocol, "tree") for protocol in ("Simple", "LL", "LL128")),
    _forced("PAT", "Simple", "pat", (2, 24)),
    Case("shared-node", "training", ranks_per_node=2),
    Case("two-qps", "ring", {"NCCL_IB_QPS_PER_CONNECTION": "2"}),
    Case("two-qps-split", "ring", {"NCCL_IB_QPS_PER_CONNECTION": "2", "NCCL_IB_SPLIT_DATA_ON_QPS": "1"}),
    # rxe's devices have no place on a PCI bus: with two of them 2.20 compares paths that are not there, and crashes.
    Case("two-nics", "training", nics=2, first_version=(2, 24)),
    # The ways to the bytes of an operation.
    Case("posted", "training", record=POSTED),
    Case("derived", "training", record=DERIVED),
    Case("everything-posted", "everything", record=POSTED, fewest_figures=300, fewest_calls=40, fewest_pairs=40),
    Case("everything-derived", "everything", record=DERIVED, fewest_figures=300, fewest_calls=40, fewest_pairs=40),
    # Each operation can be seen by itself on the wire.
    Case("apart", "apart", job_options=("--gap-ms", str(QUIET_MS))),
    # Over ten seconds.
    Case("late", "training", job_options=("--count", "0"), late_s=3.3),
    Case("late-posted", "training", job_options=("--count", "0"), record=POSTED, late_s=3.3),
    Case("late-derived", "training", job_options=("--count", "0"), record=DERIVED, late_s=3.3),
    Case("late-sockets", "training", job_options=("--count", "0"), late_s=3.3, over_sockets=True),
    Case("sockets", "training", over_sockets=True),
    Case("sockets-default", "everything", over_sockets=True, fewest_figures=300, fewest_calls=40, fewest_pairs=40),
    Case("sockets-shared-node", "training", ranks_per_node=2, over_sockets=True),
    *(_forced("Ring", protocol, "ring", over_sockets=True) for protocol in ("Simple", "LL", "LL128")),
    *(_forced("Tree", protocol, "tree", over_sockets=True) for protocol in ("Simple", "LL", "LL128")),
    _forced("PAT", "Simple", "pat", (2, 24), over_sockets=True),
    # Messages are cut into pieces, one for each socket of a connection.
    Case("sockets-striped", "ring", {"NCCL_SOCKET_NTHREADS": "2", "NCCL_NSOCKS_PERTHREAD": "2"}, over_sockets=True),
    # Launches of many operations. NCCL hands over no more than 2,048 to a proxy at once where it has 64 channels, 1,024 where it has 32.
    Case("many-pairs", "many-pairs", {"NCCL_MAX_NCHANNELS": "4", "NCCL_MIN_P2P_NCHANNELS": "4", "NCCL_MAX_P2P_NCHANNELS": "4",
                                      "NCCL_NCHANNELS_PER_NET_PEER": "4", "NCCL_P2P_NET_CHUNKSIZE": "4096"},
         over_sockets=True, fewest_calls=0, fewest_pairs=1344, fewest_in_launch=1001, is_cut=True),
    Case("many-trees", "many-trees", {"NCCL_MAX_NCHANNELS": "4", "NCCL_ALGO": "Tree"},
         over_sockets=True, fewest_figures=2000, fewest_calls=600, fewest_in_launch=2049, is_cut=True,
         fewest_exact_bytes=2 * 3 * 64 * 1024 + 4 * 16 * 1024),
    Case("exchanges", "exchanges", over_sockets=True, fewest_figures=0, fewest_calls=10, fewest_pairs=40, first_version=(2, 28)),
    # Communicators on the connections of the one that they came from.
    Case("shared", "shared", {"NCCL_COMM_SPLIT_SHARE_RESOURCES": "1"}, over_sockets=True, fewest_calls=9, fewest_pairs=30, first_version=(2, 20),
         shares_connections=True),
    Case("shrunk", "shrunk", over_sockets=True, fewest_calls=4, fewest_pairs=14, first_version=(2, 27)),
    Case("shrunk-shared", "shrunk", {"NCCL_COMM_SHRINK_SHARE_RESOURCES": "1"}, over_sockets=True, fewest_calls=4, fewest_pairs=14,
         first_version=(2, 27), shares_connections=True),
    # What is recorded only if it is asked for.
    Case("refused", "refused", {"NCCL_CHECK_POINTERS": "1"}, over_sockets=True, options=("--api-returns",), fewest_calls=6, fewest_pairs=4),
    Case("one-node", "everything", ranks_per_node=4, over_sockets=True, options=("--local-launches",), fewest_figures=0, fewest_calls=30,
         first_version=(2, 24)),
)}

# Through a network plugin, whose code and layouts nobody knows: pointers lead to its queue pairs, or none does.
PLUGIN = ("plugin", "plugin-hidden", "plugin-late", "plugin-posted")
HIDDEN = {"COLLWIRE_NETWORK_DOUBLE_HIDE": "1"}
CASES.update({case.name: case for case in (
    Case("plugin", "training", plugin=True),
    Case("plugin-hidden", "training", HIDDEN, plugin=True),
    Case("plugin-late", "training", job_options=("--count", "0"), late_s=3.3, plugin=True),
    Case("plugin-posted", "training", record=POSTED, plugin=True),
)})

# For versions whose kernels have no double.
CASES["communicators"] = Case("communicators", "communicators", over_sockets=True, fewest_figures=0, fewest_calls=0)

# Those on one machine, over sockets.
HERE = ("sockets-default", "exchanges", "many-pairs", "many-trees", "shared", "shrunk-shared", "refused", "one-node")
HERE_FULL = (*HERE, "shrunk", "sockets-ring-simple", "sockets-ring-ll", "sockets-ring-ll128", "sockets-tree-simple", "sockets-tree-ll",
             "sockets-tree-ll128", "sockets-pat-simple", "sockets-striped")
ALL = tuple(name for name in CASES if name not in (*HERE_FULL[1:], *PLUGIN, "communicators"))
# Of every run of the tests.
FEW = ("default", "two-qps-split", "posted", "derived", "late", "sockets")
# Of which calls alone are recorded.
CASES["calls"] = Case("calls", "calls", job_options=("--count", "3", "--gap-ms", str(QUIET_MS)))
