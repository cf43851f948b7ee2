// SPDX-License-Identifier: Apache-2.0
// Traffic between two nodes whose every work request is known: the requester posts a plan computed
// from a seed, the responder checks every byte, and both print what was posted on each queue pair,
// by opcode class, as JSON.
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "tests/lab/programs/endpoint.h"
#include "tests/lab/programs/tcp_channel.h"
#include "tools/program_options/program_options.h"

namespace {

using namespace collwire;
using namespace collwire::lab;
using Clock = std::chrono::steady_clock;

struct Arguments {
    std::string device = "rxe0";
    uint8_t port = 1;
    uint8_t gid_index = 1;
    uint16_t listen_port = 0;
    std::string peer;
    std::string api = "post";
    std::string transport = "rc";
    std::vector<std::string> operations;
    RunOptions run;
    uint64_t rounds = 10;
    double duration_s = 0;
    uint64_t go_after = 0;
    std::string go_file;
    std::string until_file;
    uint64_t die_after = 0;
    bool peer_may_die = false;
    bool uneven_lists = false;
    std::string json_file = "-";
};

Result<void> write_report(const Arguments &arguments, const nlohmann::json &report) {
    const std::string text = report.dump(2) + "\n";
    if (arguments.json_file == "-") {
        std::cout << text << std::flush;
        return {};
    }
    std::ofstream file(arguments.json_file);
    file << text << std::flush;
    if (!file) {
        return error(ErrorKind::Failed, fmt::format("{}: not written", arguments.json_file));
    }
    return {};
}

bool is_over(const Arguments &arguments, double elapsed_s, uint64_t round) {
    if (!arguments.until_file.empty()) {
        return std::filesystem::exists(arguments.until_file);
    }
    return arguments.duration_s > 0 ? elapsed_s >= arguments.duration_s : round >= arguments.rounds;
}

// Says that the run stands at the gate (GO_FILE.ready appears), then waits until GO_FILE exists.
void wait_for_go(const std::string &go_file) {
    std::ofstream(go_file + ".ready") << ::getpid() << "\n";
    while (!std::filesystem::exists(go_file)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20)); // between two polls
    }
}

nlohmann::json make_report(const Arguments &arguments, const Endpoint &endpoint, const char *role,
                           uint64_t rounds) {
    nlohmann::json report = endpoint.report();
    report["role"] = role;
    report["api"] = arguments.run.style.extended ? "wr" : "post";
    report["transport"] = arguments.transport;
    report["rounds"] = rounds;
    report["verified"] = endpoint.mismatches() == 0;
    return report;
}

Result<nlohmann::json> run_requester(const Arguments &arguments, Device device) {
    auto channel = TcpChannel::connect_to(arguments.peer, 60);
    if (!channel) {
        return std::move(channel).failure();
    }
    auto created = Endpoint::create(std::move(device), arguments.run, Role::Requester);
    if (!created) {
        return std::move(created).failure();
    }
    Endpoint &endpoint = **created;
    if (auto sent =
            channel->send({{"options", arguments.run.to_json()}, {"qps", endpoint.addresses()}});
        !sent) {
        return std::move(sent).failure();
    }
    auto peer = channel->receive();
    if (!peer) {
        return std::move(peer).failure();
    }
    if (auto connected = endpoint.connect(peer->value("qps", nlohmann::json::array()));
        !connected) {
        return std::move(connected).failure();
    }

    auto start = Clock::now();
    uint64_t round = 0;
    bool gated = !arguments.go_file.empty();
    for (;; round++) {
        if (gated && round >= arguments.go_after) {
            wait_for_go(arguments.go_file);
            endpoint.set_phase("after_go");
            gated = false;
            start = Clock::now();
        }
        const double elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
        const bool over = is_over(arguments, elapsed_s, round);
        if (auto sent = channel->send({{"more", !over}}); !sent) {
            return std::move(sent).failure();
        }
        if (over) {
            break;
        }
        if (auto ready = channel->receive(); !ready) {
            return std::move(ready).failure();
        }
        if (auto posted = endpoint.post(round); !posted) {
            return std::move(posted).failure();
        }
        if (arguments.die_after > 0 && round + 1 == arguments.die_after) {
            if (auto written =
                    write_report(arguments, make_report(arguments, endpoint, "requester", round));
                !written) {
                return std::move(written).failure();
            }
            (void)::kill(::getpid(), SIGKILL);
        }
        if (auto completed = endpoint.complete(round); !completed) {
            return std::move(completed).failure();
        }
        if (auto sent = channel->send({{"done", round}}); !sent) {
            return std::move(sent).failure();
        }
        if (auto verified = channel->receive(); !verified) {
            return std::move(verified).failure();
        }
    }
    auto verdict = channel->receive();
    if (!verdict) {
        return std::move(verdict).failure();
    }
    nlohmann::json report = make_report(arguments, endpoint, "requester", round);
    report["peer_verified"] = verdict->value("verified", false);
    report["seconds"] = std::chrono::duration<double>(Clock::now() - start).count();
    return report;
}

Result<nlohmann::json> run_responder(Arguments &arguments, Device device) {
    auto channel = TcpChannel::accept_one(arguments.listen_port);
    if (!channel) {
        return std::move(channel).failure();
    }
    auto hello = channel->receive();
    if (!hello) {
        return std::move(hello).failure();
    }
    auto options = RunOptions::from_json(hello->value("options", nlohmann::json::object()));
    if (!options) {
        return std::move(options).failure();
    }
    arguments.run = *options;
    arguments.transport = std::string(options->plan.transport == Transport::Rc   ? "rc"
                                      : options->plan.transport == Transport::Uc ? "uc"
                                                                                 : "ud");
    auto created = Endpoint::create(std::move(device), arguments.run, Role::Responder);
    if (!created) {
        return std::move(created).failure();
    }
    Endpoint &endpoint = **created;
    if (auto connected = endpoint.connect(hello->value("qps", nlohmann::json::array()));
        !connected) {
        return std::move(connected).failure();
    }
    if (auto sent = channel->send({{"qps", endpoint.addresses()}}); !sent) {
        return std::move(sent).failure();
    }
    uint64_t round = 0;
    bool peer_died = false;
    for (;; round++) {
        auto more = channel->receive();
        if (!more) {
            return std::move(more).failure();
        }
        if (!more->value("more", false)) {
            break;
        }
        if (auto prepared = endpoint.prepare(round); !prepared) {
            return std::move(prepared).failure();
        }
        if (auto sent = channel->send({{"ready", round}}); !sent) {
            return std::move(sent).failure();
        }
        if (auto done = channel->receive(); !done) {
            if (!arguments.peer_may_die) {
                return std::move(done).failure();
            }
            peer_died = true;
            break;
        }
        if (auto verified = endpoint.verify(round); !verified) {
            return std::move(verified).failure();
        }
        if (auto sent = channel->send({{"verified", endpoint.mismatches() == 0}}); !sent) {
            return std::move(sent).failure();
        }
    }
    if (!peer_died) {
        if (auto sent = channel->send({{"verified", endpoint.mismatches() == 0}}); !sent) {
            return std::move(sent).failure();
        }
    }
    nlohmann::json report = make_report(arguments, endpoint, "responder", round);
    report["peer_died"] = peer_died;
    return report;
}

Result<void> check(Arguments &arguments) {
    if ((arguments.listen_port != 0) == !arguments.peer.empty()) {
        return error(ErrorKind::Usage, "give one of --listen PORT and --connect HOST:PORT");
    }
    if (!parse_transport(arguments.transport, arguments.run.plan.transport)) {
        return error(ErrorKind::Usage, "--transport is rc, uc or ud");
    }
    for (const std::string &name : arguments.operations) {
        Operation operation{};
        if (!parse_operation(name, operation) ||
            !transport_has(arguments.run.plan.transport, operation)) {
            return error(ErrorKind::Usage,
                         fmt::format("--operations: {} has no {}", arguments.transport, name));
        }
        arguments.run.plan.operations.push_back(operation);
    }
    if (arguments.api != "wr" && arguments.api != "post") {
        return error(ErrorKind::Usage, "--api is wr (ibv_wr_*) or post (ibv_post_send)");
    }
    arguments.run.style.extended = arguments.api == "wr";
    arguments.run.plan.uneven_lists = !arguments.run.style.extended || arguments.uneven_lists;
    if (arguments.run.style.chain == 0 || arguments.run.plan.batch == 0 || arguments.run.qps == 0 ||
        arguments.run.plan.max_sges == 0) {
        return error(ErrorKind::Usage, "--chain, --batch, --qps and --max-sges are at least 1");
    }
    return {};
}

int fail(const Error &failure) {
    std::cerr << "rdma_wr_post: " << failure.message << "\n";
    return failure.kind == ErrorKind::Usage ? 2 : 1;
}

} // namespace

int main(int argc, char **argv) {
    Arguments arguments;
    RunOptions &run = arguments.run;
    run.plan.max_inline_bytes = 200;
    ProgramOptions program{
        "Posts known work requests between two nodes, checks the data, prints what was "
        "posted as JSON"};
    program.add("--device", arguments.device, "RDMA device");
    program.add("--port", arguments.port, "its port");
    program.add("--gid-index", arguments.gid_index, "GID table index");
    program.add("--listen", arguments.listen_port, "responder: TCP port");
    program.add("--connect", arguments.peer, "requester: HOST:PORT of the responder");
    program.add("--json", arguments.json_file, "where the report goes (-: standard output)");
    program.add("--peer-may-die", arguments.peer_may_die,
                "responder: the requester's death is no failure");
    program.add("--api", arguments.api, "requester: post or wr");
    program.add("--transport", arguments.transport, "requester: rc, uc or ud");
    program
        .add("--operations", arguments.operations,
             "requester: send send_imm write write_imm read fetch_add compare_swap, used in "
             "turn (default all)")
        .delimiter(',');
    program.add("--qps", run.qps, "requester: queue pairs");
    program.add("--batch", run.plan.batch, "requester: work requests a round and queue pair");
    program.add("--chain", run.style.chain, "requester: work requests a call");
    program.add("--max-bytes", run.plan.max_length_bytes, "requester: largest message");
    program.add("--max-sges", run.plan.max_sges, "requester: elements a request");
    program.add("--inline", run.plan.max_inline_bytes,
                "requester: largest inline message; 0: none");
    program.add("--path-mtu", run.path_mtu_bytes, "requester: bytes; 0: the port's");
    program.add("--timeout", run.timeout_exponent, "requester: RC timeout, 4.096 us * 2^n");
    program.add("--patience", run.patience_s, "requester: seconds to wait for a round");
    program.add("--seed", run.plan.seed, "requester: of the plan and the data");
    program.add("--abort-every", run.style.abort_every,
                "requester, wr: ibv_wr_abort before every n-th call");
    program.add("--refuse-every", run.style.refuse_every,
                "requester, post: a refused request in every n-th chain");
    program.add("--uneven-lists", arguments.uneven_lists,
                "requester, wr: lists of pieces of different sizes, inline ones too (on rdma_rxe: "
                "rdma-core >= 64)");
    program.add("--rounds", arguments.rounds, "requester: rounds");
    program.add("--duration", arguments.duration_s,
                "requester: seconds after the gate, instead of --rounds");
    program.add("--until", arguments.until_file,
                "requester: until FILE exists, instead of --rounds");
    program.add("--go", arguments.go_file,
                "requester: gate; FILE.ready appears there, then FILE is waited for");
    program.add("--go-after", arguments.go_after, "requester: rounds before the gate");
    program.add("--die-after", arguments.die_after,
                "requester: kill -9 itself after posting round N, its report written before");
    if (const auto status = program.parse(argc, argv)) {
        return *status;
    }
    if (auto checked = check(arguments); !checked) {
        return fail(checked.failure());
    }
    auto device = Device::open(arguments.device, arguments.port, arguments.gid_index);
    if (!device) {
        return fail(device.failure());
    }
    auto report = arguments.peer.empty() ? run_responder(arguments, std::move(device).value())
                                         : run_requester(arguments, std::move(device).value());
    if (!report) {
        return fail(report.failure());
    }
    if (auto written = write_report(arguments, *report); !written) {
        return fail(written.failure());
    }
    if (!report->value("verified", false) || !report->value("peer_verified", true)) {
        return fail(error(ErrorKind::Failed, "the data did not arrive as it was sent"));
    }
    return 0;
}
