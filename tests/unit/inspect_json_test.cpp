// SPDX-License-Identifier: Apache-2.0
// What inspect writes is what diagnose reads.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "correlate/inspect/json.h"
#include "correlate/inspect/text.h"
#include "tests/support/inspection_builder.h"

namespace collwire::test {
namespace {

using inspect::Progress;
using inspect::Slot;

inspect::Inspection full() {
    auto send = send_to(1, 2, Progress{16, 0, 12, 8}, Slot::Filled);
    send.has_credit = false;
    send.nbytes = 4096;
    send.loop_size = -1;
    inspect::Endpoint qp;
    qp.number = 17;
    qp.role = "data";
    qp.device = "mlx5_0";
    qp.port = 1;
    qp.state = "RTS";
    qp.remote_qpn = 18;
    send.endpoints = {qp};
    auto receive = receive_from(1, 0, Progress{16, 8, 8, 8}, 8);
    inspect::Endpoint socket;
    socket.is_socket = true;
    socket.number = 33;
    socket.inode = 4711;
    socket.role = "control";
    socket.state = "ESTABLISHED";
    socket.local = "10.0.0.1:4000";
    socket.remote = "[fe80::1]:5000";
    socket.unread_bytes = 0;
    socket.unsent_bytes = 1;
    socket.unacked_segments = 2;
    socket.timeouts = 1;
    socket.acked_bytes = 3;
    socket.received_bytes = 4;
    receive.endpoints = {socket};
    auto inspection = one_rank(1, 4, 17, {all_reduce({send, receive})});
    auto &process = inspection.processes[0];
    process.communicators[0].rings = {{0, 0, 2}};
    process.communicators[0].trees = {{0, -1, {2, 3, -1}}};
    process.communicators[0].is_aborted = false;
    process.proxies[0].idle = {{true, 1, 3, 0, 1, 77}};
    process.throttling = inspect::Throttling{"/slurm/job_1", 3, 20'000'000};
    process.libraries = {{"/usr/lib/libnccl.so.2", "2.28.9", "6a77", "DWARF", ""}};
    process.networks = {{"IBext_v8", "/opt/hpcx/libnccl-net.so", 12}};
    process.namespace_pid = 7;
    process.slurm_job = "47";
    process.slurm_step = "0";
    process.pod_uid = "8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d";
    process.container_id = "0123456789ab" + std::string(52, 'c');
    process.last_error = "NET/IB: Got completion \xff with status=12";
    process.threads[0].run_ns = 5;
    process.threads[0].stack = {"futex_wait", "do_futex"};
    inspection.ports = {{"mlx5_0", 1, "eth0", "ACTIVE", 10, 20, {{"local_ack_timeout_err", 2}}}};
    return inspection;
}

TEST(InspectJson, ReadsWhatItWrites) {
    const auto inspection = full();
    const std::string json = inspect::render_json(inspection);
    const auto read = inspect::parse_inspection(json);
    ASSERT_TRUE(read) << read.failure().message;
    EXPECT_EQ(inspect::render_json(*read), json);
    const auto &transfers = read->processes[0].proxies[0].operations[0].transfers;
    EXPECT_EQ(transfers[0].wait, inspect::Wait::Network);
    EXPECT_EQ(transfers[0].has_credit, false);
    EXPECT_EQ(transfers[0].loop_size, -1);
    EXPECT_EQ(transfers[1].endpoints[0].retransmitted_bytes, std::nullopt);
    EXPECT_EQ(transfers[1].endpoints[0].unread_bytes, 0U);
}

// Files from before they were reported.
TEST(InspectJson, NetworksMayBeMissing) {
    std::string json = inspect::render_json(full());
    const std::size_t at = json.find("\"networks\"");
    ASSERT_NE(at, std::string::npos);
    json.replace(at, std::string("\"networks\"").size(), "\"others\"");
    const auto read = inspect::parse_inspection(json);
    ASSERT_TRUE(read) << read.failure().message;
    EXPECT_TRUE(read->processes[0].networks.empty());
}

TEST(InspectJson, RejectsOtherJson) {
    for (const char *text : {"", "{}", "[]", "null", "{\"schema\":\"collwire-inspect\"}",
                             "{\"schema\":\"collwire-inspect\",\"schema_version\":99}"}) {
        const auto read = inspect::parse_inspection(text);
        ASSERT_FALSE(read) << text;
        EXPECT_EQ(read.failure().kind, ErrorKind::BadInput);
    }
}

TEST(InspectJson, RejectsNumbersThatDoNotFit) {
    const std::string json = inspect::render_json(full());
    for (const auto &[path, value] : std::initializer_list<std::pair<const char *, nlohmann::json>>{
             {"/processes/0/pid", -1},
             {"/processes/0/pid", 4294967296},
             {"/processes/0/pid", 1.5},
             {"/processes/0/pid", "1"},
             {"/processes/0/communicators/0/rank", 2147483648},
             {"/processes/0/communicators/0/hash", "17"},
             {"/processes/0/communicators/0/hash", "0x"},
             {"/processes/0/proxies/0/operations/0/transfers", 5},
             {"/processes/0/proxies/0/operations/0/transfers/0/last", nullptr}}) {
        auto document = nlohmann::json::parse(json);
        document[nlohmann::json::json_pointer(path)] = value;
        EXPECT_FALSE(inspect::parse_inspection(document.dump())) << path << " " << value;
    }
}

TEST(InspectText, NamesTheAwaitedRank) {
    const std::string text = inspect::render_text(full(), {200, 0});
    EXPECT_NE(text.find("=> dp (rank 1): waits for rank 2: data sent to it is not acknowledged "
                        "(channel 0)"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("mlx5_0/17 RTS"), std::string::npos) << text;
    EXPECT_NE(text.find("local_ack_timeout_err +2"), std::string::npos) << text;
    EXPECT_NE(text.find("throttled: cgroup /slurm/job_1 for 20.0 ms"), std::string::npos) << text;
}

TEST(InspectText, NamesContainerPodJobAndBothPids) {
    const std::string text = inspect::render_text(full(), {200, 0});
    EXPECT_NE(text.find(" (7 inside)"), std::string::npos) << text;
    EXPECT_NE(text.find("(Slurm job 47.0, pod 8f2f3c1a-0c61-4f6e-9c56-0d1f6a1b2c3d, container "
                        "0123456789ab)"),
              std::string::npos)
        << text;
}

TEST(InspectJson, FilesOfEarlierVersionsHaveNoContainer) {
    auto document = nlohmann::json::parse(inspect::render_json(full()));
    for (const char *name : {"namespace_pid", "slurm_step", "container_id"})
        document["processes"][0].erase(name);
    const auto read = inspect::parse_inspection(document.dump());
    ASSERT_TRUE(read) << read.failure().message;
    EXPECT_EQ(read->processes.at(0).slurm_job, "47");
    EXPECT_EQ(read->processes.at(0).container_id, "");
    EXPECT_EQ(read->processes.at(0).namespace_pid, 0U);
}

} // namespace
} // namespace collwire::test
