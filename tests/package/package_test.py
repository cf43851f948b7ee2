#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The packages that cpack makes from the release build: the .deb with its files, dependencies and scripts, installed into a root of its own, removed and
purged; the tarball, unpacked and run; `cmake --install`. Manual pages and completion have every option that `--help` prints.

package_test.py BUILD-DIRECTORY"""

import filecmp
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.realpath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
COLLWIRE = os.path.join(BUILD, "collwire")
OPTION = re.compile(r"^  (-\S.*?)(?:  |$)")
# Where systemd, bash and man look, below the prefix.
EXPECTED = ["bin/collwire", "bin/collwire-trim", "lib/collwire/libcollwire_cupti.so", "lib/systemd/system/collwire-record.service",
            "share/bash-completion/completions/collwire", "share/man/man1/collwire.1", "share/man/man1/collwire-record.1",
            "share/man/man1/collwire-topology-import.1", "share/doc/collwire/LICENSE", "share/doc/collwire/copyright", "share/doc/collwire/README.md",
            "share/doc/collwire/docs/record.md", "share/doc/collwire/deploy/kubernetes/daemonset.yaml", "share/doc/collwire/deploy/slurm/prolog.sh",
            "share/collwire/check-machine"]
NOTICES = {"libbpf-dev", "libelf-dev", "libdw-dev", "zlib1g-dev", "libzstd-dev", "libnl-3-dev", "libcapstone-dev", "libsqlite3-dev"}


def run(*command, status=0, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300, **more)
    assert done.returncode == status, f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def files_below(directory):
    """Path from there: what it is."""
    found = {}
    for folder, names, files in os.walk(directory):
        for name in names + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, directory)] = "directory" if os.path.isdir(path) else hashlib.sha256(open(path, "rb").read()).hexdigest()
    return found


def options_of_help(words):
    """All names of options that the help of a verb prints, and its verbs."""
    names, verbs, in_verbs = set(), [], False
    for line in run(COLLWIRE, *words, "--help").stdout.splitlines():
        in_verbs = line.startswith("Subcommands:") or (in_verbs and line.startswith("  "))
        if in_verbs and re.match(r"^  \w", line):
            verbs.append(line.split()[0])
        elif match := OPTION.match(line):
            names.update(re.sub(r"[{[ ].*", "", name) for name in match.group(1).split(",") if name.startswith("-"))
    return names, verbs


def all_verbs(words=()):
    names, verbs = options_of_help(words)
    found = {tuple(words): names}
    for verb in verbs:
        found.update(all_verbs((*words, verb)))
    return found


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="collwire-package-")
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        made = os.path.join(cls.directory, "made")
        run("cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", made)
        cls.deb, = [os.path.join(made, name) for name in os.listdir(made) if name.endswith(".deb")]
        cls.tarball, = [os.path.join(made, name) for name in os.listdir(made) if name.endswith(".tar.gz")]
        cls.unpacked = os.path.join(cls.directory, "unpacked")
        with tarfile.open(cls.tarball) as archive:
            tops = {name.split("/")[0] for name in archive.getnames()}
            assert len(tops) == 1, tops
            archive.extractall(cls.unpacked)
        cls.prefix = os.path.join(cls.unpacked, tops.pop())
        cls.verbs = all_verbs()

    def test_names_are_those_of_the_version(self):
        version = run(COLLWIRE, "--version").stdout.split()[-1]
        self.assertEqual(os.path.basename(self.deb), f"collwire_{version}_amd64.deb")
        self.assertEqual(os.path.basename(self.tarball), f"collwire-{version}-linux-x86_64.tar.gz")

    def test_deb_needs_glibc_alone(self):
        fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "--field", self.deb).stdout.splitlines() if re.match(r"^\w[\w-]*: ", line))
        self.assertEqual(fields["Depends"], "libc6 (>= 2.34)")
        self.assertEqual((fields["Package"], fields["Architecture"]), ("collwire", "amd64"))
        self.assertFalse({"Recommends", "Suggests", "Pre-Depends"} & set(fields), fields)
        # What the file says, by another reader than CMake's.
        for name in ("bin/collwire", "lib/collwire/libcollwire_cupti.so"):
            dynamic = run("readelf", "-d", os.path.join(self.prefix, name)).stdout
            for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                self.assertRegex(needed, r"^(ld-linux-x86-64|lib(c|m|dl|rt|pthread))\.so\.\d+$")

    def test_deb_has_the_files_and_no_rights_too_many(self):
        listed = run("dpkg-deb", "--contents", self.deb).stdout.splitlines()
        paths = set()
        for line in listed:
            mode, owner, path = line.split()[0], line.split()[1], line.split()[5]
            self.assertEqual(owner, "root/root", line)
            self.assertNotIn("s", mode, line)
            self.assertEqual(mode[5] + mode[8], "--", line)
            paths.add(path)
        for path in EXPECTED:
            self.assertIn(f"./usr/{path}", paths)
        self.assertFalse([path for path in paths if not path.startswith("./usr/")])
        self.assertLessEqual({f"./usr/share/doc/collwire/third-party/{name}" for name in NOTICES if os.path.exists(f"/usr/share/doc/{name}/copyright")},
                             paths)

    def test_tarball_deb_and_install_are_the_same_tree(self):
        root = os.path.join(self.directory, "data")
        run("dpkg-deb", "--extract", self.deb, root)
        installed = os.path.join(self.directory, "installed")
        run("cmake", "--install", BUILD, "--prefix", installed)
        tree = files_below(self.prefix)
        self.assertEqual(files_below(os.path.join(root, "usr")), tree)
        self.assertEqual(files_below(installed), tree)
        self.assertTrue(filecmp.cmp(os.path.join(self.prefix, "bin/collwire"), COLLWIRE, shallow=False))
        self.assertEqual({name for name in tree if name.endswith(".json")} - {"share/doc/collwire/docs/rows.schema.json"},
                         {f"share/collwire/nccl-layouts/{name}" for name in os.listdir(os.path.join(ROOT, "nccl-layouts")) if name.endswith(".json")})

    def test_components_can_be_installed_alone(self):
        alone = os.path.join(self.directory, "alone")
        for component, names in (("binary", {"bin/collwire"}), ("guest", {"lib/collwire/libcollwire_cupti.so"})):
            run("cmake", "--install", BUILD, "--prefix", f"{alone}/{component}", "--component", component)
            self.assertEqual({name for name, what in files_below(f"{alone}/{component}").items() if what != "directory"}, names)

    def test_what_is_unpacked_runs_and_finds_its_parts(self):
        program = os.path.join(self.prefix, "bin/collwire")
        self.assertEqual(run(program, "--version").stdout, run(COLLWIRE, "--version").stdout)
        environment = {"PATH": os.environ["PATH"]}
        told = run(program, "run", "--", "env", env=environment).stdout
        self.assertIn(f"CUDA_INJECTION64_PATH={self.prefix}/lib/collwire/libcollwire_cupti.so\n", told)

    def test_dpkg_installs_removes_and_purges(self):
        """Into a root of its own: its data base, its scripts with DPKG_ROOT. The dependency is another test's."""
        root = os.path.join(self.directory, "root")
        for folder in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "etc/systemd/system/multi-user.target.wants", "var/lib", "usr/bin"):
            os.makedirs(os.path.join(root, folder), exist_ok=True)
        open(os.path.join(root, "var/lib/dpkg/status"), "w", encoding="utf-8").close()
        for folder in ("usr/bin", "usr/lib", "usr/share", "var/lib", "etc/systemd/system/multi-user.target.wants"):  # dpkg removes folders that are empty
            os.makedirs(os.path.join(root, folder), exist_ok=True)
            open(os.path.join(root, folder, "of-another-package"), "w", encoding="utf-8").close()
        ours = lambda: {name: what for name, what in files_below(root).items() if not name.startswith("var/lib/dpkg") and "log" not in name}
        before = ours()

        def dpkg(*action):
            return run("dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--no-triggers", "--log=/dev/null", *action)

        dpkg("--install", self.deb)
        program = os.path.join(root, "usr/bin/collwire")
        self.assertEqual(run(program, "--version").stdout, run(COLLWIRE, "--version").stdout)
        self.assertIn("ok installed", run("dpkg-query", f"--admindir={root}/var/lib/dpkg", "--status", "collwire").stdout)
        # As the service and an administrator leave it.
        os.makedirs(os.path.join(root, "var/lib/collwire"))
        capture = os.path.join(root, "var/lib/collwire/node-20260101T000000Z.cwc")
        open(capture, "w", encoding="utf-8").close()
        os.makedirs(os.path.join(root, "etc/default"), exist_ok=True)
        settings = os.path.join(root, "etc/default/collwire-record")
        open(settings, "w", encoding="utf-8").close()
        wanted = os.path.join(root, "etc/systemd/system/multi-user.target.wants/collwire-record.service")
        os.symlink("/usr/lib/systemd/system/collwire-record.service", wanted)
        dpkg("--install", self.deb)  # an upgrade
        self.assertTrue(os.path.exists(capture) and os.path.lexists(wanted))
        dpkg("--remove", "collwire")
        self.assertTrue(os.path.exists(capture) and os.path.exists(settings), "remove keeps data")
        self.assertFalse(os.path.exists(program))
        if shutil.which("systemctl"):
            self.assertFalse(os.path.lexists(wanted), "the service is still enabled")
        dpkg("--purge", "collwire")
        os.rmdir(os.path.join(root, "etc/default"))
        self.assertEqual(ours(), before)

    def test_every_option_is_in_the_manual(self):
        self.assertGreaterEqual(len(self.verbs), 11, self.verbs)
        for words, names in self.verbs.items():
            path = os.path.join(self.prefix, "share/man/man1", "-".join(("collwire", *words)) + ".1")
            with open(path, encoding="utf-8") as file:
                text = re.sub(r"\\f.", "", file.read()).replace("\\-", "-")
            described = {name for line in re.findall(r"^\.TP\n(-.*)$", text, re.MULTILINE) for name in re.findall(r"(?:^|, )(--?[\w-]+)", line)}
            self.assertEqual(described, names, words)
        pages = {"-".join(("collwire", *words)) + ".1" for words in self.verbs}
        self.assertEqual(set(os.listdir(os.path.join(self.prefix, "share/man/man1"))), pages)

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_the_manual_is_valid(self):
        for name in os.listdir(os.path.join(self.prefix, "share/man/man1")):
            done = run("man", "--warnings", "-l", os.path.join(self.prefix, "share/man/man1", name), env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
            self.assertEqual(done.stderr, "", name)
            self.assertIn("Exit status: 0", done.stdout + "Exit status: 0" * name.endswith("run.1"), name)

    def complete(self, *words):
        script = os.path.join(self.prefix, "share/bash-completion/completions/collwire")
        quoted = " ".join("'" + word + "'" for word in words)
        text = f". {script}; compopt() {{ echo FILES; }}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _collwire; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return set(run("bash", "--norc", "-c", text).stdout.split())

    def test_completion_has_every_verb_and_option(self):
        for words, names in self.verbs.items():
            options = {name for name in names}
            self.assertEqual(self.complete("collwire", *words, "-"), options, words)
        self.assertEqual(self.complete("collwire", ""), {words[0] for words in self.verbs if len(words) == 1} | self.verbs[()])
        self.assertEqual(self.complete("collwire", "topology", "sh"), {"show"})

    def test_completion_of_values(self):
        self.assertEqual(self.complete("collwire", "record", "--posts", ""), {"auto", "on", "off"})
        self.assertEqual(self.complete("collwire", "record", "--posts", "=", "o"), {"on", "off"})
        self.assertEqual(self.complete("collwire", "record", "-o", ""), {"FILES"})
        self.assertEqual(self.complete("collwire", "report", ""), {"FILES"})
        self.assertEqual(self.complete("collwire", "record", "--keep", ""), set())
        self.assertIn("bash", self.complete("collwire", "record", "--", "bas"))

    def test_machine_check_names_the_reason(self):
        """The messages are the kernel's and the loader's own, of binaries that ask for what is not here."""
        check = os.path.join(self.prefix, "share/collwire/check-machine")
        self.assertIn("collwire starts here", run(check).stdout)
        with open(COLLWIRE, "rb") as file:
            program = file.read()
        for old, new, reason in ((b"GLIBC_2.34\0", b"GLIBC_9.34\0", "glibc 2.34 or later"),
                                 (b"/lib64/ld-linux-x86-64.so.2\0", b"/lib64/ld-linux-x86-64.so.9\0", "no glibc")):
            self.assertIn(old, program)
            other = os.path.join(self.directory, "other")
            shutil.rmtree(other, ignore_errors=True)
            os.makedirs(f"{other}/bin")
            os.makedirs(f"{other}/share/collwire")
            shutil.copy(check, f"{other}/share/collwire/")
            with open(f"{other}/bin/collwire", "wb") as file:
                file.write(program.replace(old, new))
            os.chmod(f"{other}/bin/collwire", 0o755)
            done = run(f"{other}/share/collwire/check-machine", status=1)
            self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)
            self.assertIn(reason, done.stdout)
            self.assertIn("Fix: ", done.stdout)

    def test_trim_deletes_the_oldest_captures(self):
        folder = os.path.join(self.directory, "trim")
        os.makedirs(folder)
        for age, name in enumerate(("new.cwc", "middle.cwc", "old.cwc", "note.txt")):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"\0" * (1 << 20))
            os.utime(os.path.join(folder, name), (1_700_000_000 - age, 1_700_000_000 - age))
        trim = os.path.join(self.prefix, "bin/collwire-trim")
        run(trim, folder, "3")
        self.assertEqual(len(os.listdir(folder)), 4)
        run(trim, folder, "2")
        self.assertEqual(set(os.listdir(folder)), {"new.cwc", "middle.cwc", "note.txt"})
        run(trim, folder, "0")
        self.assertEqual(os.listdir(folder), ["note.txt"])
        run(trim, folder, "2GiB", status=2)
        run(trim, os.path.join(folder, "absent"), "2", status=2)

    @unittest.skipUnless(yaml, "python3-yaml is not installed")
    def test_daemonset_has_the_rights_of_the_unit(self):
        folder = os.path.join(self.prefix, "share/doc/collwire/deploy/kubernetes")
        with open(os.path.join(folder, "daemonset.yaml"), encoding="utf-8") as file:
            document = yaml.safe_load(file)
        self.assertEqual((document["apiVersion"], document["kind"]), ("apps/v1", "DaemonSet"))
        template = document["spec"]["template"]
        self.assertEqual(template["metadata"]["labels"], document["spec"]["selector"]["matchLabels"])
        pod, = [template["spec"]]
        container, = pod["containers"]
        self.assertTrue(pod["hostPID"] and pod["hostNetwork"])
        with open(os.path.join(self.prefix, "lib/systemd/system/collwire-record.service"), encoding="utf-8") as file:
            rights = re.search(r"^CapabilityBoundingSet=(.*)$", file.read(), re.MULTILINE).group(1).split()
        self.assertEqual(["CAP_" + name for name in container["securityContext"]["capabilities"]["add"]], rights)
        self.assertEqual(container["securityContext"]["capabilities"]["drop"], ["ALL"])
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {volume["name"] for volume in pod["volumes"]})
        self.assertTrue(container["image"].endswith(":" + run(COLLWIRE, "--version").stdout.split()[-1]))
        # Its options are ones that exist.
        words = container["args"][0].split("exec ")[1].split()
        self.assertLessEqual({word for word in words if word.startswith("-")}, self.verbs[("record",)])

    def test_unit_hides_nothing_that_is_read(self):
        """/proc/kallsyms, /lib/modules, other processes, network namespaces, and devices: what implies DeviceAllow= closes all others."""
        with open(os.path.join(self.prefix, "lib/systemd/system/collwire-record.service"), encoding="utf-8") as file:
            settings = set(re.findall(r"^(\w+)=", file.read(), re.MULTILINE))
        self.assertEqual(settings & {"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectClock", "ProtectProc", "ProcSubset",
                                     "PrivateDevices", "DeviceAllow", "DevicePolicy", "PrivateNetwork", "PrivateUsers", "InaccessiblePaths"}, set())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_accepts_the_unit(self):
        root = os.path.join(self.directory, "units")
        shutil.copytree(self.prefix, os.path.join(root, "usr"))
        unit = os.path.join(root, "usr/lib/systemd/system/collwire-record.service")
        # systemd looks for programs without a path in its own list of folders, of the machine itself.
        with open(unit, encoding="utf-8") as file:
            text = file.read()
        with open(unit, "w", encoding="utf-8") as file:
            file.write(re.sub(r"^(ExecStart(?:Pre)?=-?)(collwire\S*)", rf"\1{root}/usr/bin/\2", text, flags=re.MULTILINE))
        done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
        self.assertEqual([line for line in done.stderr.splitlines() if "collwire" in line], [])
        checked = run("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=65", unit).stdout
        self.assertIn("Overall exposure level", checked)


if __name__ == "__main__":
    unittest.main()
