// SPDX-License-Identifier: Apache-2.0
#include "collwire/nccl_comm_records.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/recorder_records.h"
// The NCCL libraries that NcclSource finds through mappings, and the mappings that it rearms.
#include "mappings.skel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/root/nccl_image_files.h"
#include "userspace/loader/event_ring.h"
#include "userspace/sources/mappings_source.h"
#include "userspace/sources/nccl/source.h"

namespace collwire::sources {
namespace {

class MappedNcclLibraries : public NcclLibraryFiles {};

class Nothing : public source::RecordSink {
public:
    void append(const cw_header &) override {}
};

// As the kernel's probe emits it: some kernels refuse that probe.
void emit_mapping(NcclSource &source, pid_t pid, std::uint64_t inode) {
    cw_file_mapped record = {};
    record.header = {sizeof(record), CW_KIND_FILE_MAPPED, CW_CPU_USERSPACE, 1};
    record.tgid = static_cast<std::uint32_t>(pid);
    record.inode = inode;
    source.on_record(record.header);
}

// The only process that mapped the file has exited.
TEST_F(MappedNcclLibraries, UnclassifiedOnesAreRearmed) {
    std::set<std::uint64_t> again;
    NcclOptions options;
    options.rearm_mappings = [&](const auto &inodes) { again = inodes; };
    NcclSource source{*maps_, options};
    ASSERT_TRUE(source.prepare());
    Nothing sink;
    write_nccl(file("libnccl.so.2"));
    const std::uint64_t inode = inode_of(file("libnccl.so.2"));
    pid_t ended = 0;
    {
        Mapper first{file("libnccl.so.2")};
        ended = first.pid();
    }
    emit_mapping(source, ended, inode);
    source.sample(sink, false);
    EXPECT_EQ(again, std::set<std::uint64_t>{inode});
    again.clear();
    Mapper second{file("libnccl.so.2")};
    emit_mapping(source, second.pid(), inode);
    EXPECT_FALSE(source.probe_list().empty());
    source.sample(sink, false);
    EXPECT_TRUE(again.empty());
}

std::size_t n_placed(const NcclSource &source, const std::string &path) {
    const auto probes = source.probe_list();
    return static_cast<std::size_t>(std::ranges::count_if(probes, [&path](const auto &probe) {
        return probe.placed && probe.module_or_file.starts_with(path);
    }));
}

// The records of the libraries in this folder.
class LibrariesIn : public source::RecordSink {
public:
    explicit LibrariesIn(std::string folder) : folder_(std::move(folder)) {}
    void append(const cw_header &header) override {
        cw_nccl_image record{};
        std::memcpy(&record, &header, std::min<std::size_t>(sizeof(record), header.length_bytes));
        if (header.kind == CW_KIND_NCCL_IMAGE && std::string_view{record.path}.starts_with(folder_))
            all.push_back(record);
    }
    std::vector<cw_nccl_image> all;

private:
    std::string folder_;
};

std::vector<cw_nccl_image> next_segment(NcclSource &source, const std::string &folder) {
    LibrariesIn libraries{folder};
    source.sample(libraries, true);
    return libraries.all;
}

void sample_often(NcclSource &source) {
    Nothing sink;
    for (int i = 0; i < 6; ++i)
        source.sample(sink, false);
}

bool has_probes_of(const NcclSource &source, const std::string &folder) {
    return std::ranges::any_of(source.probe_list(), [&folder](const auto &probe) {
        return probe.module_or_file.starts_with(folder);
    });
}

// A job of containers every few minutes, for months.
TEST_F(MappedNcclLibraries, ReleasedOnesAreNotInLaterSegments) {
    NcclOptions options;
    options.spare_unused_ns = 1;
    NcclSource source{*maps_, options};
    ASSERT_TRUE(source.prepare());
    ASSERT_TRUE(source.attach());
    for (const bool is_traced : {true, false}) {
        const std::string path = file(is_traced ? "libnccl.so.2" : "libnccl.so.3");
        write_nccl(path);
        if (!is_traced)
            rename_in(path, "ncclEnqueueCheck", "ncclEnqueueOther");
        std::vector<cw_nccl_image> emitted;
        {
            const Mapper job{path};
            emit_mapping(source, job.pid(), inode_of(path));
            sample_often(source);
            emitted = next_segment(source, folder_);
            ASSERT_EQ(emitted.size(), 1U);
            EXPECT_EQ(emitted[0].reason[0] == '\0', is_traced) << emitted[0].reason;
            std::filesystem::remove(path);
        }
        sample_often(source);
        EXPECT_TRUE(next_segment(source, folder_).empty());
        EXPECT_FALSE(has_probes_of(source, folder_));
        const auto state = source.states().front();
        EXPECT_EQ(state.reason.find(path) != std::string::npos, !is_traced) << state.reason;
    }
    source.detach();
}

// A later segment has the communicators of running processes, and their libraries.
TEST_F(MappedNcclLibraries, ReleasedOnesStayInSegmentsWhileTheirProcessesRun) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    NcclSource source{*maps_, {}};
    {
        const Mapper job{path};
        ASSERT_TRUE(source.prepare());
        ASSERT_TRUE(source.attach());
        const auto emitted = next_segment(source, folder_);
        ASSERT_EQ(emitted.size(), 1U);
        cw_nccl_comm comm = {};
        comm.header = {sizeof(comm), CW_KIND_NCCL_COMM, 0, 1};
        comm.tgid = static_cast<std::uint32_t>(job.pid());
        comm.image_id = emitted[0].image_id;
        comm.comm = 8;
        source.on_record(comm.header);
        std::ofstream{path, std::ios::binary | std::ios::in} << std::string(4096, 'x');
        sample_often(source);
        ASSERT_EQ(n_placed(source, path), 0U);
        EXPECT_EQ(next_segment(source, folder_).size(), 1U);
    }
    sample_often(source);
    EXPECT_TRUE(next_segment(source, folder_).empty());
    EXPECT_NE(source.states().front().reason.find("written again"), std::string::npos);
    source.detach();
}

// A mapping is emitted after its file was rearmed, and not before.
TEST_F(MappedNcclLibraries, KeepTheirProbesIfMappedDuringRelease) {
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    const int kept = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const std::string still = "/proc/self/fd/" + std::to_string(kept);
    std::unique_ptr<Mapper> late;
    unsigned n_emitted = 0;
    NcclOptions options;
    options.spare_unused_ns = 1;
    options.rearm_mappings = [&](const auto &) {
        if (n_emitted++ == 0)
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

TEST_F(MappedNcclLibraries, ThoseOfOtherProcessesGetNoProbes) {
    for (const char *name : {"wanted.so", "other.so", "later.so"})
        write_nccl(file(name));
    const Mapper wanted{file("wanted.so")};
    const Mapper other{file("other.so")};
    NcclOptions options;
    options.probes.pids = {static_cast<std::uint32_t>(wanted.pid())};
    options.has_mapping_records = [] { return false; };
    NcclSource source{*maps_, options};
    ASSERT_TRUE(source.prepare());
    ASSERT_TRUE(source.attach());
    const Mapper later{file("later.so")};
    sample_often(source);
    EXPECT_GT(n_placed(source, file("wanted.so")), 0U);
    EXPECT_FALSE(has_probes_of(source, file("other.so")));
    EXPECT_FALSE(has_probes_of(source, file("later.so")));
    source.detach();
}

// The recorded process may be the second to map a file.
TEST_F(MappedNcclLibraries, MappingsOfOtherProcessesAreNotEmitted) {
    std::vector<std::uint32_t> emitted;
    auto ring = loader::EventRing::create(*maps_, [&](const cw_header &header) {
        if (header.kind != CW_KIND_FILE_MAPPED)
            return;
        cw_file_mapped record = {};
        std::memcpy(&record, &header, std::min<std::size_t>(sizeof(record), header.length_bytes));
        emitted.push_back(record.tgid);
    });
    ASSERT_TRUE(ring) << ring.failure().message;
    const auto self = static_cast<std::uint32_t>(getpid());
    ASSERT_TRUE(maps_->want_tgid(self));
    MappingsSource mappings{*maps_, nccl::LEAST_FILE_BYTES, true};
    ASSERT_TRUE(mappings.prepare());
    ASSERT_TRUE(mappings.attach());
    if (mappings.states().front().state != CW_SOURCE_ON)
        GTEST_SKIP() << mappings.states().front().reason;
    const std::string path = file("libnccl.so.2");
    write_nccl(path);
    const Mapper other{path};
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void *own = mmap(nullptr, nccl::LEAST_FILE_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    close(fd);
    ASSERT_NE(own, MAP_FAILED);
    munmap(own, nccl::LEAST_FILE_BYTES);
    ASSERT_TRUE((*ring)->consume());
    EXPECT_EQ(emitted, std::vector{self});
    mappings.detach();
}

// collective -h, ldd, a first attempt that fails.
TEST_F(MappedNcclLibraries, AreFoundInTheNextProcessIfTheFirstExited) {
    std::unique_ptr<NcclSource> source;
    unsigned n_emitted = 0;
    auto ring = loader::EventRing::create(*maps_, [&](const cw_header &header) {
        n_emitted += header.kind == CW_KIND_FILE_MAPPED ? 1 : 0;
        source->on_record(header);
    });
    ASSERT_TRUE(ring) << ring.failure().message;
    MappingsSource mappings{*maps_, nccl::LEAST_FILE_BYTES, false};
    NcclOptions options;
    options.rearm_mappings = [&](const auto &inodes) { mappings.emit_again(inodes); };
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
    const auto n_probes = source->probe_list().size();
    { Mapper first{file("libnccl.so.2")}; }
    ASSERT_TRUE((*ring)->consume());
    EXPECT_GE(n_emitted, 1U);
    source->sample(sink, false);
    EXPECT_EQ(source->probe_list().size(), n_probes);
    Mapper second{file("libnccl.so.2")};
    ASSERT_TRUE((*ring)->consume());
    source->sample(sink, false);
    EXPECT_GT(source->probe_list().size(), n_probes);
    EXPECT_EQ(source->states().size(), n_before);
    source->detach();
    mappings.detach();
}

} // namespace
} // namespace collwire::sources
