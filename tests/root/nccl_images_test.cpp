// SPDX-License-Identifier: Apache-2.0
// Files with NCCL in them: which of them get probes, and for how long.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "tests/root/nccl_image_files.h"
#include "userspace/sources/nccl/libraries.h"

namespace collwire::sources {
namespace {

// On a slow machine one scan has no time for a second file.
NcclLibraries::Scanned scan_all(NcclLibraries &libraries, const std::vector<pid_t> &pids) {
    constexpr int MOST_TRIES = 20;
    NcclLibraries::Scanned scanned = libraries.scan(pids);
    for (int i = 0; i < MOST_TRIES && !scanned.unfinished.empty(); ++i) {
        NcclLibraries::Scanned more = libraries.scan(scanned.unfinished);
        scanned.inodes.merge(more.inodes);
        scanned.unfinished = std::move(more.unfinished);
    }
    return scanned;
}

// Two mounts of one library of a file system, one after the other at one place.
TEST_F(NcclLibraryFiles, AreTwoWithOnePathInTwoFileSystems) {
    write_nccl(file("libnccl.so.2"));
    const std::uint64_t inode = inode_of(file("libnccl.so.2"));
    Mapper one{file("libnccl.so.2")};
    NcclLibraries libraries{*maps_, {}};
    (void)scan_all(libraries, {one.pid()});
    ASSERT_EQ(libraries.all().size(), 1U);
    ASSERT_EQ(mount("tmpfs", folder_.c_str(), "tmpfs", 0, nullptr), 0);
    write_nccl(file("libnccl.so.2"));
    ASSERT_EQ(inode_of(file("libnccl.so.2")), inode);
    Mapper two{file("libnccl.so.2")};
    (void)scan_all(libraries, {two.pid()});
    EXPECT_EQ(libraries.all().size(), 2U);
}

std::size_t n_probed(const NcclLibraries &libraries) {
    return static_cast<std::size_t>(std::ranges::count_if(
        libraries.all(), [](const auto &library) { return !library->links.empty(); }));
}

// One file under two names and two device numbers, as two containers of one image show it.
class NcclLibrariesOfContainers : public NcclLibraryFiles {
protected:
    void SetUp() override {
        NcclLibraryFiles::SetUp();
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
        NcclLibraryFiles::TearDown();
    }
    static const process::Mapping *mapping_of_nccl(process::ProcessView &view) {
        EXPECT_TRUE(view.refresh());
        const auto found =
            std::ranges::find_if(view.mappings(), [](const process::Mapping &mapping) {
                return mapping.path.find("libnccl") != std::string::npos;
            });
        return found == view.mappings().end() ? nullptr : &*found;
    }
};

TEST_F(NcclLibrariesOfContainers, AreOneWithOneSetOfProbes) {
    Mapper one{file("one/merged/libnccl.so.2")};
    Mapper two{file("two/merged/libnccl.so.2")};
    for (const bool before : {true, false}) {
        NcclLibraries libraries{*maps_, {}};
        if (before)
            (void)scan_all(libraries, {one.pid(), two.pid()});
        libraries.attach();
        (void)scan_all(libraries, {one.pid()});
        (void)scan_all(libraries, {two.pid()});
        ASSERT_EQ(libraries.problems(), std::vector<std::string>{});
        EXPECT_EQ(libraries.all().size(), 1U);
        EXPECT_EQ(n_probed(libraries), 1U);
        for (const Mapper *each : {&one, &two}) {
            process::ProcessView view{each->pid()};
            const process::Mapping *mapping = mapping_of_nccl(view);
            ASSERT_NE(mapping, nullptr);
            EXPECT_NE(libraries.library_of(each->pid(), *mapping), nullptr);
        }
    }
}

// Before breakpoints are placed they cannot be recognised as one.
TEST_F(NcclLibrariesOfContainers, TakeOnePlace) {
    const Mapper one{file("one/merged/libnccl.so.2")};
    const Mapper two{file("two/merged/libnccl.so.2")};
    NcclLibraries libraries{*maps_, {}, NcclLibraries::MINUTE_NS, {}, 1};
    (void)scan_all(libraries, {one.pid(), two.pid()});
    libraries.attach();
    EXPECT_EQ(libraries.problems(), std::vector<std::string>{});
    EXPECT_EQ(libraries.all().size(), 1U);
    EXPECT_EQ(n_probed(libraries), 1U);
}

TEST_F(NcclLibraryFiles, TheFirstAreProbedIfThereAreTooMany) {
    for (const char *name : {"one", "two"})
        write_nccl(file(name));
    const Mapper one{file("one")};
    const Mapper two{file("two")};
    NcclLibraries libraries{*maps_, {}, NcclLibraries::MINUTE_NS, {}, 1};
    (void)scan_all(libraries, {one.pid(), two.pid()});
    ASSERT_EQ(libraries.all().size(), 2U);
    libraries.attach();
    ASSERT_EQ(libraries.all().size(), 1U);
    EXPECT_EQ(libraries.all().front()->path, file("one"));
    EXPECT_EQ(n_probed(libraries), 1U);
    EXPECT_EQ(libraries.problems().size(), 1U);
}

TEST_F(NcclLibraryFiles, UnusedOnesMakeRoomForOthers) {
    NcclLibraries::Inodes rearmed;
    NcclLibraries libraries{*maps_,
                            {},
                            NcclLibraries::MINUTE_NS,
                            [&rearmed](const auto &inodes) { rearmed = inodes; },
                            2};
    for (const char *name : {"one", "two", "three", "four"})
        write_nccl(file(name));
    libraries.attach();
    auto one = std::make_unique<Mapper>(file("one"));
    const Mapper two{file("two")};
    const Mapper three{file("three")};
    (void)scan_all(libraries, {one->pid(), two.pid()});
    ASSERT_EQ(n_probed(libraries), 2U);
    EXPECT_TRUE(scan_all(libraries, {three.pid()}).inodes.contains(inode_of(file("three"))));
    EXPECT_EQ(libraries.all().size(), 2U) << "both are used";
    ASSERT_EQ(libraries.problems().size(), 1U);
    EXPECT_TRUE(libraries.problems().front().starts_with("2 files with NCCL are probed"));
    EXPECT_TRUE(rearmed.empty());
    EXPECT_TRUE(libraries.take_retry_pids().empty());
    one.reset();
    const Mapper four{file("four")};
    (void)scan_all(libraries, {four.pid()});
    EXPECT_EQ(rearmed, NcclLibraries::Inodes{inode_of(file("one"))});
    EXPECT_EQ(n_probed(libraries), 2U);
    EXPECT_EQ(libraries.all().back()->path, file("four"));
    // The one that was refused may find room now.
    EXPECT_EQ(libraries.take_retry_pids(), std::set<pid_t>{three.pid()});
    EXPECT_EQ(libraries.release_unused(1), NcclLibraries::Inodes{inode_of(file("three"))});
    EXPECT_TRUE(libraries.release_unused(2).empty());
}

TEST_F(NcclLibraryFiles, TheLongestUnusedMakeRoomFirst) {
    for (const char *name : {"one", "two", "three"})
        write_nccl(file(name));
    NcclLibraries libraries{*maps_, {}, 10, {}, 2};
    libraries.attach();
    {
        const Mapper two{file("two")};
        {
            const Mapper one{file("one")};
            (void)scan_all(libraries, {two.pid(), one.pid()});
        }
        EXPECT_TRUE(libraries.release_unused(100).empty());
        ASSERT_EQ(n_probed(libraries), 2U);
    }
    const Mapper three{file("three")};
    (void)scan_all(libraries, {three.pid()});
    ASSERT_EQ(libraries.all().size(), 3U);
    EXPECT_EQ(libraries.all()[0]->path, file("two"));
    EXPECT_FALSE(libraries.all()[0]->links.empty());
    EXPECT_TRUE(libraries.all()[1]->links.empty());
    EXPECT_FALSE(libraries.all()[2]->links.empty());
}

// Refused before anything is loaded, with what to do, and promised as nothing.
TEST_F(NcclLibraryFiles, StrippedOnesAreRefused) {
    write_nccl(file("libnccl.so.2"), NCCL_DOUBLE_STRIPPED);
    Mapper mapper{file("libnccl.so.2")};
    NcclLibraries libraries{*maps_, {}};
    libraries.attach();
    (void)scan_all(libraries, {mapper.pid()});
    ASSERT_EQ(libraries.all().size(), 1U);
    const NcclLibrary &library = *libraries.all().front();
    EXPECT_TRUE(library.problem.starts_with("it was stripped: it has no symbols (.symtab) and no "
                                            "types (DWARF)"))
        << library.problem;
    EXPECT_NE(library.problem.find("Fix: "), std::string::npos);
    EXPECT_EQ(library.programs, nullptr);
    EXPECT_TRUE(library.probes.empty());
    for (const nccl::Capability &capability : library.layout.capabilities)
        EXPECT_EQ(capability.rung, nccl::Certainty::Process) << capability.name;
    ASSERT_EQ(libraries.problems().size(), 1U);
    (void)scan_all(libraries, {mapper.pid()});
    EXPECT_EQ(libraries.all().size(), 1U) << "it is known";
}

TEST_F(NcclLibraryFiles, DeletedOnesAreKnown) {
    write_nccl(file("libnccl.so.2"));
    Mapper mapper{file("libnccl.so.2")};
    NcclLibraries libraries{*maps_, {}};
    libraries.attach();
    (void)scan_all(libraries, {mapper.pid()});
    ASSERT_EQ(n_probed(libraries), 1U);
    std::filesystem::remove(file("libnccl.so.2"));
    process::ProcessView view{mapper.pid()};
    ASSERT_TRUE(view.refresh());
    bool is_known = false;
    for (const process::Mapping &mapping : view.mappings())
        is_known = is_known || libraries.library_of(mapper.pid(), mapping) != nullptr;
    EXPECT_TRUE(is_known);
    EXPECT_TRUE(libraries.release_unused(1).empty()) << "the code is what it was";
    EXPECT_EQ(n_probed(libraries), 1U);
}

// A probe holds the file system that its file is on.
TEST_F(NcclLibraryFiles, ThoseOfEndedContainersAreReleased) {
    const std::string container = file("container");
    ASSERT_EQ(mkdir(container.c_str(), 0700), 0);
    ASSERT_EQ(mount("tmpfs", container.c_str(), "tmpfs", 0, nullptr), 0);
    const std::string path = container + "/libnccl.so.2";
    write_nccl(path);
    NcclLibraries libraries{*maps_, {}, 10};
    libraries.attach();
    {
        Mapper first{path};
        (void)scan_all(libraries, {first.pid()});
        ASSERT_EQ(libraries.problems(), std::vector<std::string>{});
        ASSERT_EQ(n_probed(libraries), 1U);
        EXPECT_TRUE(libraries.release_unused(100).empty());
        EXPECT_TRUE(libraries.release_unused(200).empty());
        // The container's own name of it.
        libraries.all().front()->stays = false;
    }
    const std::set<std::uint64_t> rearmed{inode_of(path)};
    {
        Mapper second{path}; // without a record
        EXPECT_TRUE(libraries.release_unused(300).empty()) << "it was used a moment ago";
        EXPECT_EQ(libraries.release_unused(400), rearmed);
        EXPECT_TRUE(libraries.release_unused(500).empty());
        EXPECT_EQ(n_probed(libraries), 1U) << "the second process maps it";
    }
    EXPECT_TRUE(libraries.release_unused(600).empty());
    EXPECT_EQ(libraries.release_unused(700), rearmed);
    EXPECT_EQ(n_probed(libraries), 1U) << "no mapping was emitted yet";
    EXPECT_TRUE(libraries.release_unused(800).empty());
    EXPECT_EQ(n_probed(libraries), 0U);
    EXPECT_EQ(libraries.problems(), std::vector<std::string>{});
    Mapper third{path};
    (void)scan_all(libraries, {third.pid()});
    EXPECT_EQ(n_probed(libraries), 1U);
    EXPECT_EQ(libraries.all().size(), 2U) << "the record of the first stays";
    libraries.detach();
}

TEST_F(NcclLibraryFiles, ThoseOfThisMachineStayUntilTheyAreDeleted) {
    write_nccl(file("libnccl.so.2"));
    NcclLibraries libraries{*maps_, {}, 10};
    libraries.attach();
    {
        Mapper first{file("libnccl.so.2")};
        (void)scan_all(libraries, {first.pid()});
    }
    for (const std::uint64_t now : {100U, 200U, 300U})
        EXPECT_TRUE(libraries.release_unused(now).empty());
    EXPECT_EQ(n_probed(libraries), 1U);
    std::filesystem::remove(file("libnccl.so.2"));
    for (const std::uint64_t now : {400U, 500U, 600U})
        (void)libraries.release_unused(now);
    EXPECT_EQ(n_probed(libraries), 0U);
}

// cp over it, rsync --inplace --times: at the places of the probes there is other code now.
TEST_F(NcclLibraryFiles, LoseTheirProbesWhenTheyAreWrittenAgain) {
    const std::string path = file("libnccl.so.2");
    for (const bool keeps_time : {false, true}) {
        write_nccl(path);
        Mapper mapper{path};
        NcclLibraries libraries{*maps_, {}};
        libraries.attach();
        (void)scan_all(libraries, {mapper.pid()});
        ASSERT_EQ(n_probed(libraries), 1U);
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
        EXPECT_EQ(libraries.release_unused(1), std::set<std::uint64_t>{before.st_ino});
        EXPECT_EQ(n_probed(libraries), 0U);
        ASSERT_EQ(libraries.problems().size(), 1U);
        EXPECT_NE(libraries.problems().front().find("was written again"), std::string::npos);
        write_nccl(path);
        Mapper next{path};
        (void)scan_all(libraries, {next.pid()});
        EXPECT_EQ(n_probed(libraries), 1U) << "the next one is another file";
    }
}

// touch, and file systems that change the time or the size of a file.
TEST_F(NcclLibraryFiles, KeepTheirProbesIfOnlyTheTimeChanges) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    Mapper mapper{path};
    NcclLibraries libraries{*maps_, {}};
    libraries.attach();
    (void)scan_all(libraries, {mapper.pid()});
    ASSERT_EQ(n_probed(libraries), 1U);
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
        EXPECT_TRUE(libraries.release_unused(1).empty());
        EXPECT_EQ(n_probed(libraries), 1U);
        EXPECT_EQ(libraries.problems(), std::vector<std::string>{});
        const Mapper later{path};
        (void)scan_all(libraries, {later.pid()});
        EXPECT_EQ(libraries.all().size(), 1U) << "it is known by the new time, too";
        EXPECT_TRUE(libraries.all().front()->users.contains(later.pid()));
    }
}

// cp of a file over itself: too fast to be read while it is empty.
TEST_F(NcclLibraryFiles, LoseTheirProbesWithTheirBreakpoints) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    Mapper mapper{path};
    NcclLibraries libraries{*maps_, {}};
    libraries.attach();
    (void)scan_all(libraries, {mapper.pid()});
    ASSERT_EQ(n_probed(libraries), 1U);
    write_nccl(path);
    EXPECT_FALSE(libraries.release_unused(1).empty());
    EXPECT_EQ(n_probed(libraries), 0U);
    EXPECT_EQ(libraries.problems().size(), 1U);
}

TEST_F(NcclLibraryFiles, AreNotProbedIfTheyAreWrittenAgainBefore) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    Mapper mapper{path};
    NcclLibraries libraries{*maps_, {}};
    (void)scan_all(libraries, {mapper.pid()});
    ASSERT_EQ(libraries.all().size(), 1U);
    {
        std::fstream out{path, std::ios::binary | std::ios::in | std::ios::out};
        out << std::string(4096, 'x');
    }
    libraries.attach();
    EXPECT_EQ(n_probed(libraries), 0U);
    EXPECT_EQ(libraries.problems().size(), 1U);
}

} // namespace
} // namespace collwire::sources
