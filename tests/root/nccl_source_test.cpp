// SPDX-License-Identifier: Apache-2.0
// What the recorder reads of processes that had communicators before it was there: processes that
// were forked, that are not asked for, that have two copies of NCCL. Their NCCL is a test double.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <bpf/bpf.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/nccl_tables.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/recorder_records.h"
#include "tests/root/bpf_here.h"
#include "tests/root/nccl_state.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/sources/nccl/source.h"

namespace collwire::sources {
namespace {

constexpr std::uint64_t MAGIC = 0x0280028002800280;

// As tests/root/nccl_double/init.cc has it.
struct Comm {
    std::uint64_t magic = MAGIC, hash = 0;
    std::int32_t rank = 0, n_ranks = 2, local_rank = 0, local_ranks = 2, state = 0;
    void *proxy_state = nullptr;
};

struct Records {
    template <typename T> [[nodiscard]] std::vector<T> of(std::uint16_t kind, pid_t pid) const {
        std::vector<T> found;
        for (const auto &bytes : all) {
            T record{};
            std::memcpy(&record, bytes.data(), std::min(sizeof(record), bytes.size()));
            if (record.header.kind == kind && record.tgid == static_cast<std::uint32_t>(pid))
                found.push_back(record);
        }
        return found;
    }
    std::vector<std::vector<std::byte>> all;
};

class Sink : public source::RecordSink {
public:
    explicit Sink(Records &into) : into_(into) {}
    void append(const cw_header &record) override {
        const auto *begin = reinterpret_cast<const std::byte *>(&record);
        into_.all.emplace_back(begin, begin + record.length_bytes);
    }

private:
    Records &into_;
};

// A process that does something and then waits to be ended.
class Child {
public:
    explicit Child(const std::function<void()> &action) {
        int ready[2] = {-1, -1};
        if (pipe(ready) != 0)
            return;
        pid_ = fork();
        if (pid_ == 0) {
            action();
            const char byte = 1;
            if (write(ready[1], &byte, 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        close(ready[1]);
        char byte = 0;
        is_ready_ = read(ready[0], &byte, 1) == 1;
        close(ready[0]);
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;
    ~Child() { end(); }
    void end() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        pid_ = -1;
    }
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] bool is_ready() const { return is_ready_; }

private:
    pid_t pid_ = -1;
    bool is_ready_ = false;
};

// The communicators that this process has with the NCCL of a file.
void have_comms(const std::string &file, std::vector<Comm *> &comms) {
    void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    auto *table = static_cast<Comm ***>(dlsym(library, "ncclComms"));
    auto *count = static_cast<int *>(dlsym(library, "nNcclComms"));
    ASSERT_TRUE(table != nullptr && count != nullptr);
    *table = comms.data();
    *count = static_cast<int>(comms.size());
}

// Entries of the programs' tables of communicators that are of this process.
std::size_t entries_of(pid_t pid) {
    std::size_t n = 0;
    for (std::uint32_t id = 0; bpf_map_get_next_id(id, &id) == 0;) {
        const int fd = bpf_map_get_fd_by_id(id);
        if (fd < 0)
            continue;
        bpf_map_info info{};
        std::uint32_t size = sizeof(info);
        cw_nccl_comm_key key{}, *before = nullptr;
        if (bpf_obj_get_info_by_fd(fd, &info, &size) == 0 && std::string{info.name} == "comms" &&
            info.key_size == sizeof(key))
            while (bpf_map_get_next_key(fd, before, &key) == 0) {
                before = &key;
                n += key.tgid == static_cast<std::uint32_t>(pid) ? 1 : 0;
            }
        close(fd);
    }
    return n;
}

class NcclSources : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = test::no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        comm_.hash = 0xabc;
        other_.hash = 0xdef;
    }
    void start(NcclOptions options = {}) {
        auto maps = loader::SharedMaps::create({});
        ASSERT_TRUE(maps) << maps.failure().message;
        maps_ = std::move(maps).value();
        source_ = std::make_unique<NcclSource>(*maps_, std::move(options));
        ASSERT_TRUE(source_->prepare());
        ASSERT_TRUE(source_->attach());
        const auto sample = [this] { (void)sample_everything(); };
        ASSERT_EQ(test::problem_once_placed(*source_, NCCL_DOUBLE, sample), "");
    }
    [[nodiscard]] Records sample_everything() const {
        Records records;
        Sink sink(records);
        source_->sample(sink, true);
        return records;
    }
    static std::vector<cw_nccl_comm> comms_of(const Records &records, const Child &child) {
        return records.of<cw_nccl_comm>(CW_KIND_NCCL_COMM, child.pid());
    }

    Comm comm_, other_;
    std::vector<Comm *> comms_{&comm_}, others_{&other_};
    std::unique_ptr<loader::SharedMaps> maps_;
    std::unique_ptr<NcclSource> source_;
};

// A rank that ends its communicators on request.
int *rank_n_comms = nullptr;
int rank_answers = -1;
void end_comms(int) {
    *rank_n_comms = 0;
    (void)!write(rank_answers, "x", 1);
}

std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(pipe(ends.data()), 0);
    return ends;
}

// A rank, and a process that was forked from it, as PyTorch's loaders of data are.
class RankWithLoader {
public:
    explicit RankWithLoader(std::vector<Comm *> &comms)
        : rank([&] {
              have_comms(NCCL_DOUBLE, comms);
              const pid_t forked = fork();
              if (forked == 0)
                  for (;;)
                      pause();
              rank_n_comms = static_cast<int *>(dlsym(dlopen(NCCL_DOUBLE, RTLD_NOW), "nNcclComms"));
              rank_answers = answers_[1];
              (void)std::signal(SIGUSR1, end_comms);
              (void)!write(rank_answers, &forked, sizeof(forked));
          }) {
        EXPECT_TRUE(rank.is_ready());
        EXPECT_EQ(read(answers_[0], &loader_, sizeof(loader_)),
                  static_cast<ssize_t>(sizeof(loader_)));
    }
    RankWithLoader(const RankWithLoader &) = delete;
    RankWithLoader &operator=(const RankWithLoader &) = delete;
    ~RankWithLoader() {
        if (loader_ > 0)
            kill(loader_, SIGKILL);
        for (const int fd : answers_)
            close(fd);
    }
    // They are still in the memory of the loader.
    void end_comms_of_rank() const {
        char byte = 0;
        kill(rank.pid(), SIGUSR1);
        EXPECT_EQ(read(answers_[0], &byte, 1), 1);
    }
    [[nodiscard]] pid_t loader() const { return loader_; }

private:
    std::array<int, 2> answers_ = make_pipe();
    pid_t loader_ = -1;

public:
    const Child rank;
};

TEST_F(NcclSources, AForkedProcessIsNoRank) {
    const RankWithLoader job(comms_);
    start();
    const auto records = sample_everything();
    ASSERT_EQ(comms_of(records, job.rank).size(), 1U);
    EXPECT_EQ(comms_of(records, job.rank)[0].comm_hash, 0xabcU);
    EXPECT_TRUE(records.of<cw_nccl_comm>(CW_KIND_NCCL_COMM, job.loader()).empty());
    EXPECT_TRUE(records.of<cw_nccl_process>(CW_KIND_NCCL_PROCESS, job.loader()).empty());
}

// What was recorded of a communicator from its beginning to its end is not read again.
TEST_F(NcclSources, AForkedProcessIsNoRankWhenAnotherLibraryIsFound) {
    const RankWithLoader job(comms_);
    start();
    const auto before = comms_of(sample_everything(), job.rank);
    ASSERT_EQ(before.size(), 1U);
    job.end_comms_of_rank();
    cw_nccl_comm_end end{};
    end.header = {sizeof(end), CW_KIND_NCCL_COMM_END, 0, 1};
    end.tgid = before[0].tgid;
    end.comm = before[0].comm;
    source_->on_record(end.header);
    const std::string another = NCCL_DOUBLE ".another";
    std::filesystem::copy_file(NCCL_DOUBLE, another,
                               std::filesystem::copy_options::overwrite_existing);
    const Child other([&] { have_comms(another, others_); });
    ASSERT_TRUE(other.is_ready());
    struct stat status {};
    ASSERT_EQ(stat(another.c_str(), &status), 0);
    cw_file_mapped mapped{};
    mapped.header = {sizeof(mapped), CW_KIND_FILE_MAPPED, 0, 1};
    mapped.tgid = static_cast<std::uint32_t>(other.pid());
    mapped.inode = status.st_ino;
    source_->on_record(mapped.header);
    const auto records = sample_everything();
    EXPECT_EQ(comms_of(records, other).size(), 1U);
    EXPECT_TRUE(comms_of(records, job.rank).empty());
    EXPECT_TRUE(records.of<cw_nccl_comm>(CW_KIND_NCCL_COMM, job.loader()).empty());
    std::filesystem::remove(another);
}

TEST_F(NcclSources, TwoCopiesOfNcclInAProcess) {
    const std::string second = NCCL_DOUBLE ".second";
    std::filesystem::copy_file(NCCL_DOUBLE, second,
                               std::filesystem::copy_options::overwrite_existing);
    Child rank([&] {
        have_comms(NCCL_DOUBLE, comms_);
        have_comms(second, others_);
    });
    ASSERT_TRUE(rank.is_ready());
    start();
    for (int i = 0; i < 2; ++i) {
        const auto records = sample_everything();
        EXPECT_EQ(comms_of(records, rank).size(), 2U);
        const auto processes = records.of<cw_nccl_process>(CW_KIND_NCCL_PROCESS, rank.pid());
        ASSERT_EQ(processes.size(), 2U);
        EXPECT_NE(processes[0].image_id, processes[1].image_id);
        EXPECT_EQ(processes[0].start_boottime_ns, processes[1].start_boottime_ns);
    }
    const pid_t pid = rank.pid();
    EXPECT_EQ(entries_of(pid), 2U);
    rank.end();
    const auto records = sample_everything();
    EXPECT_TRUE(records.of<cw_nccl_comm>(CW_KIND_NCCL_COMM, pid).empty());
    EXPECT_EQ(entries_of(pid), 0U) << "there is no room for others in the end";
    std::filesystem::remove(second);
}

TEST_F(NcclSources, OtherProcessesAreNotRecorded) {
    const Child wanted([&] { have_comms(NCCL_DOUBLE, comms_); });
    const Child other([&] { have_comms(NCCL_DOUBLE, others_); });
    ASSERT_TRUE(wanted.is_ready() && other.is_ready());
    NcclOptions options;
    options.probes.pids = {static_cast<std::uint32_t>(wanted.pid())};
    start(std::move(options));
    const auto records = sample_everything();
    EXPECT_EQ(comms_of(records, wanted).size(), 1U);
    EXPECT_TRUE(comms_of(records, other).empty());
    EXPECT_TRUE(records.of<cw_nccl_process>(CW_KIND_NCCL_PROCESS, other.pid()).empty());
}

// A segment begins with everything that its records refer to, but what launches looked like in
// earlier ones would fill it.
TEST_F(NcclSources, NewSegmentHasNoShapesOfEarlierLaunches) {
    const auto tgid = static_cast<std::uint32_t>(getpid());
    start();
    cw_nccl_comm comm{};
    comm.header = {sizeof(comm), CW_KIND_NCCL_COMM, 0, 1};
    comm.tgid = tgid;
    comm.comm = 8;
    source_->on_record(comm.header);
    cw_nccl_launch launch{};
    launch.header = {sizeof(launch), CW_KIND_NCCL_LAUNCH, 0, 1};
    launch.tgid = tgid;
    launch.comm = comm.comm;
    cw_nccl_shape_ops ops{};
    ops.header = {sizeof(ops), CW_KIND_NCCL_SHAPE_OPS, 0, 1};
    ops.tgid = tgid;
    ops.comm = comm.comm;
    for (std::uint64_t shape = 1; shape <= 100; ++shape) {
        launch.shape = ops.shape = shape;
        source_->on_record(launch.header);
        source_->on_record(ops.header);
    }
    const auto shapes = [&] {
        std::vector<std::uint64_t> found;
        for (const auto &each :
             sample_everything().of<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS, getpid()))
            found.push_back(each.shape);
        return found;
    };
    EXPECT_TRUE(shapes().empty());
    launch.shape = 42;
    source_->on_record(launch.header);
    EXPECT_EQ(shapes(), std::vector<std::uint64_t>{42});
    EXPECT_TRUE(source_->losses().empty());
}

} // namespace
} // namespace collwire::sources
