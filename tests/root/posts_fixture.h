// SPDX-License-Identifier: Apache-2.0
// A process that posts through a driver double, and a recorder of the posts source around it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collwire/loss_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/tables.h"
#include "collwire/verbs.h"
#include "tests/root/bpf_here.h"
#include "tests/root/posts_fake_verbs.h"
#include "userspace/loader/event_ring.h"
#include "userspace/sources/posts_source.h"

namespace collwire::test {

// What the child works with. Buffers hold no zeros, so that checksums see every byte.
struct ChildState {
    fake_device device{};
    fake_context context{};
    std::vector<std::unique_ptr<fake_qp>> qps;
    std::vector<unsigned char> data = std::vector<unsigned char>(1u << 20, 3);
    fake_extend_function *extend = nullptr;

    fake_qp &add_qp(std::uint32_t qpn, bool extended) {
        qps.push_back(std::make_unique<fake_qp>());
        fake_qp &qp = *qps.back();
        qp.context = &context;
        qp.qp_num = qpn;
        qp.qp_type = 2;
        qp.handle = 7;
        if (extended)
            extend(&qp);
        return qp;
    }
    void post(fake_qp &qp, fake_wr *first) {
        fake_wr *bad = nullptr;
        context.post_send(&qp, first, &bad);
    }
};

inline bool open_driver(ChildState &state, const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
        return false;
    std::memcpy(state.device.name, "fake0", 6);
    state.context.device = &state.device;
    fake_open_function *open = nullptr;
    void *symbol = dlsym(handle, "fake_open");
    std::memcpy(&open, &symbol, sizeof open);
    symbol = dlsym(handle, "fake_extend");
    std::memcpy(&state.extend, &symbol, sizeof state.extend);
    open(&state.context);
    return true;
}

// A forked process that runs functions of this program on command.
class Child {
public:
    using Work = std::uint64_t (*)(ChildState &, std::uint64_t);

    explicit Child(const char *library) {
        int down[2];
        int up[2];
        if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0)
            return;
        pid_ = fork();
        if (pid_ == 0) {
            close(down[1]);
            close(up[0]);
            serve(library, down[0], up[1]);
        }
        close(down[0]);
        close(up[1]);
        commands_ = down[1];
        answers_ = up[0];
    }
    Child(const Child &) = delete;
    ~Child() {
        if (pid_ > 0) {
            EXPECT_EQ(finish(), 0);
        }
        close(commands_);
        close(answers_);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }
    void start(Work work, std::uint64_t argument = 0) {
        const Command command{work, argument};
        EXPECT_EQ(write(commands_, &command, sizeof command), static_cast<ssize_t>(sizeof command));
    }
    std::uint64_t result() {
        std::uint64_t answer = 0;
        EXPECT_EQ(read(answers_, &answer, sizeof answer), static_cast<ssize_t>(sizeof answer));
        return answer;
    }
    std::uint64_t run(Work work, std::uint64_t argument = 0) {
        start(work, argument);
        return result();
    }
    // Ends it in order; its exit status, -1 if a signal ended it.
    int finish() {
        close(std::exchange(commands_, -1));
        return reap();
    }
    void kill_hard() {
        kill(pid_, SIGKILL);
        reap();
    }

private:
    struct Command {
        Work work;
        std::uint64_t argument;
    };
    int reap() {
        int status = 0;
        waitpid(std::exchange(pid_, -1), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    [[noreturn]] static void serve(const char *library, int in, int out) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ChildState state;
        if (!open_driver(state, library))
            _exit(3);
        Command command{};
        while (read(in, &command, sizeof command) == static_cast<ssize_t>(sizeof command)) {
            const std::uint64_t answer = command.work(state, command.argument);
            if (write(out, &answer, sizeof answer) != static_cast<ssize_t>(sizeof answer))
                _exit(4);
        }
        _exit(0);
    }
    pid_t pid_ = -1;
    int commands_ = -1;
    int answers_ = -1;
};

// Does what the recorder does with the source, and keeps what it appends.
class PostsRecorder : public source::RecordSink {
public:
    explicit PostsRecorder(sources::PostsOptions options,
                           loader::SharedMapOptions map_options = {}) {
        auto created = loader::SharedMaps::create(map_options);
        EXPECT_TRUE(created.ok()) << created.failure().message;
        maps = std::move(*created);
        auto opened = loader::EventRing::create(*maps, [this](const cw_header &record) {
            source->on_record(record);
            append(record);
        });
        EXPECT_TRUE(opened.ok()) << opened.failure().message;
        ring = std::move(*opened);
        source = std::make_unique<sources::PostsSource>(*maps, std::move(options));
        const auto prepared = source->prepare();
        EXPECT_TRUE(prepared.ok()) << prepared.failure().message;
        const auto attached = source->attach();
        EXPECT_TRUE(attached.ok()) << attached.failure().message;
    }
    ~PostsRecorder() override { source->detach(); }

    // A queue pair goes to RTS: what the kernel's probes would emit.
    void see_qp(pid_t pid, std::uint64_t qp_address, const char *device = "fake0") {
        emit(CW_KIND_QP_STATE, 1, pid, qp_address, device);
    }
    void emit(cw_kind kind, std::uint64_t time_ns, pid_t pid, std::uint64_t qp_address,
              const char *device = "fake0", std::uint32_t maker_tid = 0) {
        cw_qp_event event{};
        event.header = {sizeof event, static_cast<std::uint16_t>(kind), 0, time_ns};
        event.tgid = static_cast<std::uint32_t>(pid);
        event.key = {event.tgid, 0, qp_address}; // one for each address of a process
        event.user_handle = qp_address;
        event.tid = maker_tid;
        std::strncpy(event.device, device, sizeof event.device - 1);
        source->on_record(event.header);
    }
    void append(const cw_header &record) override {
        if (record.kind == CW_KIND_QP_POST) {
            cw_qp_post post;
            std::memcpy(&post, &record, sizeof post);
            posts[{post.key.tgid, post.key.qpn, post.key.epoch}] = post.counters;
            counted.emplace_back(post.header.time_ns, post.counters);
            ++n_post_records;
        } else if (record.kind == CW_KIND_VERBS_QP) {
            cw_verbs_qp tie;
            std::memcpy(&tie, &record, sizeof tie);
            ties.push_back(tie);
        } else if (record.kind == CW_KIND_POST_SLICE) {
            std::memcpy(&slices.emplace_back(), &record, sizeof(cw_post_slice));
        } else if (record.kind == CW_KIND_POST_OPERATIONS) {
            std::memcpy(&operations.emplace_back(), &record, sizeof(cw_post_operations));
        } else if (record.kind == CW_KIND_PROBE) {
            ++n_probe_records;
        }
    }
    void sample(bool everything = false) {
        EXPECT_TRUE(ring->consume().ok());
        source->sample(*this, everything);
    }
    cw_post_counters counters(pid_t pid, std::uint32_t qpn, std::uint32_t epoch = 0) {
        const auto found = posts.find({static_cast<std::uint32_t>(pid), qpn, epoch});
        return found == posts.end() ? cw_post_counters{} : found->second;
    }
    // Of post_send: those of the ibv_wr_* calls are there, too, whether a queue pair has them or
    // not.
    [[nodiscard]] std::vector<source::PlannedProbe> post_send_probes() const {
        auto probes = source->probe_list();
        std::erase_if(probes, [](const source::PlannedProbe &probe) {
            return probe.function != "post_send";
        });
        return probes;
    }
    std::uint64_t loss(cw_loss_class loss_class) {
        std::uint64_t sum = 0;
        for (const source::LossCount &count : maps->losses())
            if (count.loss_class == loss_class)
                sum += count.records;
        return sum;
    }

    std::unique_ptr<loader::SharedMaps> maps;
    std::unique_ptr<loader::EventRing> ring;
    std::unique_ptr<sources::PostsSource> source;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, cw_post_counters> posts;
    std::vector<std::pair<std::uint64_t, cw_post_counters>> counted; // every record, by its time
    std::vector<cw_verbs_qp> ties;
    std::vector<cw_post_slice> slices;
    std::vector<cw_post_operations> operations;
    std::uint64_t n_post_records = 0;
    std::uint64_t n_probe_records = 0;
};

} // namespace collwire::test
