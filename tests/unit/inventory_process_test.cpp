// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include <unistd.h>

#include "base/clock.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "tests/unit/inventory_tree.h"
#include "userspace/inventory/cgroup.h"
#include "userspace/inventory/command_line.h"
#include "userspace/inventory/node.h"
#include "userspace/inventory/process.h"
#include "userspace/inventory/process_choice.h"

namespace collwire::inventory {
namespace {

using test::Tree;
using namespace std::string_literals;

const std::string container(64, 'a');

std::string stat_text(std::string_view comm, std::uint64_t start_ticks) {
    std::string text = "4242 (" + std::string(comm) + ") S 77";
    for (int field = 5; field < 22; ++field)
        text += " 0";
    return text + " " + std::to_string(start_ticks) + " 4096 1\n";
}

std::string words(std::initializer_list<std::string_view> list) {
    std::string bytes;
    for (const std::string_view word : list)
        bytes += std::string(word) + '\0';
    return bytes;
}

std::string script(std::initializer_list<std::string_view> list) {
    return program_of(words(list)).script;
}

TEST(Cgroups, SlurmVersion2) {
    const auto facts =
        parse_cgroups("0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_3\n");
    EXPECT_EQ(facts.slurm_job, "1234");
    EXPECT_EQ(facts.slurm_step, "0");
    EXPECT_EQ(facts.path, "/system.slice/slurmstepd.scope/job_1234/step_0/user/task_3");
    EXPECT_EQ(parse_cgroups("0::/system.slice/n7_slurmstepd.scope/job_5/step_extern").slurm_step,
              "extern");
}

TEST(Cgroups, SlurmVersion1IsFoundInOneOfManyHierarchies) {
    const auto facts = parse_cgroups("9:name=systemd:/system.slice/slurmd.service\n"
                                     "8:cpuset:/slurm/uid_1000/job_99/step_batch\n"
                                     "4:memory:/\n0::/\n");
    EXPECT_EQ(facts.slurm_job, "99");
    EXPECT_EQ(facts.slurm_step, "batch");
}

TEST(Cgroups, JobOfAnotherManagerIsNotSlurms) {
    EXPECT_EQ(parse_cgroups("0::/pbs/job_12/step_1\n").slurm_job, "");
    EXPECT_EQ(parse_cgroups("0::/slurm/uid_1/job_12x/step_1\n").slurm_job, "");
    EXPECT_EQ(parse_cgroups("0::/slurm/job_" + std::string(30, '1') + "\n").slurm_job, "");
}

TEST(Cgroups, PodsOfBothDrivers) {
    const auto systemd = parse_cgroups(
        "0::/kubepods.slice/kubepods-burstable.slice/"
        "kubepods-burstable-pod8f2f3c1a_0c61_4f6e_9c56_0d1f6a1b2c3d.slice/cri-containerd-" +
        container + ".scope\n");
    EXPECT_EQ(systemd.pod_uid, "8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d");
    EXPECT_EQ(systemd.container_id, container);
    const auto cgroupfs =
        parse_cgroups("4:memory:/kubepods/besteffort/pod8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d/" +
                      container + "\n");
    EXPECT_EQ(cgroupfs.pod_uid, "8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d");
    EXPECT_EQ(cgroupfs.container_id, container);
    const auto fixed = parse_cgroups("0::/kubepods.slice/kubepods-pod" + std::string(32, 'b') +
                                     ".slice:cri-containerd:" + container + "\n");
    EXPECT_EQ(fixed.pod_uid, std::string(32, 'b'));
    EXPECT_EQ(fixed.container_id, container);
}

TEST(Cgroups, NestedContainersGiveTheInnermost) {
    const std::string inner(64, 'c');
    const auto facts = parse_cgroups("0::/docker/" + container + "/docker/" + inner + "\n");
    EXPECT_EQ(facts.container_id, inner);
    EXPECT_EQ(facts.pod_uid, "");
}

// As a process in one pod sees those of another, and of its own (cgroup_namespaces(7)).
TEST(Cgroups, PodsAreNamedFromInsideAnotherPod) {
    const std::string uid = "8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d";
    const auto other = parse_cgroups("0::/../../pod" + uid + "/" + container + "\n");
    EXPECT_EQ(other.pod_uid, uid);
    EXPECT_EQ(other.container_id, container);
    EXPECT_EQ(parse_cgroups("0::/../" + container + "\n").container_id, container);
    EXPECT_EQ(parse_cgroups("0::/machine/pod" + uid + "/" + container + "\n").pod_uid, "");
}

std::string mount_line(const std::string &shown, const std::string &place) {
    return "612 600 8:1 " + shown + " " + place + " rw,relatime master:1 - ext4 /dev/sda1 rw\n";
}

TEST(Mounts, NameAContainerWithoutACgroupOfItsOwn) {
    CgroupFacts facts;
    add_from_mounts(
        mount_line("/", "/") +
            mount_line("/containers/overlay-containers/" + std::string(64, 'b') + "/userdata/hosts",
                       "/etc/hosts") +
            mount_line("/containers/overlay-containers/" + container + "/userdata/.containerenv",
                       "/run/.containerenv"),
        facts);
    EXPECT_EQ(facts.container_id, container); // not the one whose /etc/hosts it shares
    EXPECT_EQ(facts.pod_uid, "");
}

TEST(Mounts, NameThePodByTheKubeletsFiles) {
    const std::string uid = "8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d";
    CgroupFacts facts;
    add_from_mounts(mount_line("/var/lib/kubelet/pods/" + uid + "/etc-hosts", "/etc/hosts"), facts);
    EXPECT_EQ(facts.pod_uid, uid);
    CgroupFacts of_cgroup;
    of_cgroup.pod_uid = std::string(32, 'b');
    add_from_mounts(mount_line("/var/lib/kubelet/pods/" + uid + "/etc-hosts", "/etc/hosts"),
                    of_cgroup);
    EXPECT_EQ(of_cgroup.pod_uid, std::string(32, 'b'));
    // A volume of another pod, which the kubelet or an agent on the host has mounted.
    CgroupFacts host;
    add_from_mounts(mount_line("/var/lib/kubelet/pods/" + uid + "/volumes/x", "/mnt/x") +
                        mount_line("/a/" + container + "/b", "/srv") + "1 2 3\n\n",
                    host);
    EXPECT_EQ(host.pod_uid + host.container_id, "");
}

TEST(Cgroups, Garbage) {
    for (const std::string &text :
         {""s, "\n\n"s, ":::"s, "0::"s, "0:\0:/x"s, std::string(1000, ':'), "kubepods pod"s})
        EXPECT_TRUE(parse_cgroups(text).slurm_job.empty());
    EXPECT_EQ(parse_cgroups("0::/\n").path, "/");
    EXPECT_EQ(parse_cgroups("0::/kubepods/podZZ").pod_uid, "");
    EXPECT_EQ(parse_cgroups("0::/x/" + std::string(65, 'a')).container_id, "");
}

TEST(CommandLine, Scripts) {
    EXPECT_EQ(script({"python3", "train.py", "--key", "SECRET"}), "train.py");
    EXPECT_EQ(script({"/usr/bin/python3.11", "-u", "-X", "dev", "-Wignore", "/job/train.py"}),
              "/job/train.py");
    EXPECT_EQ(script({"python", "-m", "torch.distributed.run", "x.py"}), "torch.distributed.run");
    EXPECT_EQ(script({"python", "-um", "pkg.main"}), "pkg.main");
    EXPECT_EQ(script({"python", "-mpkg"}), "pkg");
    EXPECT_EQ(script({"python3", "/usr/local/bin/torchrun", "--nproc", "8", "t.py"}),
              "/usr/local/bin/torchrun");
    EXPECT_EQ(script({"python", "-c", "import os; SECRET"}), "");
    EXPECT_EQ(script({"python", "-uc", "SECRET"}), "");
    EXPECT_EQ(script({"python", "-", "SECRET"}), "");
    EXPECT_EQ(script({"bash", "-euo", "pipefail", "run.sh", "SECRET"}), "run.sh");
    EXPECT_EQ(script({"bash", "-c", "SECRET"}), "");
    EXPECT_EQ(script({"bash", "-oc", "pipefail", "SECRET"}), "");
    EXPECT_EQ(script({"bash", "-eoOs", "pipefail", "extglob", "SECRET"}), "");
    EXPECT_EQ(script({"bash", "-oe", "pipefail", "run.sh", "SECRET"}), "run.sh");
    EXPECT_EQ(script({"ksh", "-oerrexit", "run.sh", "SECRET"}), "");
    EXPECT_EQ(script({"zsh", "-o", "errexit", "run.sh", "SECRET"}), "run.sh");
    EXPECT_EQ(script({"bash", "-oO", "pipefail", "extglob", "run.sh"}), "run.sh");
    EXPECT_EQ(script({"-bash", "--login"}), "");
    EXPECT_EQ(script({"/bin/sh", "--", "-odd.sh"}), "-odd.sh");
    EXPECT_EQ(script({"perl", "-Mstrict", "-I", "lib", "x.pl"}), "x.pl");
    EXPECT_EQ(script({"perl", "-ne", "SECRET"}), "");
    EXPECT_EQ(script({"node", "--require", "hook", "app.js"}), "app.js");
    EXPECT_EQ(script({"node", "--eval=SECRET"}), "");
    EXPECT_EQ(script({"pythonic", "SECRET"}), "");
    EXPECT_EQ(script({"./train", "SECRET"}), "");
}

TEST(CommandLine, TitleOfARewrittenProcessLosesItsArguments) {
    EXPECT_EQ(program_of("worker: rank 3 token SECRET\0\0\0"s).argv0, "worker:");
    EXPECT_EQ(program_of("postgres: user SECRET").argv0, "postgres:");
    EXPECT_EQ(program_of("").argv0, "");
    EXPECT_EQ(program_of("\0\0"s).argv0, "");
}

TEST(CommandLine, FullOnRequest) {
    EXPECT_EQ(joined_command_line(words({"a", "b c", "d"}), 100), "a b c d");
    EXPECT_EQ(joined_command_line(words({"abc", "def"}), 5), "abc d");
}

TEST(CommandLine, SlurmVariablesAlone) {
    const auto slurm =
        slurm_environment(words({"XSLURM_JOB_ID=1", "SLURM_JOB_ID=77", "SLURM_STEP_ID=0",
                                 "SLURM_JOB_ID_X=2", "SLURM_JOB_IDS=3"}));
    EXPECT_EQ(slurm.job, "77");
    EXPECT_EQ(slurm.step, "0");
    EXPECT_EQ(slurm_environment(words({"SLURM_JOB_ID=$(SECRET)"})).job, "");
}

TEST(ProcessTexts, StatWithAnOddName) {
    const auto stat = parse_process_stat(stat_text("a) R 1 (b", 12345));
    ASSERT_TRUE(stat);
    EXPECT_EQ(stat->comm, "a) R 1 (b");
    EXPECT_EQ(stat->parent_pid, 77u);
    EXPECT_EQ(stat->start_ticks, 12345u);
    EXPECT_FALSE(parse_process_stat("4242 (x) S 1 2 3"));
    EXPECT_FALSE(parse_process_stat(stat_text("x", UINT64_MAX)));
    EXPECT_FALSE(parse_process_stat(")("));
    EXPECT_FALSE(parse_process_stat(""));
}

TEST(ProcessTexts, Status) {
    const auto status = parse_process_status(
        "Name:\tx\nUid:\t1000\t0\t0\t0\nNSpid:\t4242\t17\nCpus_allowed_list:\t0-3,8\n");
    EXPECT_EQ(status.uid, 1000u);
    EXPECT_EQ(status.namespace_pid, 17u);
    EXPECT_EQ(status.cpus_allowed_list, "0-3,8");
    EXPECT_EQ(parse_process_status("NSpid:\t9\n").namespace_pid, 9u);
}

TEST(ProcessTexts, StartTimesMeetWithinATick) {
    const std::uint64_t tick = clock_tick_ns();
    EXPECT_TRUE(same_start(5 * tick + 1, 5 * tick));
    EXPECT_TRUE(same_start(6 * tick - 1, 5 * tick));
    EXPECT_FALSE(same_start(6 * tick, 5 * tick));
}

class ProcessTree : public testing::Test {
protected:
    void SetUp() override {
        tree_.file("/proc/4242/stat", stat_text("python3", 500));
        tree_.file("/proc/4242/status",
                   "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t4242\t1\nCpus_allowed_list:\t4-5\n");
        tree_.link("/proc/4242/exe", "/usr/bin/python3.11");
        tree_.file("/proc/4242/cmdline", words({"python3", "train.py", "--token", "SECRET"}));
        tree_.file("/proc/4242/cgroup", "0::/user.slice\n");
        tree_.file("/proc/4242/environ", words({"SLURM_JOB_ID=31", "SLURM_STEP_ID=2"}));
        tree_.file("/sys/devices/system/node/node0/cpulist", "0-3\n");
        tree_.file("/sys/devices/system/node/node1/cpulist", "4-7\n");
    }
    Tree tree_;
};

TEST_F(ProcessTree, Whole) {
    const auto process = read_process(tree_.root(), 4242, {});
    ASSERT_TRUE(process) << process.failure().message;
    const cw_process &record = process.value();
    EXPECT_EQ(record.header.kind, CW_KIND_PROCESS);
    EXPECT_EQ(record.pid, 4242u);
    EXPECT_EQ(record.parent_pid, 77u);
    EXPECT_EQ(record.start_boottime_ns, 500 * clock_tick_ns());
    EXPECT_EQ(record.flags, CW_PROCESS_START_ROUNDED);
    EXPECT_EQ(record.uid, 1000u);
    EXPECT_EQ(record.namespace_pid, 1u);
    EXPECT_EQ(record.numa_node, 1);
    EXPECT_STREQ(record.comm, "python3");
    EXPECT_STREQ(record.executable, "/usr/bin/python3.11");
    EXPECT_STREQ(record.argv0, "python3");
    EXPECT_STREQ(record.script, "train.py");
    EXPECT_STREQ(record.slurm_job, "31");
    EXPECT_STREQ(record.slurm_step, "2");
    EXPECT_STREQ(record.cgroup, "/user.slice");
    const std::string_view bytes(reinterpret_cast<const char *>(&record), sizeof(record));
    EXPECT_EQ(bytes.find("SECRET"), std::string_view::npos);
}

TEST_F(ProcessTree, FullCommandLineOnRequest) {
    const auto process = read_process(tree_.root(), 4242, {.full_cmdline = true});
    ASSERT_TRUE(process);
    EXPECT_STREQ(process.value().cmdline, "python3 train.py --token SECRET");
}

TEST_F(ProcessTree, CgroupComesBeforeTheEnvironment) {
    tree_.file("/proc/4242/cgroup", "0::/slurm/uid_1/job_8/step_1\n");
    EXPECT_STREQ(read_process(tree_.root(), 4242, {})->slurm_job, "8");
}

TEST_F(ProcessTree, WhatCannotBeReadIsPartial) {
    tree_.remove("/proc/4242/environ");
    const auto process = read_process(tree_.root(), 4242, {});
    ASSERT_TRUE(process);
    EXPECT_EQ(process.value().flags, CW_PROCESS_START_ROUNDED | CW_PROCESS_PARTIAL);
}

TEST_F(ProcessTree, CpusOfSeveralNodes) {
    tree_.file("/proc/4242/status", "Cpus_allowed_list:\t2-5\n");
    EXPECT_EQ(read_process(tree_.root(), 4242, {})->numa_node, -1);
}

TEST_F(ProcessTree, Ended) {
    tree_.remove("/proc/4242/stat");
    EXPECT_FALSE(read_process(tree_.root(), 4242, {}));
    EXPECT_FALSE(process_start_ns(tree_.root(), 4242));
}

// The machine itself: what is read must agree with what the system calls say.
TEST(ThisProcess, IsRead) {
    const auto process = read_process("", static_cast<std::uint32_t>(getpid()), {});
    ASSERT_TRUE(process) << process.failure().message;
    EXPECT_EQ(process->parent_pid, static_cast<std::uint32_t>(getppid()));
    EXPECT_EQ(process->uid, getuid());
    EXPECT_NE(std::string_view(process->executable).find("inventory_process_test"),
              std::string_view::npos);
    const std::uint64_t now_ns = clock_ns(CLOCK_BOOTTIME);
    EXPECT_LE(process->start_boottime_ns, now_ns);
    EXPECT_LT(now_ns - process->start_boottime_ns, 600'000'000'000ULL);
}

TEST(ThisNode, ClockLiesBetweenTwoReads) {
    const std::uint64_t before = monotonic_ns();
    const cw_clock clock = read_clock();
    EXPECT_GE(clock.header.time_ns, before);
    EXPECT_LE(clock.header.time_ns, monotonic_ns());
    EXPECT_GE(clock.boottime_ns + clock.uncertainty_ns, clock.header.time_ns);
    const cw_node node = read_node("");
    EXPECT_EQ(std::string_view(node.boot_id).size(), 36u);
    EXPECT_STRNE(node.hostname, "");
    EXPECT_EQ(node.recorder_pid, static_cast<std::uint32_t>(getpid()));
}

class ChosenProcesses : public testing::Test {
protected:
    ChosenProcesses() {
        process(10, "0::/kubepods/burstable/pod" + pod + "/" + first + "\n");
        process(11, "0::/kubepods/burstable/pod" + pod + "/" + first + "\n");
        process(12, "0::/kubepods/pod" + pod + "/" + second + "\n");
        process(20, "0::/slurm/uid_1/job_47/step_0/task_0\n");
        process(21, "0::/slurm/uid_1/job_47/step_batch\n");
        process(30, "0::/\n");
    }
    void process(std::uint32_t pid, const std::string &cgroup) const {
        const std::string directory = "/proc/" + std::to_string(pid);
        tree_.file(directory + "/cgroup", cgroup);
        tree_.file(directory + "/environ", "");
        tree_.file(directory + "/mountinfo", "");
    }
    void chosen(const ProcessChoice &choice, const std::vector<std::uint32_t> &pids) const {
        const auto found = choose_processes(tree_.root(), choice);
        ASSERT_TRUE(found) << found.failure().message;
        EXPECT_EQ(*found, pids);
    }
    void refused(const ProcessChoice &choice, const std::string &because) const {
        const auto found = choose_processes(tree_.root(), choice);
        ASSERT_FALSE(found) << because;
        EXPECT_EQ(found.failure().kind, ErrorKind::Usage);
        EXPECT_NE(found.failure().message.find(because), std::string::npos)
            << found.failure().message;
        EXPECT_NE(found.failure().message.find("Fix: "), std::string::npos);
    }

    const std::string pod = "8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d";
    const std::string first = std::string(8, 'a') + std::string(56, '1');
    const std::string second = std::string(8, 'a') + std::string(56, '2');
    Tree tree_;
};

TEST_F(ChosenProcesses, AreAllOfThatName) {
    chosen({.containers = {first}}, {10, 11});
    chosen({.containers = {second.substr(0, 12)}}, {12});
    chosen({.containers = {"containerd://" + second}}, {12});
    chosen({.pods = {pod}}, {10, 11, 12});
    chosen({.jobs = {"47"}}, {20, 21});
    chosen({.jobs = {"47.batch"}}, {21});
    chosen({.containers = {second}, .jobs = {"47.0"}}, {12, 20});
}

TEST_F(ChosenProcesses, NamesThatAreMalformedAmbiguousOrNotHere) {
    refused({.containers = {""}}, "--container ''");
    refused({.containers = {"web"}}, "no id of a container");
    refused({.containers = {"aaaa"}}, "2 containers begin so");
    refused({.containers = {std::string(64, 'f')}}, "no process here is in that container");
    refused({.pods = {"mypod"}}, "no id of a pod");
    refused({.pods = {"00"}}, "no process here is in that pod");
    refused({.jobs = {"x"}}, "no Slurm job");
    refused({.jobs = {"47."}}, "no Slurm job");
    refused({.jobs = {"47.3"}}, "no process here is of that Slurm job");
    refused({.jobs = {"4"}}, "no process here is of that Slurm job");
}

} // namespace
} // namespace collwire::inventory
