// SPDX-License-Identifier: Apache-2.0
// Libraries of containers: files under several names, file systems that come and go.
#include "tests/root/posts_chains.h"

#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

namespace collwire::test {
namespace {

class PostsContainers : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
    }
};

// From here on mounts are seen by this process and its children alone and go with them. In a
// chroot the root is no mount that could be made private; it may be so already.
bool has_own_mounts() {
    if (unshare(CLONE_NEWNS) != 0)
        return false;
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0)
        return true;
    std::ifstream file("/proc/self/mountinfo");
    const std::string mounts{std::istreambuf_iterator<char>{file}, {}};
    return !mounts.empty() && mounts.find(" shared:") == std::string::npos;
}

// One file under two names and two device numbers, as two containers of one image show it.
TEST_F(PostsContainers, OneFileInTwoContainersIsCountedOnce) {
    if (!has_own_mounts())
        GTEST_SKIP() << "mounts made here would be seen elsewhere";
    char folder[] = "/tmp/collwire-posts-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string base = folder;
    const auto overlay = [&](const std::string &name) {
        for (const char *part : {"", "/upper", "/work", "/merged"})
            EXPECT_EQ(mkdir((base + "/" + name + part).c_str(), 0700), 0);
        const std::string lower = std::string{FAKE_PROVIDER_FOLDER};
        const std::string where = base + "/" + name;
        return mount("overlay", (where + "/merged").c_str(), "overlay", 0,
                     ("lowerdir=" + lower + ",upperdir=" + where + "/upper,workdir=" + where +
                      "/work")
                         .c_str()) == 0;
    };
    const bool mounted = mount("tmpfs", folder, "tmpfs", 0, nullptr) == 0;
    const bool both = mounted && overlay("one") && overlay("two");
    if (both) {
        const std::string name =
            std::string{FAKE_PROVIDER_2}.substr(std::string{FAKE_PROVIDER_2}.rfind('/'));
        Child one{(base + "/one/merged" + name).c_str()};
        Child two{(base + "/two/merged" + name).c_str()};
        PostsRecorder recorder{sources::PostsOptions{}};
        recorder.see_qp(one.pid(), one.run(make_qp, 1));
        recorder.see_qp(two.pid(), two.run(make_qp, 2));
        one.run(post_all_chains, 0);
        two.run(post_all_chains, 0);
        recorder.sample();
        expect_equal(recorder.counters(one.pid(), 1), expected(CHAINS));
        expect_equal(recorder.counters(two.pid(), 2), expected(CHAINS));
        EXPECT_EQ(recorder.post_send_probes().size(), 1u);
    }
    for (const char *name : {"/one/merged", "/two/merged", ""})
        umount2((base + name).c_str(), MNT_DETACH);
    rmdir(folder);
    if (!both)
        GTEST_SKIP() << "no overlay mounts here";
}

std::uint64_t open_device(ChildState &, std::uint64_t) {
    return open("/dev/infiniband/uverbs0", O_CREAT | O_RDWR, 0600) >= 0 ? 1 : 0;
}

// A probe holds the file system that its file is on.
TEST_F(PostsContainers, LibraryOfAnEndedContainerIsLetGo) {
    if (!has_own_mounts())
        GTEST_SKIP() << "mounts made here would be seen elsewhere";
    char folder[] = "/tmp/collwire-posts-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    ASSERT_EQ(mount("tmpfs", folder, "tmpfs", 0, nullptr), 0);
    const std::string library = std::string(folder) + "/libfake2-rdmav34.so";
    std::filesystem::copy_file(FAKE_PROVIDER_2, library);
    // What a process that uses RDMA holds open.
    ASSERT_EQ(mount("tmpfs", "/dev", "tmpfs", 0, nullptr), 0);
    ASSERT_EQ(mkdir("/dev/infiniband", 0700), 0);
    sources::PostsOptions options;
    options.spare_unused_ns = 0;
    PostsRecorder recorder{options};
    {
        Child second{library.c_str()}; // not met: it has made no queue pair yet
        ASSERT_NE(second.run(make_qp, 2), 0u);
        ASSERT_NE(second.run(open_device, 0), 0u);
        {
            Child first{library.c_str()};
            recorder.see_qp(first.pid(), first.run(make_qp, 1));
            first.run(post_all_chains, 0);
            recorder.sample();
            expect_equal(recorder.counters(first.pid(), 1), expected(CHAINS));
        }
        recorder.sample();
        recorder.sample();
        EXPECT_EQ(recorder.post_send_probes().size(), 1u) << "the second process still maps it";
        second.run(post_all_chains, 0);
        recorder.sample();
        expect_equal(recorder.counters(second.pid(), 2), expected(CHAINS));
        EXPECT_NE(umount2(folder, 0), 0);
    }
    recorder.sample(); // found unused
    EXPECT_EQ(recorder.post_send_probes().size(), 1u) << "its next user may come soon";
    {
        Child third{library.c_str()}; // comes and goes between two looks
        recorder.see_qp(third.pid(), third.run(make_qp, 3));
    }
    recorder.sample();
    EXPECT_EQ(recorder.post_send_probes().size(), 1u) << "it was used a moment ago";
    recorder.sample();
    EXPECT_TRUE(recorder.post_send_probes().empty());
    // A worker of the kernel lets go of the file.
    int failed = umount2(folder, 0);
    for (int i = 0; i < 6000 && failed != 0 && errno == EBUSY; ++i) {
        usleep(10'000);
        failed = umount2(folder, 0);
    }
    EXPECT_EQ(failed, 0) << std::strerror(errno);
    umount2(folder, MNT_DETACH);
    rmdir(folder);
}

} // namespace
} // namespace collwire::test
