// SPDX-License-Identifier: Apache-2.0
// Creates, uses and destroys RC queue pairs as fast as it can or at a rate. Each is connected to
// itself and sends one message, whose data is checked (with --create-only: no connection, no
// message).
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "tests/lab/programs/traffic_plan.h"
#include "tests/lab/programs/verbs.h"
#include "tools/program_options/program_options.h"

namespace {

using namespace collwire;
using namespace collwire::lab;
using Clock = std::chrono::steady_clock;

struct Arguments {
    std::string device = "rxe0";
    uint8_t port = 1;
    uint8_t gid_index = 1;
    uint64_t count = 1000;
    double duration_s = 0;
    double rate = 0;
    uint32_t message_bytes = 256;
    bool create_only = false;
    std::string list_file;
};

struct Buffers {
    std::vector<uint8_t> out;
    std::vector<uint8_t> in;
    MrPtr out_mr;
    MrPtr in_mr;
    CqPtr cq;
};

// One message from the queue pair to itself, checked.
Result<void> use(const Device &device, ibv_qp *qp, Buffers &buffers, uint64_t key) {
    QpAddress self{qp->qp_num, 0, device.gid};
    if (auto connected = connect_qp(device, qp, QpOptions{}, 0, self, device.active_mtu);
        !connected) {
        return connected;
    }
    fill_pattern(buffers.out, key);
    std::ranges::fill(buffers.in, uint8_t{0});
    ibv_sge in{reinterpret_cast<uint64_t>(buffers.in.data()),
               static_cast<uint32_t>(buffers.in.size()), buffers.in_mr->lkey};
    ibv_recv_wr receive{};
    receive.sg_list = &in;
    receive.num_sge = 1;
    ibv_recv_wr *bad_receive = nullptr;
    if (const int failed = ibv_post_recv(qp, &receive, &bad_receive); failed != 0) {
        return verbs_error("ibv_post_recv", device, failed);
    }
    ibv_sge out{reinterpret_cast<uint64_t>(buffers.out.data()),
                static_cast<uint32_t>(buffers.out.size()), buffers.out_mr->lkey};
    ibv_send_wr send{};
    send.sg_list = &out;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr *bad_send = nullptr;
    if (const int failed = ibv_post_send(qp, &send, &bad_send); failed != 0) {
        return verbs_error("ibv_post_send", device, failed);
    }
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    for (int completed = 0; completed < 2;) {
        ibv_wc completion{};
        const int got = ibv_poll_cq(buffers.cq.get(), 1, &completion);
        if (got < 0 || (got == 1 && completion.status != IBV_WC_SUCCESS)) {
            return error(
                ErrorKind::Failed,
                fmt::format("queue pair {}: {}", qp->qp_num,
                            got < 0 ? "ibv_poll_cq failed" : ibv_wc_status_str(completion.status)));
        }
        if (got == 0 && Clock::now() > deadline) {
            return error(ErrorKind::Failed,
                         fmt::format("queue pair {}: no completion in 20 s", qp->qp_num));
        }
        completed += got;
    }
    if (!matches_pattern(buffers.in, key)) {
        return error(ErrorKind::Failed,
                     fmt::format("queue pair {}: the data is not what was sent", qp->qp_num));
    }
    return {};
}

Result<Buffers> make_buffers(const Device &device, uint32_t message_bytes) {
    Buffers buffers;
    buffers.out.resize(message_bytes);
    buffers.in.resize(message_bytes);
    buffers.cq.reset(ibv_create_cq(device.context.get(), 16, nullptr, nullptr, 0));
    buffers.out_mr.reset(ibv_reg_mr(device.pd.get(), buffers.out.data(), message_bytes, 0));
    // A number: for flags that are a constant, ibv_reg_mr is a macro that looks at them as another
    // enum's.
    int local_write = IBV_ACCESS_LOCAL_WRITE;
    buffers.in_mr.reset(ibv_reg_mr(device.pd.get(), buffers.in.data(), message_bytes, local_write));
    if (!buffers.cq || !buffers.out_mr || !buffers.in_mr) {
        return verbs_error("ibv_create_cq or ibv_reg_mr", device, errno);
    }
    return buffers;
}

Result<nlohmann::json> churn(const Arguments &arguments) {
    auto device = Device::open(arguments.device, arguments.port, arguments.gid_index);
    if (!device) {
        return std::move(device).failure();
    }
    auto buffers = make_buffers(*device, arguments.message_bytes);
    if (!buffers) {
        return std::move(buffers).failure();
    }
    std::ofstream list;
    if (!arguments.list_file.empty()) {
        list.open(arguments.list_file);
    }
    const auto start = Clock::now();
    uint64_t done = 0;
    for (;; done++) {
        const double elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
        if (arguments.duration_s > 0 ? elapsed_s >= arguments.duration_s
                                     : done >= arguments.count) {
            break;
        }
        if (arguments.rate > 0) {
            std::this_thread::sleep_until(
                start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                            static_cast<double>(done) / arguments.rate)));
        }
        const uint64_t created_ns = monotonic_ns();
        auto qp = create_qp(*device, buffers->cq.get(), buffers->cq.get(), QpOptions{});
        if (!qp) {
            return std::move(qp).failure();
        }
        const uint32_t qpn = (*qp)->qp_num;
        if (!arguments.create_only) {
            if (auto used = use(*device, qp->get(), *buffers, done + 1); !used) {
                return std::move(used).failure();
            }
        }
        qp->reset();
        if (list.is_open()) {
            list << qpn << ' ' << created_ns << ' ' << monotonic_ns() << '\n';
        }
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (!list.flush() && list.is_open()) {
        return error(ErrorKind::Failed, fmt::format("{}: not written", arguments.list_file));
    }
    return nlohmann::json{{"pid", ::getpid()},
                          {"qps", done},
                          {"message_bytes", arguments.create_only ? 0 : arguments.message_bytes},
                          {"messages", arguments.create_only ? 0 : done},
                          {"seconds", seconds},
                          {"qps_per_second", seconds > 0 ? static_cast<double>(done) / seconds : 0},
                          {"verified", !arguments.create_only}};
}

} // namespace

int main(int argc, char **argv) {
    Arguments arguments;
    ProgramOptions program{
        "Creates, uses and destroys RC queue pairs, each connected to itself; prints how "
        "many as JSON"};
    program.add("--device", arguments.device, "RDMA device");
    program.add("--port", arguments.port, "its port");
    program.add("--gid-index", arguments.gid_index, "GID table index");
    program.add("--count", arguments.count, "queue pairs");
    program.add("--duration", arguments.duration_s, "seconds, instead of --count");
    program.add("--rate", arguments.rate, "a second at most; 0: as fast as it goes");
    program.add("--bytes", arguments.message_bytes, "of the message of each");
    program.add("--create-only", arguments.create_only, "no connection and no message");
    program.add("--list", arguments.list_file,
                "FILE gets a line for each: number, created ns, destroyed ns");
    if (const auto status = program.parse(argc, argv)) {
        return *status;
    }
    auto report = churn(arguments);
    if (!report) {
        std::cerr << "rdma_qp_churn: " << report.failure().message << "\n";
        return 1;
    }
    std::cout << report->dump(2) << "\n";
    return 0;
}
