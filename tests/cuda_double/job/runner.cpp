// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/job/runner.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/cuda_double/rendezvous.h"

namespace collwire::job {
namespace {

constexpr int kStuckForMs = 300;

void sleep_ms(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// Null where there is none.
template <class T> Fields or_null(const std::optional<T> &value) {
    return value ? Fields(*value) : Fields(nullptr);
}

} // namespace

std::size_t Runner::run(const Plan &plan, const std::atomic<bool> &stop_asked) {
    using Clock = std::chrono::steady_clock;
    run_steps(plan.once);
    check_pending();
    const auto begin = Clock::now();
    const char *reason = "count";
    for (iteration_ = 0; options_.count == 0 || iteration_ < options_.count; iteration_++) {
        run_steps(plan.loop);
        check_pending();
        if (iteration_ + 1 == options_.count)
            continue;
        const std::chrono::duration<double> taken = Clock::now() - begin;
        const bool is_late = options_.seconds > 0 && taken.count() >= options_.seconds;
        if (agree_to_stop(stop_asked || is_late)) {
            reason = stop_asked ? "signal" : is_late ? "seconds" : "another rank";
            break;
        }
    }
    log_.write("end", {{"reason", reason}, {"calls", calls_}, {"wrong", wrong_elements_}});
    return wrong_elements_;
}

void Runner::run_steps(const std::vector<Step> &steps) {
    for (const Step &step : steps) {
        run_step(step);
        if (options_.gap_ms == 0)
            continue;
        check_pending();
        log_.write("gap", {{"ms", options_.gap_ms}});
        sleep_ms(options_.gap_ms);
    }
}

void Runner::run_step(const Step &step) {
    switch (step.kind) {
    case StepKind::Operation:
        return run_operation(step.operation);
    case StepKind::Group:
        return run_group(step.steps);
    case StepKind::Repeat:
        for (int time = 0; time < step.number; time++)
            for (const Step &each : step.steps)
                run_step(each);
        return;
    case StepKind::Capture:
        return run_capture(step);
    case StepKind::Wait:
        return check_pending();
    case StepKind::Sleep:
        log_.write("gap", {{"ms", step.number}});
        return sleep_ms(step.number);
    case StepKind::Create:
        check_pending();
        return communicators_.create(step.communicator);
    case StepKind::Destroy:
        check_pending();
        return communicators_.destroy(step.communicator);
    case StepKind::Abort:
        return run_abort(step);
    }
}

void Runner::run_operation(Operation operation) {
    sequence_++;
    if (options_.other_size.rank == rank_ && options_.other_size.at == sequence_)
        operation.bytes /= 4;
    Communicator *communicator = communicators_.find(operation.communicator);
    if (communicator == nullptr)
        return;
    PreparedOperation prepared = prepare(operation, *communicator, sequence_);
    if (!prepared.missing.empty()) {
        log_.write("skipped", {{"operation", sequence_}, {"missing", prepared.missing}});
        return;
    }
    const bool opens_group = prepared.needs_group && !group_ && !prepared.calls.empty();
    if (opens_group)
        begin_group();
    for (int time = 0; time < operation.times; time++)
        for (const Call &each : prepared.calls)
            call(*communicator, each);
    if (opens_group)
        end_group();
    pending_.push_back(
        {fmt::format("operation {} on {}", sequence_, communicator->name), std::move(prepared)});
}

void Runner::run_group(const std::vector<Step> &steps) {
    begin_group();
    for (const Step &step : steps)
        run_step(step);
    end_group();
}

void Runner::begin_group() {
    group_ = groups_++;
    log_.write("group_start", {{"group", *group_}});
    require(ncclGroupStart(), "ncclGroupStart");
}

void Runner::end_group() {
    const Moment at = Moment::now();
    require(ncclGroupEnd(), "ncclGroupEnd");
    log_.write("group_end", at, {{"group", *group_}, {"returned_ns", Moment::now().monotonic_ns}});
    group_.reset();
}

void Runner::run_capture(const Step &step) {
    check_pending();
    Communicator *communicator = communicators_.find(step.communicator);
    // Those without the communicator count the operations all the same.
    if (communicator == nullptr) {
        for (const Step &each : step.steps)
            run_step(each);
        return;
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    captured_ = Captured{graphs_++, 0};
    captured_calls_.clear();
    // Buffers are made on the way.
    require_cuda(cudaStreamBeginCapture(communicator->stream, cudaStreamCaptureModeRelaxed),
                 "cudaStreamBeginCapture");
    for (const Step &each : step.steps)
        run_step(each);
    require_cuda(cudaStreamEndCapture(communicator->stream, &graph), "cudaStreamEndCapture");
    require_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (int replay = 1; replay <= step.number; replay++) {
        for (const Pending &pending : pending_)
            pending.operation.reset();
        const Moment at = Moment::now();
        require_cuda(cudaGraphLaunch(executable, communicator->stream), "cudaGraphLaunch");
        for (Fields &fields : captured_calls_) {
            fields["replay"] = replay;
            log_.write("replay", at, fields);
        }
        require_cuda(cudaStreamSynchronize(communicator->stream), "cudaStreamSynchronize");
        std::vector<Pending> kept = pending_;
        check_pending();
        if (replay < step.number)
            pending_ = std::move(kept);
    }
    pending_.clear();
    captured_.reset();
    require_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    require_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

// Stuck: the last rank does not take part in the others' AllReduce.
void Runner::run_abort(const Step &step) {
    check_pending();
    const Communicator *communicator = communicators_.find(step.communicator);
    const bool takes_part =
        communicator != nullptr && communicator->rank + 1 < communicator->ranks();
    if (step.is_stuck) {
        Operation operation;
        operation.communicator = step.communicator;
        operation.bytes = 1 << 16;
        if (takes_part)
            run_operation(operation);
        else
            sequence_++;
        sleep_ms(kStuckForMs);
    }
    communicators_.abort(step.communicator);
    pending_.clear();
}

void Runner::stall(const Communicator &communicator) {
    const Stall &stall = options_.stall;
    if (stall.rank != rank_ ||
        (!stall.communicator.empty() && stall.communicator != communicator.name) ||
        (stall.communicator.empty() ? calls_ : communicator.calls) != stall.at)
        return;
    log_.write("stall", {{"ms", stall.ms}, {"before_call", calls_}});
    sleep_ms(stall.ms);
}

void Runner::call(Communicator &communicator, const Call &call) {
    stall(communicator);
    const Moment at = Moment::now();
    const ncclResult_t result = call.function();
    log_call(communicator, call, at, communicator.calls, result);
    calls_++;
    communicator.calls++;
    if ((result != ncclSuccess) != call.must_fail)
        require(call.must_fail ? ncclInternalError : result, call.name.c_str());
}

void Runner::log_call(const Communicator &communicator, const Call &call, const Moment &at,
                      int index, int result) {
    Fields fields = {{"call", calls_},
                     {"returned_ns", Moment::now().monotonic_ns},
                     {"iteration", iteration_},
                     {"operation", sequence_}};
    fields.update(communicator.fields());
    fields["index"] = index;
    fields["op"] = call.name;
    fields["count"] = call.count;
    fields["bytes"] = call.count * bytes_of(call.type);
    fields["datatype"] = name_of(call.type);
    fields["reduction"] = call.reduction ? Fields(name_of(*call.reduction)) : Fields(nullptr);
    fields["root"] = or_null(call.root);
    fields["peer"] = or_null(call.peer);
    fields["group"] = or_null(group_);
    fields["config"] = call.uses_config;
    fields["graph"] = captured_ ? Fields(captured_->graph) : Fields(nullptr);
    fields["purpose"] = purpose_ != nullptr ? Fields(purpose_) : Fields(nullptr);
    fields["result"] = result;
    log_.write("call", at, fields);
    if (captured_) {
        fields.erase("returned_ns");
        captured_calls_.push_back(std::move(fields));
    }
}

void Runner::check_pending() {
    if (pending_.empty())
        return;
    communicators_.wait_for_all();
    const Moment at = Moment::now();
    std::size_t wrong = 0;
    for (const Pending &pending : std::exchange(pending_, {})) {
        const Mismatch mismatch = pending.operation.check();
        if (mismatch.count != 0 && wrong_elements_ + wrong == 0)
            fmt::print(stderr, "{}: {}\n", pending.what, mismatch.first);
        wrong += mismatch.count;
    }
    wrong_elements_ += wrong;
    log_.write("waited", at, {{"through_call", calls_ - 1}, {"wrong", wrong}});
}

bool Runner::agree_to_stop(bool wish) {
    sequence_++;
    Communicator &world = *communicators_.find(kWorld);
    const auto mine = DeviceBuffer(sizeof(std::int32_t));
    const auto all = DeviceBuffer(sizeof(std::int32_t));
    const std::int32_t value = wish ? 1 : 0;
    mine.put({reinterpret_cast<const char *>(&value), sizeof value});
    Call agreement{.name = "AllReduce", .count = 1, .type = ncclInt32, .reduction = ncclMax};
    agreement.function = [&] {
        return ncclAllReduce(mine.data(), all.data(), 1, ncclInt32, ncclMax, world.handle,
                             world.stream);
    };
    purpose_ = "agree";
    call(world, agreement);
    purpose_ = nullptr;
    require_cuda(cudaStreamSynchronize(world.stream), "cudaStreamSynchronize");
    std::int32_t agreed = 0;
    all.get(0, {reinterpret_cast<char *>(&agreed), sizeof agreed});
    return agreed != 0;
}

} // namespace collwire::job
