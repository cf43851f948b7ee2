// SPDX-License-Identifier: Apache-2.0
// Of a node with two jobs, one is left as if the other had not been recorded.
#include "correlate/model/jobs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collwire/gpu_records.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_error_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/socket_records.h"
#include "tests/support/model_of.h"

namespace collwire::model {
namespace {

using test::CaptureBuilder;
using test::make_record;
using test::NS;
using test::set_text;

constexpr std::uint64_t START_NS = 10 * NS;

cw_process process_of(std::uint32_t pid, std::string_view job) {
    auto process = make_record<cw_process>(CW_KIND_PROCESS, START_NS + 1);
    process.pid = pid;
    set_text(process.slurm_job, job);
    set_text(process.slurm_step, "0");
    return process;
}

// One record of each kind that is a process's, with addresses that both processes have.
void add_records(CaptureBuilder &builder, std::uint32_t pid, std::uint64_t time_ns) {
    const auto add = [&](auto record) {
        record.tgid = pid;
        builder.add(record);
    };
    auto comm = make_record<cw_nccl_comm>(CW_KIND_NCCL_COMM, time_ns);
    comm.comm = 0x10;
    comm.comm_hash = pid;
    comm.n_ranks = 2;
    comm.image_id = pid;
    add(comm);
    auto call = make_record<cw_nccl_call>(CW_KIND_NCCL_CALL, time_ns + 10);
    call.comm = 0x10;
    call.count = pid;
    add(call);
    auto task = make_record<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, time_ns + 11);
    task.comm = 0x10;
    task.shape = 0x20;
    task.count = pid;
    add(task);
    auto connection = make_record<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION, time_ns + 12);
    connection.comm = 0x10;
    connection.connection = 0x30;
    connection.peer = static_cast<std::int32_t>(pid);
    add(connection);
    auto steps = make_record<cw_nccl_steps>(CW_KIND_NCCL_STEPS, time_ns + 13);
    steps.connection = 0x30;
    steps.steps = pid;
    add(steps);
    auto progress = make_record<cw_nccl_progress>(CW_KIND_NCCL_PROGRESS, time_ns + 13);
    progress.connection = 0x30;
    add(progress);
    auto network = make_record<cw_nccl_network>(CW_KIND_NCCL_NETWORK, time_ns + 13);
    network.net = 0x40;
    add(network);
    auto process = make_record<cw_nccl_process>(CW_KIND_NCCL_PROCESS, time_ns);
    process.image_id = pid;
    add(process);
    process.header.time_ns = process.gone_ns = time_ns + 100;
    process.there_ns = time_ns + 90;
    add(process);
    auto param = make_record<cw_nccl_param>(CW_KIND_NCCL_PARAM, time_ns);
    param.value = pid;
    add(param);
    add(make_record<cw_nccl_result>(CW_KIND_NCCL_RESULT, time_ns + 14));
    add(make_record<cw_nccl_last_error>(CW_KIND_NCCL_LAST_ERROR, time_ns + 14));
    add(make_record<cw_nccl_warning>(CW_KIND_NCCL_WARNING, time_ns + 14));
    auto socket = make_record<cw_tcp_socket>(CW_KIND_TCP_SOCKET, time_ns + 15);
    socket.inode = pid;
    add(socket);
    add(make_record<cw_nccl_socket>(CW_KIND_NCCL_SOCKET, time_ns + 16));
    add(make_record<cw_gpu_trace>(CW_KIND_GPU_TRACE, time_ns + 17));
    auto qp = make_record<cw_qp_event>(CW_KIND_QP_CREATE, time_ns);
    qp.key.qpn = pid;
    qp.key.generation_ns = time_ns;
    qp.qp_type = 2;
    add(qp);
    auto error = make_record<cw_qp_event>(CW_KIND_QP_ERROR, time_ns + 18);
    error.key = qp.key;
    add(error);
    auto posts = make_record<cw_qp_post>(CW_KIND_QP_POST, time_ns + 19);
    posts.key.tgid = pid;
    posts.key.qpn = pid;
    builder.add(posts);
}

Model recorded(const std::vector<std::uint32_t> &pids) {
    CaptureBuilder builder;
    auto node = make_record<cw_node>(CW_KIND_NODE, START_NS);
    node.session_id = 1;
    node.flags = CW_NODE_FIRST_SEGMENT | CW_NODE_NCCL;
    node.realtime_ns = test::BOOT_REALTIME_NS + START_NS;
    set_text(node.hostname, "node0");
    builder.add(node);
    for (const std::uint32_t pid : pids) {
        builder.add(process_of(pid, pid < 200 ? "4711" : "4712"));
        add_records(builder, pid, START_NS + std::uint64_t{pid} * 1000);
    }
    builder.add_end(START_NS + 10 * NS);
    Ingest ingest;
    test::ingest_bytes(ingest, "0.cwc", builder.bytes());
    return ingest.take();
}

// What is there of each kind, with its process or what is known by it.
std::vector<std::string> listed(const Model &model) {
    std::vector<std::string> list;
    const auto add = [&](const char *what, std::uint64_t of) {
        list.push_back(std::string(what) + " " + std::to_string(of));
    };
    const nccl::Gathered &gathered = model.nccl.gathered;
    for (const auto &[key, index] : gathered.stream_at)
        add("stream", gathered.streams.at(index).calls[0].count);
    for (const auto &[key, index] : gathered.shape_of_hash)
        add("shape", gathered.shapes.at(index).tasks.at(0).count);
    for (const auto &[key, same] : gathered.connections_at)
        for (const Index index : same)
            add("connection", static_cast<std::uint64_t>(gathered.connections.at(index).head.peer));
    for (const auto &[key, samples] : gathered.steps)
        add("steps", samples.at(0).steps);
    for (const auto &[key, events] : gathered.progress)
        add("progress", key.tgid);
    for (const auto &[key, network] : gathered.networks)
        add("network", key.tgid);
    const auto add_all = [&](const char *what, const auto &items) {
        for (const auto &item : items)
            add(what, item.tgid);
    };
    add_all("streams", gathered.streams);
    add_all("shapes", gathered.shapes);
    add_all("process", gathered.processes);
    add_all("ended", gathered.ended_processes);
    add_all("result", gathered.results);
    add_all("last error", gathered.last_errors);
    add_all("warning", gathered.warnings);
    add_all("param", gathered.params);
    add_all("socket", gathered.sockets);
    add_all("closed socket", gathered.closed_sockets);
    add_all("gpu", gathered.gpu_processes);
    for (const nccl::GatheredConnection &connection : gathered.connections)
        add("connections", connection.head.tgid);
    for (const Process &process : model.processes)
        add("described", process.pid);
    for (const Qp &qp : model.qps)
        add("queue pair", qp.tgid);
    for (const Posts &posts : model.posts)
        add("posts", posts.key.tgid);
    for (const Event &event : model.events)
        add("event", model.qps.at(event.qp).tgid);
    std::ranges::sort(list);
    return list;
}

TEST(Jobs, TheOtherJobIsGoneAsIfItHadNotBeenRecorded) {
    for (const auto &[id, pids] :
         {std::pair<const char *, std::vector<std::uint32_t>>{"4711", {101, 102}},
          {"4712", {201, 202}},
          {"4712.0", {201, 202}}}) {
        Model model = recorded({201, 101, 202, 102});
        keep_job(model, id);
        const std::vector<std::string> kept = listed(model);
        EXPECT_EQ(kept, listed(recorded(pids))) << id;
        EXPECT_EQ(kept.size(), 2 * 22U) << "a kind of record is not in this test";
    }
}

TEST(Jobs, AreNamedAsRecordAndInspectNameThem) {
    const JobNames slurm{"4711", "3", "", ""};
    EXPECT_EQ(slurm.title(), "slurm 4711");
    EXPECT_TRUE(slurm.matches("4711"));
    EXPECT_TRUE(slurm.matches("4711.3"));
    EXPECT_FALSE(slurm.matches("4711.30"));
    EXPECT_FALSE(slurm.matches("471"));
    EXPECT_FALSE(slurm.matches(""));
    const JobNames pod{"", "", "0a1b2c3d-1111-2222-3333-444455556666", "0123456789abcdef0123"};
    EXPECT_EQ(pod.title(), "pod 0a1b2c3d-1111-2222-3333-444455556666");
    EXPECT_TRUE(pod.matches("0a1b2c3d"));
    EXPECT_TRUE(pod.matches("0123456789ab"));
    EXPECT_FALSE(pod.matches("0a1"));
    EXPECT_EQ((JobNames{"", "", "", "0123456789abcdef0123"}).title(), "container 0123456789ab");
    EXPECT_EQ(JobNames{}.title(), "");
    EXPECT_FALSE(JobNames{}.matches(""));
}

} // namespace
} // namespace collwire::model
