// SPDX-License-Identifier: Apache-2.0
// Files with NCCL in them: which of them get probes, and for how long. A double of its file that
// processes map and nobody calls.
#include "mappings.skel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/root/bpf_here.h"
#include "userspace/loader/event_ring.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/nccl/find_nccl.h"
#include "userspace/sources/mappings_source.h"
#include "userspace/sources/nccl_source.h"

namespace collwire {
namespace {

// NCCL's own is larger than the double.
void write_nccl(const std::string &path) {
    std::ifstream in{NCCL_DOUBLE, std::ios::binary};
    std::ofstream out{path, std::ios::binary};
    out << in.rdbuf() << std::string(nccl::LEAST_FILE_BYTES, '\0');
}

// A process that maps a file to execute it, until this goes.
class Mapper {
public:
    explicit Mapper(const std::string &path) {
        std::array<int, 2> ready{};
        if (pipe2(ready.data(), O_CLOEXEC) != 0)
            return;
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
            struct stat status {};
            const bool mapped = fd >= 0 && fstat(fd, &status) == 0 &&
                                mmap(nullptr, static_cast<std::size_t>(status.st_size),
                                     PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
            close(fd);
            if (!mapped || write(ready[1], "x", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        char byte = 0;
        close(ready[1]);
        EXPECT_EQ(read(ready[0], &byte, 1), 1) << path;
        close(ready[0]);
    }
    Mapper(const Mapper &) = delete;
    Mapper &operator=(const Mapper &) = delete;
    ~Mapper() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    pid_t pid_ = -1;
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

class NcclImageFiles : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = test::no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        if (!has_own_mounts())
            GTEST_SKIP() << "mounts made here would be seen elsewhere";
        auto created = SharedMaps::create({});
        ASSERT_TRUE(created) << created.failure().message;
        maps_ = std::move(*created);
        char folder[] = "/tmp/collwire-nccl-XXXXXX";
        ASSERT_NE(mkdtemp(folder), nullptr);
        folder_ = folder;
        ASSERT_EQ(mount("tmpfs", folder, "tmpfs", 0, nullptr), 0);
    }
    void TearDown() override {
        if (folder_.empty())
            return;
        while (umount2(folder_.c_str(), MNT_DETACH) == 0) {
        }
        rmdir(folder_.c_str());
    }
    [[nodiscard]] std::string file(const std::string &name) const { return folder_ + "/" + name; }
    [[nodiscard]] static std::uint64_t inode_of(const std::string &path) {
        struct stat status {};
        return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
    }

    std::unique_ptr<SharedMaps> maps_;
    std::string folder_;
};

// Two mounts of one image of a file system, one after the other at one place.
TEST_F(NcclImageFiles, OfOnePathAndNumberInTwoFileSystems) {
    write_nccl(file("libnccl.so.2"));
    const std::uint64_t inode = inode_of(file("libnccl.so.2"));
    Mapper one{file("libnccl.so.2")};
    NcclImages images{*maps_, {}};
    (void)images.look_at({one.pid()});
    ASSERT_EQ(images.all().size(), 1U);
    ASSERT_EQ(mount("tmpfs", folder_.c_str(), "tmpfs", 0, nullptr), 0);
    write_nccl(file("libnccl.so.2"));
    ASSERT_EQ(inode_of(file("libnccl.so.2")), inode);
    Mapper two{file("libnccl.so.2")};
    (void)images.look_at({two.pid()});
    EXPECT_EQ(images.all().size(), 2U);
}

std::size_t n_probed(const NcclImages &images) {
    return static_cast<std::size_t>(std::ranges::count_if(
        images.all(), [](const auto &image) { return !image->links.empty(); }));
}

// One file under two names and two device numbers, as two containers of one image show it.
class NcclImagesOfContainers : public NcclImageFiles {
protected:
    void SetUp() override {
        NcclImageFiles::SetUp();
        if (IsSkipped())
            return;
        mkdir(file("lower").c_str(), 0700);
        write_nccl(file("lower/libnccl.so.2"));
        for (const std::string name : {"one", "two"}) {
            for (const char *part : {"", "/upper", "/work", "/merged"})
                ASSERT_EQ(mkdir(file(name + part).c_str(), 0700), 0);
            const std::string options = "lowerdir=" + file("lower") +
                                        ",upperdir=" + file(name + "/upper") +
                                        ",workdir=" + file(name + "/work");
            if (mount("overlay", file(name + "/merged").c_str(), "overlay", 0, options.c_str()) !=
                0)
                GTEST_SKIP() << "no overlay mounts here";
        }
    }
    void TearDown() override {
        for (const char *name : {"one/merged", "two/merged"})
            umount2(file(name).c_str(), MNT_DETACH);
        NcclImageFiles::TearDown();
    }
    static const Mapping *mapping_of_nccl(ProcessView &view) {
        EXPECT_TRUE(view.refresh());
        const auto found = std::ranges::find_if(view.mappings(), [](const Mapping &mapping) {
            return mapping.path.find("libnccl") != std::string::npos;
        });
        return found == view.mappings().end() ? nullptr : &*found;
    }
};

TEST_F(NcclImagesOfContainers, AreOneWithOneSetOfProbes) {
    Mapper one{file("one/merged/libnccl.so.2")};
    Mapper two{file("two/merged/libnccl.so.2")};
    for (const bool before : {true, false}) {
        NcclImages images{*maps_, {}};
        if (before)
            (void)images.look_at({one.pid(), two.pid()});
        images.attach();
        (void)images.look_at({one.pid()});
        (void)images.look_at({two.pid()});
        ASSERT_EQ(images.problems(), std::vector<std::string>{});
        EXPECT_EQ(images.all().size(), 1U);
        EXPECT_EQ(n_probed(images), 1U);
        for (const Mapper *each : {&one, &two}) {
            ProcessView view{each->pid()};
            const Mapping *mapping = mapping_of_nccl(view);
            ASSERT_NE(mapping, nullptr);
            EXPECT_NE(images.image_of(each->pid(), *mapping), nullptr);
        }
    }
}

TEST_F(NcclImageFiles, ThatWereDeletedAreKnown) {
    write_nccl(file("libnccl.so.2"));
    Mapper mapper{file("libnccl.so.2")};
    NcclImages images{*maps_, {}};
    images.attach();
    (void)images.look_at({mapper.pid()});
    ASSERT_EQ(n_probed(images), 1U);
    std::filesystem::remove(file("libnccl.so.2"));
    ProcessView view{mapper.pid()};
    ASSERT_TRUE(view.refresh());
    bool is_known = false;
    for (const Mapping &mapping : view.mappings())
        is_known = is_known || images.image_of(mapper.pid(), mapping) != nullptr;
    EXPECT_TRUE(is_known);
    EXPECT_TRUE(images.give_up(1).empty()) << "the code is what it was";
    EXPECT_EQ(n_probed(images), 1U);
}

// A probe holds the file system that its file is on.
TEST_F(NcclImageFiles, OfEndedContainersAreLetGo) {
    const std::string container = file("container");
    ASSERT_EQ(mkdir(container.c_str(), 0700), 0);
    ASSERT_EQ(mount("tmpfs", container.c_str(), "tmpfs", 0, nullptr), 0);
    const std::string path = container + "/libnccl.so.2";
    write_nccl(path);
    NcclImages images{*maps_, {}, 10};
    images.attach();
    {
        Mapper first{path};
        (void)images.look_at({first.pid()});
        ASSERT_EQ(images.problems(), std::vector<std::string>{});
        ASSERT_EQ(n_probed(images), 1U);
        EXPECT_TRUE(images.give_up(100).empty());
        EXPECT_TRUE(images.give_up(200).empty());
        // The container's own name of it.
        images.all().front()->stays = false;
    }
    const std::set<std::uint64_t> told_again{inode_of(path)};
    {
        Mapper second{path}; // not told of
        EXPECT_TRUE(images.give_up(300).empty()) << "it was used a moment ago";
        EXPECT_EQ(images.give_up(400), told_again);
        EXPECT_TRUE(images.give_up(500).empty());
        EXPECT_EQ(n_probed(images), 1U) << "the second process maps it";
    }
    EXPECT_TRUE(images.give_up(600).empty());
    EXPECT_EQ(images.give_up(700), told_again);
    EXPECT_EQ(n_probed(images), 1U) << "nobody is told of yet";
    EXPECT_TRUE(images.give_up(800).empty());
    EXPECT_EQ(n_probed(images), 0U);
    EXPECT_EQ(images.problems(), std::vector<std::string>{});
    Mapper third{path};
    (void)images.look_at({third.pid()});
    EXPECT_EQ(n_probed(images), 1U);
    EXPECT_EQ(images.all().size(), 2U) << "the record of the first stays";
    images.detach();
}

TEST_F(NcclImageFiles, OfThisMachineStayUntilTheyAreDeleted) {
    write_nccl(file("libnccl.so.2"));
    NcclImages images{*maps_, {}, 10};
    images.attach();
    {
        Mapper first{file("libnccl.so.2")};
        (void)images.look_at({first.pid()});
    }
    for (const std::uint64_t now : {100U, 200U, 300U})
        EXPECT_TRUE(images.give_up(now).empty());
    EXPECT_EQ(n_probed(images), 1U);
    std::filesystem::remove(file("libnccl.so.2"));
    for (const std::uint64_t now : {400U, 500U, 600U})
        (void)images.give_up(now);
    EXPECT_EQ(n_probed(images), 0U);
}

// cp over it, rsync --inplace --times: at the places of the probes there is other code now.
TEST_F(NcclImageFiles, ThatAreWrittenAgainLoseTheirProbes) {
    const std::string path = file("libnccl.so.2");
    for (const bool keeps_time : {false, true}) {
        write_nccl(path);
        Mapper mapper{path};
        NcclImages images{*maps_, {}};
        images.attach();
        (void)images.look_at({mapper.pid()});
        ASSERT_EQ(n_probed(images), 1U);
        struct stat before {};
        ASSERT_EQ(stat(path.c_str(), &before), 0);
        {
            std::fstream out{path, std::ios::binary | std::ios::in | std::ios::out};
            out << std::string(4096, 'x');
        }
        if (keeps_time) {
            const std::array times{before.st_atim, before.st_mtim};
            ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times.data(), 0), 0);
        }
        EXPECT_EQ(images.give_up(1), std::set<std::uint64_t>{before.st_ino});
        EXPECT_EQ(n_probed(images), 0U);
        ASSERT_EQ(images.problems().size(), 1U);
        EXPECT_NE(images.problems().front().find("was written again"), std::string::npos);
        write_nccl(path);
        Mapper next{path};
        (void)images.look_at({next.pid()});
        EXPECT_EQ(n_probed(images), 1U) << "the next one is another file";
    }
}

// touch, and file systems that tell the time or the size of a file anew.
TEST_F(NcclImageFiles, OfTheSameCodeKeepTheirProbesAtAnotherTimeOfWriting) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    Mapper mapper{path};
    NcclImages images{*maps_, {}};
    images.attach();
    (void)images.look_at({mapper.pid()});
    ASSERT_EQ(n_probed(images), 1U);
    const auto touch = [&path] {
        const std::array<timespec, 2> times{{{1, 0}, {1, 0}}};
        return utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0;
    };
    const auto grow = [&path] {
        std::ofstream{path, std::ios::binary | std::ios::app} << '\0';
        return true;
    };
    for (const auto &change : {std::function<bool()>{touch}, std::function<bool()>{grow}}) {
        ASSERT_TRUE(change());
        EXPECT_TRUE(images.give_up(1).empty());
        EXPECT_EQ(n_probed(images), 1U);
        EXPECT_EQ(images.problems(), std::vector<std::string>{});
        const Mapper later{path};
        (void)images.look_at({later.pid()});
        EXPECT_EQ(images.all().size(), 1U) << "it is known by the new time, too";
        EXPECT_TRUE(images.all().front()->users.contains(later.pid()));
    }
}

// cp of a file over itself: no time is left to look at it while it is empty.
TEST_F(NcclImageFiles, OfTheSameCodeWithoutBreakpointsLoseTheirProbes) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    Mapper mapper{path};
    NcclImages images{*maps_, {}};
    images.attach();
    (void)images.look_at({mapper.pid()});
    ASSERT_EQ(n_probed(images), 1U);
    write_nccl(path);
    EXPECT_FALSE(images.give_up(1).empty());
    EXPECT_EQ(n_probed(images), 0U);
    EXPECT_EQ(images.problems().size(), 1U);
}

TEST_F(NcclImageFiles, ThatAreWrittenAgainBeforeTheyAreProbed) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    Mapper mapper{path};
    NcclImages images{*maps_, {}};
    (void)images.look_at({mapper.pid()});
    ASSERT_EQ(images.all().size(), 1U);
    {
        std::fstream out{path, std::ios::binary | std::ios::in | std::ios::out};
        out << std::string(4096, 'x');
    }
    images.attach();
    EXPECT_EQ(n_probed(images), 0U);
    EXPECT_EQ(images.problems().size(), 1U);
}

class Nothing : public RecordSink {
public:
    void append(const cw_header &) override {}
};

// A process that has ended is all that is known of a file.
TEST_F(NcclImageFiles, ThatNobodyLookedAtAreToBeToldOfAgain) {
    std::set<std::uint64_t> again;
    NcclOptions options;
    options.tell_again = [&](const auto &inodes) { again = inodes; };
    NcclSource source{*maps_, options};
    ASSERT_TRUE(source.prepare());
    Nothing sink;
    const auto tell = [&source](pid_t pid, std::uint64_t inode) {
        cw_file_mapped record = {};
        record.header = {sizeof(record), CW_KIND_FILE_MAPPED, CW_CPU_USERSPACE, 1};
        record.tgid = static_cast<std::uint32_t>(pid);
        record.inode = inode;
        source.on_record(record.header);
    };
    write_nccl(file("libnccl.so.2"));
    const std::uint64_t inode = inode_of(file("libnccl.so.2"));
    pid_t ended = 0;
    {
        Mapper first{file("libnccl.so.2")};
        ended = first.pid();
    }
    tell(ended, inode);
    source.sample(sink, false);
    EXPECT_EQ(again, std::set<std::uint64_t>{inode});
    again.clear();
    Mapper second{file("libnccl.so.2")};
    tell(second.pid(), inode);
    EXPECT_FALSE(source.plan().empty());
    source.sample(sink, false);
    EXPECT_TRUE(again.empty());
}

std::size_t n_placed(const NcclSource &source, const std::string &path) {
    const auto plan = source.plan();
    return static_cast<std::size_t>(std::ranges::count_if(plan, [&path](const auto &probe) {
        return probe.placed && probe.module_or_file.starts_with(path);
    }));
}

// A mapping is told of from the moment on that its file is told of again, and not before.
TEST_F(NcclImageFiles, ThatAreMappedWhileTheyAreLetGoKeepTheirProbes) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    const int kept = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const std::string still = "/proc/self/fd/" + std::to_string(kept);
    std::unique_ptr<Mapper> late;
    unsigned n_told = 0;
    NcclOptions options;
    options.spare_unused_ns = 1;
    options.tell_again = [&](const auto &) {
        if (n_told++ == 0)
            late = std::make_unique<Mapper>(still);
    };
    NcclSource source{*maps_, options};
    {
        const Mapper first{path};
        ASSERT_TRUE(source.prepare());
        ASSERT_TRUE(source.attach());
    }
    ASSERT_GT(n_placed(source, path), 0U);
    std::filesystem::remove(path);
    Nothing sink;
    for (int i = 0; i < 5; ++i)
        source.sample(sink, false);
    ASSERT_NE(late, nullptr);
    EXPECT_GT(n_placed(source, path), 0U);
    late.reset();
    for (int i = 0; i < 5; ++i)
        source.sample(sink, false);
    EXPECT_EQ(n_placed(source, path), 0U);
    source.detach();
    close(kept);
}

// collective -h, ldd, a first attempt that fails.
TEST_F(NcclImageFiles, AreMetAgainIfTheFirstProcessEndedBeforeTheLook) {
    std::unique_ptr<NcclSource> source;
    unsigned n_told = 0;
    auto ring = EventRing::create(*maps_, [&](const cw_header &header) {
        n_told += header.kind == CW_KIND_FILE_MAPPED ? 1 : 0;
        source->on_record(header);
    });
    ASSERT_TRUE(ring) << ring.failure().message;
    MappingsSource mappings{*maps_, nccl::LEAST_FILE_BYTES};
    NcclOptions options;
    options.tell_again = [&](const auto &inodes) { mappings.tell_again(inodes); };
    source = std::make_unique<NcclSource>(*maps_, options);
    ASSERT_TRUE(mappings.prepare());
    ASSERT_TRUE(mappings.attach());
    if (mappings.states().front().state != CW_SOURCE_ON)
        GTEST_SKIP() << mappings.states().front().reason;
    ASSERT_TRUE(source->prepare());
    ASSERT_TRUE(source->attach());
    const std::size_t n_before = source->states().size();
    Nothing sink;
    write_nccl(file("libnccl.so.2"));
    const auto plan_size = source->plan().size();
    { Mapper first{file("libnccl.so.2")}; }
    ASSERT_TRUE((*ring)->consume());
    EXPECT_GE(n_told, 1U);
    source->sample(sink, false);
    EXPECT_EQ(source->plan().size(), plan_size);
    Mapper second{file("libnccl.so.2")};
    ASSERT_TRUE((*ring)->consume());
    source->sample(sink, false);
    EXPECT_GT(source->plan().size(), plan_size);
    EXPECT_EQ(source->states().size(), n_before);
    source->detach();
    mappings.detach();
}

} // namespace
} // namespace collwire
