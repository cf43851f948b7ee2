# SPDX-License-Identifier: Apache-2.0
"""Images and containers of podman for jobs of official NCCL: a storage of its own, with overlay mounts, and an image that has the job, the test double of
CUDA, NCCL and collwire in it. Its programs and C library are this machine's, or those of a root made by debootstrap."""

import contextlib
import glob
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tarfile
import time

import double_job
import one_machine

# Where the image has the job, its libraries and collwire.
PLACE = "/opt/job"
IMAGE = "collwire-test"
# Above the groups of the containers.
GROUP = "collwire-test"
# Open files and processes: podman would raise the limits, which not every machine permits.
MOST = 4096
PATIENCE_S = 120
TOOLS = ("/bin/sh", "/bin/sleep", "/bin/cp", "/bin/mv", "/bin/rm", "/bin/touch", "/bin/true")
MERGED = ("bin", "sbin", "lib", "lib64")


def limits():
    return [f"--ulimit={name}={min(hard, MOST)}:{min(hard, MOST)}" for name, hard in (
        (name, resource.getrlimit(number)[1]) for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)))]


def libraries_of(paths, environment):
    """Paths of the shared libraries that these files need, by this machine's loader."""
    found = set()
    for path in paths:
        said = subprocess.run(["ldd", path], capture_output=True, text=True, env=environment, check=False).stdout
        found.update(re.findall(r"(?:=> |^\t)(/[^ ]+) \(", said, re.MULTILINE))
    return found


class Podman:
    """podman with its own storage below a directory; as another user: rootless."""

    def __init__(self, directory, user=None):
        self.directory, self.user = directory, user
        self.runtime, self.network = "", "bridge"
        os.makedirs(directory)
        self.environment = dict(os.environ)
        if user is not None:
            for name in ("home", "xdg"):
                os.mkdir(f"{directory}/{name}", 0o700)
            self.environment.update(HOME=f"{directory}/home", XDG_RUNTIME_DIR=f"{directory}/xdg", XDG_DATA_HOME=f"{directory}/home/data",
                                    XDG_CONFIG_HOME=f"{directory}/home/config")
            self.environment.pop("DBUS_SESSION_BUS_ADDRESS", None)
            for root, _, _ in os.walk(directory):
                os.chown(root, user, user)

    def words(self, *words):
        places = [] if self.user is not None else ["--root", f"{self.directory}/storage", "--runroot", f"{self.directory}/run"]
        runtime = ("--runtime", self.runtime) if self.runtime else ()
        return ["podman", *places, "--storage-driver", "overlay", "--cgroup-manager", "cgroupfs", *runtime, *words]

    def as_user(self):
        return {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}

    def run(self, *words, check=True, **keywords):
        done = subprocess.run(self.words(*words), capture_output=True, env=self.environment, cwd="/", check=False, **self.as_user(), **keywords)
        if check:
            assert done.returncode == 0, f"podman {' '.join(words[:2])}: {done.stderr.decode(errors='replace').strip()}"
        return done

    def said(self, *words):
        return self.run(*words).stdout.decode().strip()

    def started(self, output, *words):
        return subprocess.Popen(self.words(*words), stdout=output, stderr=subprocess.STDOUT, env=self.environment, cwd="/", **self.as_user())

    def choose_runtime(self):
        """The first runtime and network that run a container here."""
        said = ""
        for runtime in ("", "runc", "crun"):
            self.runtime = runtime
            for network in ("bridge", "host") if self.user is None else ("host",):
                tried = self.run("run", "--rm", f"--network={network}", *limits(), IMAGE, "/bin/true", check=False)
                if tried.returncode == 0:
                    self.network = network
                    return
                said = said or tried.stderr.decode(errors="replace").strip().splitlines()[-1]
        raise one_machine.Skip(f"podman runs no container here: {said}")

    def file_of_image(self, path):
        """The host's path of a file of the image, which all its containers share."""
        return f"{self.said('image', 'mount', IMAGE)}{path}"

    def privileged(self, directory):
        """Words that run collwire in a privileged container with the host's pids, which sees the directory."""
        places = [directory, *(path for path in ("/sys/kernel/tracing", "/sys/kernel/security") if os.path.isdir(path))]
        return self.words("run", "--rm", "--privileged", "--pid=host", *limits(), *(word for place in places for word in ("-v", f"{place}:{place}")), IMAGE,
                          f"{PLACE}/collwire")

    def end_pause(self):
        """Ends the process that keeps a rootless podman's namespaces."""
        with contextlib.suppress(OSError, ValueError):
            with open(f"{self.directory}/xdg/libpod/tmp/pause.pid", encoding="ascii") as file:
                os.kill(int(file.read()), signal.SIGKILL)

    def remove(self):
        self.run("image", "umount", "-a", check=False)
        self.run("rm", "-f", "-a", "-t", "0", check=False)
        self.run("rmi", "-f", IMAGE, check=False)
        # Files of a rootless storage belong to subordinate users.
        if self.user is not None:
            self.run("system", "reset", "--force", check=False)
            self.end_pause()
        subprocess.run(["umount", f"{self.directory}/storage/overlay"], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
        for group in glob.glob(f"/sys/fs/cgroup/{GROUP}") + glob.glob(f"/sys/fs/cgroup/*/{GROUP}"):
            subprocess.run(["find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def podman_in(directory, user=None):
    if not shutil.which("podman"):
        raise one_machine.Skip("podman is not installed. Fix: tools/install-deps test")
    podman = Podman(directory, user)
    try:
        yield podman
    finally:
        podman.remove()


def merged(path):
    """A path below /usr, where the directories of / are links into it."""
    first = path.split("/")[1]
    return f"/usr{path}" if first in MERGED else path


def write_image(to, job, collwire, base):
    """Writes the file system as a tar. `base`: an unpacked root with programs and a C library; empty: this machine's are copied."""
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{job.build}:{os.path.dirname(job.library)}"}
    own = {f"{PLACE}/{name}": f"{job.build}/{name}" for name in ("job", "libcuda_double.so", "libsend_counter.so", "libnvidia-ml.so.1")}
    own.update({f"{PLACE}/libnccl.so.2": job.library, f"{PLACE}/collwire": collwire})
    if not base:
        needed = (libraries_of([*own.values(), *TOOLS], environment) | set(TOOLS)) - set(own.values())
        own.update({merged(path): path for path in needed if not path.startswith((job.build, os.path.dirname(job.library)))})
    else:
        # What collwire needs of this machine, and a small root does not have.
        own.update({f"{PLACE}/{os.path.basename(path)}": path for path in libraries_of([collwire], environment)
                    if not os.path.exists(base + merged(path)) and not os.path.exists(base + path)})
    with tarfile.open(fileobj=to, mode="w|") as tar:
        if base:
            for name in sorted(os.listdir(base)):
                tar.add(f"{base}/{name}", name)
        else:
            for name in ("proc", "sys", "dev", "run", "tmp", "etc"):
                add_entry(tar, name, tarfile.DIRTYPE)
            for name in MERGED:
                add_entry(tar, name, tarfile.SYMTYPE, f"usr/{name}")
        for inside, here in sorted(own.items()):
            tar.add(os.path.realpath(here), inside[1:])


def add_entry(tar, name, kind, target=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = kind, 0o755, target
    tar.addfile(entry, io.BytesIO())


def make_image(podman, job, collwire, base=""):
    """Imports the image as a layer of podman's storage. A rootless podman gets it from the same pipe."""
    with subprocess.Popen(podman.words("import", "-", IMAGE), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          env=podman.environment, cwd="/", **podman.as_user()) as importing:
        try:
            write_image(importing.stdin, job, collwire, base)
            importing.stdin.close()
        except BrokenPipeError:
            pass
        said = importing.stderr.read().decode(errors="replace").strip()
        assert importing.wait(timeout=PATIENCE_S) == 0, said


def lines_of_cut(path):
    """The complete lines of a log whose process was killed while it wrote."""
    return double_job.lines_so_far(path) if os.path.exists(path) else []


def debootstrapped():
    """An unpacked root of this machine's distribution with the libraries of RDMA, kept in the cache."""
    with open("/etc/os-release", encoding="utf-8") as file:
        release = dict(line.strip().split("=", 1) for line in file if "=" in line)
    suite = release["VERSION_CODENAME"].strip('"')
    cache = os.environ.get("COLLWIRE_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "collwire")
    root = os.path.join(cache, "containers", f"{suite}-rdma")
    if os.path.isdir(root):
        return root
    if not shutil.which("debootstrap"):
        raise one_machine.Skip("debootstrap is not installed. Fix: tools/install-deps dev")
    sites = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", f"Codename: {suite}"], capture_output=True, text=True,
                           check=False).stdout.splitlines()
    made = f"{root}.{os.getpid()}"
    os.makedirs(made)
    packages = "--include=libstdc++6,libibverbs1,ibverbs-providers"
    done = subprocess.run(["debootstrap", "--variant=minbase", packages, suite, made, *sites[:1]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(made)
        raise one_machine.Skip(f"debootstrap: {done.stdout.strip().splitlines()[-1:]}")
    os.rename(made, root)
    return root


class ContainerJob(double_job.Job):
    """Each rank in a container of its own, whose first process it is."""

    def __init__(self, podman, library, build, ranks=2, **more):
        super().__init__(library, build, ranks, **more)
        self.podman = podman
        self.options = {rank: [] for rank in range(ranks)}  # of `podman run`, by rank
        self.shell = {}  # by rank: what a shell runs before it becomes the job
        self.name_prefix = "rank"

    def name_of(self, rank):
        return f"{self.name_prefix}{rank}"

    def environment_of(self, rank, directory):
        host = {name: value for name, value in super().environment_of(rank, directory).items() if os.environ.get(name) != value}
        host.update({
            "LD_LIBRARY_PATH": PLACE,
            "LD_PRELOAD": f"{PLACE}/libcuda_double.so:{PLACE}/libsend_counter.so",
            "NCCL_SOCKET_IFNAME": "eth0" if self.podman.network == "bridge" else "lo",
        })
        return host

    def start(self, rank, directory, program, arguments, mask=frozenset()):
        del mask  # podman forwards signals
        environment = self.environment_of(rank, directory)
        words = [f"{PLACE}/{program}", "--rank", str(rank), "--ranks", str(self.ranks), "--id", f"file:{directory}/id", "--device", "0", *arguments,
                 "--log", f"{directory}/job.{rank}"]
        preload = environment.pop("LD_PRELOAD")
        if rank in self.shell:
            words = ["/bin/sh", "-c", f'{self.shell[rank]}; export LD_PRELOAD={preload}; exec "$@"', "sh", *words]
        else:
            environment["LD_PRELOAD"] = preload
        options = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        with open(f"{directory}/output.{rank}", "w", encoding="utf-8") as output:
            return self.podman.started(output, "run", "--name", self.name_of(rank), f"--network={self.podman.network}", "--shm-size=1g", *limits(),
                                       "-v", f"{directory}:{directory}", *options, *self.options[rank], IMAGE, *words)

    def containers(self):
        """[(id, host pid of the first process)] by rank, as podman knows them, when all run."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = [self.state_of(rank) for rank in range(self.ranks)]
            if all(state and state["State"]["Pid"] for state in found):
                return [(state["Id"], state["State"]["Pid"]) for state in found]
            assert time.monotonic() < end, f"containers do not run: {[double_job.output_of(self.directory, rank) for rank in range(self.ranks)]}"
            time.sleep(0.05)

    def state_of(self, rank):
        done = self.podman.run("container", "inspect", self.name_of(rank), check=False)
        return json.loads(done.stdout)[0] if done.returncode == 0 else None

    def remove(self):
        for rank in range(self.ranks):
            self.podman.run("rm", "-f", "--ignore", "-t", "0", self.name_of(rank), check=False)
