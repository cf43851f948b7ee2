// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/set_text.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/port_records.h"
#include "collwire/post_records.h"
#include "collwire/record_kinds.h"
#include "tools/trace-gen/job_inventory.h"
#include "tools/trace-gen/job_rank.h"
#include "tools/trace-gen/made_record.h"
#include "userspace/capture/writer.h"

namespace collwire::trace_gen {
namespace {

constexpr std::uint64_t CALL_TO_LAUNCH_NS = 3000;
constexpr std::uint64_t LAUNCH_TO_SHAPE_NS = 2000;
constexpr std::uint64_t CLOCKS_NS = 60 * SAMPLE_NS;
constexpr std::uint64_t READY_BYTES = 64; // ncclIbSendFifo: a clear-to-send entry
constexpr std::uint64_t PORT_COUNTERS = 4;
// RoCE v2 over IPv4: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4. The first packet of a write has
// a RETH of 16, the last one with immediate data 4 more.
constexpr std::uint64_t PACKET_BYTES = 58;
constexpr std::uint64_t WRITE_BYTES = 16;
constexpr std::uint64_t IMMEDIATE_BYTES = 4;
constexpr std::size_t MTU_4096 = 4; // of cw_post_class_counters.packets

// Counts what it passes on.
class CountingSink final : public source::RecordSink {
public:
    explicit CountingSink(source::RecordSink &sink) : sink_(sink) {}
    void append(const cw_header &record) override {
        n_++;
        sink_.append(record);
    }
    [[nodiscard]] std::uint64_t n() const { return n_; }

private:
    source::RecordSink &sink_;
    std::uint64_t n_ = 0;
};

struct EdgeState {
    Carried done;                    // of operations that are complete
    std::uint64_t steps = 0;         // of operations that have started
    std::uint64_t sampled_steps = 0; // in the last record
    bool sampled_busy = false;
    bool has_sample = false;
    std::uint64_t sampled_messages = 0;
    std::uint64_t unchanged_ns = 0;
    std::uint64_t first_post_ns = 0;
    bool has_post = false;
    bool is_recorded = false; // the connection itself
    // In flight; null: none.
    const Carried *moving = nullptr;
    JobEvent event;
    std::uint64_t launched_ns = 0;
    std::uint64_t group = 0;
};

class RankRun {
public:
    RankRun(const JobPlan &plan, const JobTraffic &traffic, const JobTimes &times,
            const JobInventory &inventory, const JobClock &clock, std::uint32_t global)
        : plan_(plan), times_(times), inventory_(inventory), clock_(clock), global_(global),
          program_(plan, traffic, global), states_(program_.edges().size()),
          is_known_(program_.n_shape_slots()), launched_(plan.communicators().size()) {
        arrive();
    }

    [[nodiscard]] const RankProgram &program() const { return program_; }
    // True time of the next call, or of an end that is to be recorded; NEVER_NS: none.
    [[nodiscard]] std::uint64_t next_ns() const { return is_moving_ ? event_.end_ns : arrival_ns_; }

    void advance(source::RecordSink &sink) {
        if (is_moving_)
            complete(sink);
        else
            start(sink);
    }

    struct Port {
        std::uint64_t tx_bytes = 0, rx_bytes = 0, tx_packets = 0, rx_packets = 0;
    };

    void sample(source::RecordSink &sink, std::uint64_t true_ns, std::array<Port, GPUS> &ports) {
        const std::uint64_t now_ns = clock_.monotonic_ns(true_ns);
        for (std::size_t i = 0; i < states_.size(); i++) {
            EdgeState &state = states_[i];
            const RankEdge &edge = program_.edges()[i];
            if (!state.is_recorded)
                continue;
            const Carried carried = carried_by(state, true_ns);
            Port &port = ports[inventory_.nic_of(edge)];
            const std::uint64_t wire_bytes = carried.payload_bytes +
                                             carried.packets[MTU_4096] * PACKET_BYTES +
                                             carried.messages * (WRITE_BYTES + IMMEDIATE_BYTES);
            const std::uint64_t ready_bytes =
                carried.messages * (READY_BYTES + PACKET_BYTES + WRITE_BYTES);
            (edge.is_send ? port.tx_bytes : port.rx_bytes) += wire_bytes;
            (edge.is_send ? port.tx_packets : port.rx_packets) += carried.packets[MTU_4096];
            (edge.is_send ? port.rx_bytes : port.tx_bytes) += ready_bytes;
            (edge.is_send ? port.rx_packets : port.tx_packets) += carried.messages;
            if (carried.messages != state.sampled_messages &&
                plan_.options().bytes == JobBytes::Posts)
                post(sink, now_ns, edge, state, carried);
            state.sampled_messages = carried.messages;
            steps(sink, now_ns, edge, state, true_ns);
        }
    }

private:
    void arrive() {
        arrival_ns_ = NEVER_NS;
        if (iteration_ >= plan_.options().iterations || program_.steps().empty())
            return;
        const RankStep &step = program_.steps()[next_];
        arrival_ns_ = times_.arrival_ns(iteration_, step.operation, global_, step.side, free_ns_);
    }

    void start(source::RecordSink &sink) {
        const RankStep &step = program_.steps()[next_];
        const JobCommunicator &comm = plan_.communicators()[step.comm];
        event_ = times_.event(iteration_, step.operation, comm, step.stage);
        std::uint64_t now_ns = clock_.monotonic_ns(arrival_ns_);
        for (cw_nccl_call call : step.calls) {
            call.header.time_ns = now_ns++;
            sink.append(call.header);
        }
        if (step.is_collective)
            launched_[step.comm]++;
        if (step.has_launch)
            launch(sink, step, now_ns + CALL_TO_LAUNCH_NS);
        for (const RankMove &move : step.moves) {
            EdgeState &state = states_[move.edge];
            settle(state);
            state.moving = move.carried;
            state.event = event_;
            // sub->base of net.cc's proxyProgress
            const std::uint64_t chunk = move.carried->chunk_steps;
            state.steps = (state.steps + chunk - 1) / chunk * chunk + move.carried->steps;
            state.launched_ns = now_ns + CALL_TO_LAUNCH_NS;
            state.group = connection_address(program_.edges()[move.edge]) + 0x200;
            if (!state.has_post && event_.begin_ns != NEVER_NS) {
                state.first_post_ns = clock_.monotonic_ns(event_.begin_ns) + CALL_TO_LAUNCH_NS + 1;
                if (plan_.options().bytes == JobBytes::Posts)
                    first_post(sink, program_.edges()[move.edge], state.first_post_ns);
                state.has_post = true;
            }
            if (plan_.options().has_network_times)
                progress(sink, move, now_ns + CALL_TO_LAUNCH_NS + LAUNCH_TO_SHAPE_NS, false);
        }
        free_ns_ = event_.end_ns;
        moved_ = next_;
        if (++next_ == program_.steps().size()) {
            next_ = 0;
            iteration_++;
        }
        is_moving_ =
            plan_.options().has_network_times && !step.moves.empty() && event_.end_ns != NEVER_NS;
        arrive();
    }

    void complete(source::RecordSink &sink) {
        for (const RankMove &move : program_.steps()[moved_].moves)
            progress(sink, move, clock_.monotonic_ns(event_.end_ns), true);
        is_moving_ = false;
    }

    void launch(source::RecordSink &sink, const RankStep &step, std::uint64_t now_ns) {
        cw_nccl_launch launch = step.launch;
        launch.header.time_ns = now_ns;
        launch.launched = launched_[step.comm];
        sink.append(launch.header);
        for (cw_nccl_launch_tasks tasks : step.more_tasks) {
            tasks.header.time_ns = tasks.launch_ns = now_ns;
            sink.append(tasks.header);
        }
        if (std::exchange(is_known_[step.shape_slot], 1) != 0)
            return;
        const auto put = [&](auto record) {
            record.header.time_ns = now_ns + LAUNCH_TO_SHAPE_NS;
            sink.append(record.header);
        };
        for (const RankMove &move : step.moves)
            if (!std::exchange(states_[move.edge].is_recorded, true))
                inventory_.connection(sink, program_.edges()[move.edge],
                                      now_ns + LAUNCH_TO_SHAPE_NS);
        for (const cw_nccl_shape_task &task : step.shape_tasks)
            put(task);
        for (const cw_nccl_shape_ops &ops : step.shape_ops)
            put(ops);
    }

    void progress(source::RecordSink &sink, const RankMove &move, std::uint64_t now_ns,
                  bool is_end) const {
        const EdgeState &state = states_[move.edge];
        auto record = make<cw_nccl_progress>(CW_KIND_NCCL_PROGRESS, now_ns);
        record.header.cpu = 1;
        record.connection = connection_address(program_.edges()[move.edge]);
        record.group = state.group;
        record.tgid = program_.pid();
        record.tid = program_.pid() + 6000;
        record.nsteps = static_cast<std::uint32_t>(move.carried->steps);
        if (is_end) {
            record.base_steps = state.steps - move.carried->steps;
            record.flags = CW_NCCL_PROGRESS_END;
        }
        sink.append(record.header);
    }

    // An operation before the next one on its connection is complete.
    static void settle(EdgeState &state) {
        if (state.moving != nullptr)
            state.done += *state.moving;
        state.moving = nullptr;
    }

    // Messages of an operation in flight go at a constant rate.
    static Carried carried_by(const EdgeState &state, std::uint64_t true_ns) {
        Carried carried = state.done;
        if (state.moving == nullptr || state.event.end_ns == NEVER_NS ||
            true_ns <= state.event.begin_ns)
            return carried;
        if (true_ns >= state.event.end_ns) {
            carried += *state.moving;
            return carried;
        }
        const double share = static_cast<double>(true_ns - state.event.begin_ns) /
                             static_cast<double>(state.event.end_ns - state.event.begin_ns);
        const auto messages =
            static_cast<std::uint64_t>(share * static_cast<double>(state.moving->messages));
        const auto part = [&](std::uint64_t all) {
            return static_cast<std::uint64_t>(static_cast<double>(all) /
                                              static_cast<double>(state.moving->messages) *
                                              static_cast<double>(messages));
        };
        carried.messages += messages;
        carried.payload_bytes += part(state.moving->payload_bytes);
        carried.empty_messages += part(state.moving->empty_messages);
        for (std::size_t i = 0; i < carried.packets.size(); i++)
            carried.packets[i] += part(state.moving->packets[i]);
        return carried;
    }

    [[nodiscard]] cw_verbs_key verbs_key(const RankEdge &edge) const {
        return {.context = 0x55d000100000 + inventory_.nic_of(edge) * std::uint64_t{0x10000},
                .tgid = program_.pid(),
                .qpn = inventory_.qpn(edge),
                .epoch = 0,
                .reserved = 0};
    }

    void first_post(source::RecordSink &sink, const RankEdge &edge, std::uint64_t now_ns) const {
        auto record = make<cw_verbs_qp>(CW_KIND_VERBS_QP, now_ns);
        record.header.cpu = 1;
        record.key = verbs_key(edge);
        record.qp_address = connection_address(edge) + 0x40;
        record.start_boottime_ns = clock_.boot_ns - SAMPLE_NS;
        record.qp_type = 2;
        record.handle = record.key.qpn;
        set_text(record.device, fmt::format("mlx5_{}", inventory_.nic_of(edge)));
        sink.append(record.header);
    }

    void post(source::RecordSink &sink, std::uint64_t now_ns, const RankEdge &edge,
              const EdgeState &state, const Carried &carried) const {
        auto record = make<cw_qp_post>(CW_KIND_QP_POST, now_ns);
        record.key = verbs_key(edge);
        cw_post_counters &counters = record.counters;
        counters.first_ns = state.first_post_ns;
        counters.last_ns = now_ns;
        counters.posts = carried.messages;
        auto &of_class = counters.classes[edge.is_send ? CW_POST_WRITE_IMM : CW_POST_WRITE];
        of_class.wrs = carried.messages;
        of_class.bytes = edge.is_send ? carried.payload_bytes : carried.messages * READY_BYTES;
        of_class.zero_length_wrs = edge.is_send ? carried.empty_messages : 0;
        for (std::size_t i = 0; i < carried.packets.size(); i++)
            of_class.packets[i] = edge.is_send ? carried.packets[i] : carried.messages;
        sink.append(record.header);
    }

    void steps(source::RecordSink &sink, std::uint64_t now_ns, const RankEdge &edge,
               EdgeState &state, std::uint64_t true_ns) const {
        const bool is_busy = state.moving != nullptr && true_ns < state.event.end_ns;
        if (state.has_sample && state.sampled_steps == state.steps &&
            state.sampled_busy == is_busy) {
            state.unchanged_ns = now_ns - 1000;
            return;
        }
        auto record = make<cw_nccl_steps>(CW_KIND_NCCL_STEPS, now_ns);
        record.connection = connection_address(edge);
        record.steps = state.sampled_steps = state.steps;
        record.read_ns = now_ns - 1000;
        record.unchanged_ns = state.unchanged_ns;
        record.tgid = program_.pid();
        record.flags = is_busy ? CW_NCCL_STEPS_BUSY : CW_NCCL_STEPS_IDLE;
        sink.append(record.header);
        state.has_sample = true;
        state.sampled_busy = is_busy;
        state.unchanged_ns = 0;
    }

    const JobPlan &plan_;
    const JobTimes &times_;
    const JobInventory &inventory_;
    JobClock clock_;
    std::uint32_t global_;
    RankProgram program_;
    std::vector<EdgeState> states_;
    std::vector<char> is_known_;
    std::vector<std::uint64_t> launched_;
    std::uint32_t iteration_ = 0;
    std::size_t next_ = 0;
    std::size_t moved_ = 0;
    bool is_moving_ = false;
    JobEvent event_;
    std::uint64_t free_ns_ = 0;
    std::uint64_t arrival_ns_ = NEVER_NS;
};

void sample_port(source::RecordSink &sink, std::uint64_t now_ns, std::uint32_t nic,
                 const RankRun::Port &port) {
    struct Samples {
        cw_counter_samples head;
        std::array<cw_counter_sample, PORT_COUNTERS> samples;
    };
    Samples record{.head = make<cw_counter_samples>(CW_KIND_COUNTER_SAMPLES, now_ns),
                   .samples = {}};
    record.head.header.length_bytes = sizeof(record);
    record.head.read_begin_ns = now_ns - 1000;
    record.head.n = PORT_COUNTERS;
    const std::array<std::uint64_t, PORT_COUNTERS> values = {port.tx_bytes / 4, port.rx_bytes / 4,
                                                             port.tx_packets, port.rx_packets};
    for (std::uint32_t i = 0; i < PORT_COUNTERS; i++)
        record.samples[i] = {.id = nic * static_cast<std::uint32_t>(PORT_COUNTERS) + i + 1,
                             .reserved = 0,
                             .value = values[i]};
    sink.append(record.head.header);
}

} // namespace

Result<WrittenCapture> write_node(const JobPlan &plan, const JobTraffic &traffic,
                                  const JobTimes &times, std::uint32_t node) {
    const JobOptions &options = plan.options();
    const JobClock clock = clock_of_node(options, node);
    const JobInventory inventory(plan, node, clock);
    std::uint64_t n_preamble = 0;
    auto made =
        capture::CaptureWriter::create({.directory = options.directory,
                                        .host = host_of_node(node),
                                        .zstd_level = options.zstd_level,
                                        .realtime_ns = [&] { return clock.realtime_ns(0); }},
                                       [&](source::RecordSink &sink, std::uint32_t segment) {
                                           CountingSink counting(sink);
                                           inventory.preamble(counting, segment);
                                           for (std::uint32_t nic = 0; nic < GPUS; nic++)
                                               sample_port(counting, clock.boot_ns, nic, {});
                                           inventory.port_error_counters(counting);
                                           n_preamble += counting.n();
                                       });
    if (!made)
        return std::move(made).failure();
    auto &writer = **made;
    CountingSink sink(writer);
    writer.begin(clock.boot_ns);
    std::vector<RankRun> ranks;
    ranks.reserve(GPUS);
    for (std::uint32_t local = 0; local < GPUS; local++) {
        ranks.emplace_back(plan, traffic, times, inventory, clock, node * GPUS + local);
        inventory.rank(sink, ranks.back().program(), local);
    }
    std::uint64_t clock_ns = CLOCKS_NS;
    for (std::uint64_t now_ns = SAMPLE_NS;; now_ns += SAMPLE_NS) {
        const bool is_last = now_ns >= times.end_ns();
        const std::uint64_t until_ns = std::min(now_ns, times.end_ns());
        while (true) {
            auto first = std::min_element(
                ranks.begin(), ranks.end(),
                [](const RankRun &a, const RankRun &b) { return a.next_ns() < b.next_ns(); });
            if (first->next_ns() >= until_ns)
                break;
            first->advance(sink);
        }
        if (is_last && !options.stopped)
            for (std::uint32_t local = 0; local < GPUS; local++)
                inventory.end_of_rank(sink, ranks[local].program(), local,
                                      times.end_ns() - SAMPLE_NS / 2);
        std::array<RankRun::Port, GPUS> ports{};
        for (RankRun &rank : ranks)
            rank.sample(sink, until_ns, ports);
        for (std::uint32_t nic = 0; nic < GPUS; nic++)
            sample_port(sink, clock.monotonic_ns(until_ns), nic, ports[nic]);
        inventory.signs(sink, until_ns);
        if (now_ns >= clock_ns || is_last) {
            inventory.clock(sink, until_ns);
            clock_ns += CLOCKS_NS;
        }
        writer.flush(clock.monotonic_ns(until_ns));
        if (is_last)
            break;
    }
    const std::uint64_t end_ns = clock.monotonic_ns(times.end_ns());
    if (auto closed = writer.close(end_ns, 0, 0, end_ns); !closed)
        return std::move(closed).failure();
    if (auto failure = writer.take_failure())
        return *std::move(failure);
    return WrittenCapture{.path = writer.path(), .n_records = sink.n() + n_preamble + 1};
}

} // namespace collwire::trace_gen
