// SPDX-License-Identifier: Apache-2.0
// The functions of CUPTI, and what the double of CUDA reports. delivery.cpp has the buffers.
#include "tests/cupti_double/collector.h"

#include <fmt/format.h>

#include "tests/cupti_double/record.h"
#include "tests/cupti_double/time_source.h"

namespace collwire::cupti_double {
namespace {

bool is_kernel_kind(std::uint32_t kind) {
    return kind == KIND_KERNEL || kind == KIND_CONCURRENT_KERNEL;
}

} // namespace

ActivityCollector::ActivityCollector(const Settings &settings, EventLog &log)
    : settings_(settings), log_(log), record_bytes_(kernel_record_bytes(settings.api_version)),
      mutex_(log, std::chrono::milliseconds(settings.lock_patience_ms)) {}

ActivityCollector::~ActivityCollector() {
    {
        const Lock lock(mutex_);
        is_stopping_ = true;
        wake_.notify_all();
    }
    if (worker_.joinable())
        worker_.join();
}

Result ActivityCollector::register_callbacks(RequestBuffer request, CompleteBuffer complete) {
    if (request == nullptr || complete == nullptr) {
        log_.misuse("cuptiActivityRegisterCallbacks: a callback is null");
        return Result::InvalidParameter;
    }
    const Lock lock(mutex_);
    callbacks_ = {request, complete, callbacks_.registration + 1};
    log_.write("registered", fmt::format("\"registration\":{},\"buffers_held\":{}",
                                         callbacks_.registration, buffers_.size()));
    start_worker();
    return Result::Success;
}

Result ActivityCollector::register_timestamp(ReadTimestamp read) {
    if (read == nullptr) {
        log_.misuse("cuptiActivityRegisterTimestampCallback: the callback is null");
        return Result::InvalidParameter;
    }
    const Lock lock(mutex_);
    if (read_timestamp_ != nullptr) {
        log_.misuse("cuptiActivityRegisterTimestampCallback: called again in this process, which "
                    "spoils the times of the next records");
        are_times_spoiled_ = true;
    }
    if (!kinds_.empty())
        log_.misuse("cuptiActivityRegisterTimestampCallback: called while a kind is enabled: "
                    "kernels launched before keep the earlier clock");
    read_timestamp_ = read;
    registered_clock_ = measure_offset(read);
    return Result::Success;
}

Result ActivityCollector::enable(std::uint32_t kind) {
    return set_kind(kind, true);
}

Result ActivityCollector::disable(std::uint32_t kind) {
    return set_kind(kind, false);
}

Result ActivityCollector::set_kind(std::uint32_t kind, bool is_enabled) {
    if (kind == 0 || kind > LAST_KIND) {
        log_.misuse(fmt::format("kind {} does not exist", kind));
        return Result::InvalidKind;
    }
    const Lock lock(mutex_);
    if (!is_enabled) {
        if (kinds_.erase(kind) != 0 && is_kernel_kind(kind) && settings_.disable_drops)
            drop_pending();
        return Result::Success;
    }
    if (is_kernel_kind(kind) && kinds_.count(KIND_KERNEL + KIND_CONCURRENT_KERNEL - kind) != 0) {
        log_.misuse("the kinds KERNEL and CONCURRENT_KERNEL exclude each other");
        return Result::NotCompatible;
    }
    if (!is_kernel_kind(kind))
        log_.lacks(fmt::format("records of kind {}", kind));
    if (kind == KIND_KERNEL)
        log_.hazard("kind KERNEL: CUPTI serialises the process's kernels, and NCCL may hang");
    if (callbacks_.request == nullptr)
        log_.misuse("cuptiActivityEnable before cuptiActivityRegisterCallbacks: records have no "
                    "buffer to go to");
    if (kinds_.insert(kind).second && is_kernel_kind(kind))
        sessions_++;
    return Result::Success;
}

Result ActivityCollector::set_context(const void *context, std::uint32_t kind, bool is_enabled) {
    if (context == nullptr) {
        log_.misuse("a kind is set for the context null");
        return Result::InvalidContext;
    }
    if (kind == 0 || kind > LAST_KIND) {
        log_.misuse(fmt::format("kind {} does not exist", kind));
        return Result::InvalidKind;
    }
    const Lock lock(mutex_);
    context_kinds_[{context, kind}] = is_enabled;
    return Result::Success;
}

Result ActivityCollector::flush_all(std::uint32_t flags) {
    if ((flags & ~FLUSH_FORCED) != 0)
        log_.misuse(fmt::format("cuptiActivityFlushAll: flag {:#x} does not exist", flags));
    Lock lock(mutex_);
    if (callbacks_.complete == nullptr) {
        log_.misuse("cuptiActivityFlushAll before cuptiActivityRegisterCallbacks");
        return settings_.api_version >= FIRST_VERSION_OF_13 ? Result::Success
                                                            : Result::InvalidOperation;
    }
    if (!kinds_.empty())
        place_earlier();
    const std::uint64_t ticket = ++flushes_asked_;
    is_force_asked_ = is_force_asked_ || (flags & FLUSH_FORCED) != 0;
    wake_.notify_all();
    const auto is_done = [&] { return flushes_done_ >= ticket; };
    if (!flushed_.wait_for(lock, mutex_.patience(), is_done)) {
        log_.misuse(fmt::format("thread {} waits in cuptiActivityFlushAll since {} ms for the "
                                "completion callback: a deadlock, if that waits for this thread",
                                this_thread(), mutex_.patience().count()));
        flushed_.wait(lock, is_done);
    }
    return Result::Success;
}

Result ActivityCollector::set_flush_period(std::uint32_t period_ms) {
    const Lock lock(mutex_);
    period_ms_ = period_ms;
    wake_.notify_all();
    return Result::Success;
}

// In callbacks, too: the lock is this thread's already.
Result ActivityCollector::take_dropped(std::size_t *dropped) {
    if (dropped == nullptr) {
        log_.misuse("cuptiActivityGetNumDroppedRecords: nowhere to write");
        return Result::InvalidParameter;
    }
    Lock lock(mutex_, std::defer_lock);
    if (InBufferCallback::of_this_thread() == nullptr)
        lock.lock();
    *dropped = std::exchange(dropped_, 0);
    return Result::Success;
}

std::uint64_t ActivityCollector::timestamp() {
    const Lock lock(mutex_);
    return read_clock(read_timestamp_);
}

Result ActivityCollector::finalize() {
    const Lock lock(mutex_);
    std::size_t lost = 0;
    for (const auto &buffer : buffers_) {
        lost += buffer->records.size();
        for (const KernelPointer &kernel : buffer->records) {
            kernel->buffer = nullptr;
            kernel->fate = "finalized";
        }
    }
    if (lost != 0)
        log_.misuse(fmt::format("cuptiFinalize: {} records were not flushed and are lost", lost));
    buffers_.clear();
    earlier_.clear();
    kinds_.clear();
    context_kinds_.clear();
    callbacks_ = {nullptr, nullptr, callbacks_.registration};
    read_timestamp_ = nullptr;
    period_ms_ = 0;
    return Result::Success;
}

void ActivityCollector::earlier(const KernelLaunch &launch, std::uint64_t started_ns,
                                std::uint64_t ended_ns) {
    const Lock lock(mutex_);
    kernels_++;
    auto kernel = std::make_shared<TrackedKernel>();
    kernel->launch = launch;
    kernel->started_ns = started_ns;
    kernel->ended_ns = ended_ns;
    kernel->has_times = false;
    kernel->fate = "before_cupti";
    if (ended_ns == 0)
        running_[launch.id] = kernel;
    else
        log_kernel(*kernel);
    if (settings_.earlier != EarlierKernels::None)
        earlier_.push_back(std::move(kernel));
}

void ActivityCollector::launched(const KernelLaunch &launch) {
    if (const char *callback = InBufferCallback::of_this_thread()) {
        log_.misuse(fmt::format("a kernel is launched in {}: CUPTI deadlocks there", callback));
        return;
    }
    const Lock lock(mutex_);
    kernels_++;
    auto kernel = std::make_shared<TrackedKernel>();
    kernel->launch = launch;
    kernel->decided_ns = monotonic_ns();
    kernel->clock = read_timestamp_;
    running_[launch.id] = kernel;
    const std::uint32_t kind = kind_for(launch);
    if (kind != 0 && settings_.empty_session != 0 && sessions_ == settings_.empty_session) {
        kernel->fate = "lost";
    } else if (kind != 0) {
        kernel->kind = kind;
        place_earlier();
        place(kernel);
    } else if (settings_.earlier == EarlierKernels::BeforeEnabled) {
        kernel->has_times = false;
        earlier_.push_back(kernel);
    }
}

void ActivityCollector::started(std::uint64_t id, std::uint64_t at_ns) {
    const Lock lock(mutex_);
    const auto found = running_.find(id);
    if (found == running_.end())
        return;
    found->second->started_ns = at_ns;
    log_.write("started", fmt::format("\"id\":{},\"nccl\":{}", id, found->second->launch.is_nccl));
}

void ActivityCollector::ended(std::uint64_t id, std::uint64_t at_ns) {
    const Lock lock(mutex_);
    const auto found = running_.find(id);
    if (found == running_.end())
        return;
    const KernelPointer kernel = found->second;
    running_.erase(found);
    kernel->ended_ns = at_ns;
    log_kernel(*kernel);
    if (kernel->buffer != nullptr && kernel->buffer->is_full)
        wake_.notify_all();
}

std::uint32_t ActivityCollector::kind_for(const KernelLaunch &launch) const {
    for (const std::uint32_t kind : {KIND_CONCURRENT_KERNEL, KIND_KERNEL}) {
        const auto of_context = context_kinds_.find({launch.context_handle, kind});
        if (of_context != context_kinds_.end() ? of_context->second : kinds_.count(kind) != 0)
            return kind;
    }
    return 0;
}

void ActivityCollector::drop_pending() {
    for (const auto &buffer : buffers_) {
        std::size_t dropped = 0;
        std::erase_if(buffer->records, [&](const KernelPointer &kernel) {
            if (kernel->is_complete())
                return false;
            kernel->buffer = nullptr;
            kernel->fate = "dropped_by_disable";
            dropped++;
            return true;
        });
        dropped_ += dropped;
        dropped_in_all_ += dropped;
    }
}

void ActivityCollector::log_kernel(const TrackedKernel &kernel) const {
    if (!log_.has_file())
        return;
    const KernelLaunch &launch = kernel.launch;
    const auto time = [](std::uint64_t ns) { return ns != 0 ? std::to_string(ns) : "null"; };
    log_.write("kernel",
               fmt::format(R"("id":{},"correlation":{},"name":{},"nccl":{},"launched_ns":{},)"
                           R"("decided_ns":{},)"
                           R"("start_ns":{},"end_ns":{},"device":{},"context":{},"stream":{},)"
                           R"("channel":{},"graph":{},"graph_node":{},"grid":[{},{},{}],)"
                           R"("block":[{},{},{}],"cluster":[{},{},{}],"record":"{}")",
                           launch.id, launch.correlation, quoted(launch.name), launch.is_nccl,
                           launch.launched_ns, time(kernel.decided_ns), time(kernel.started_ns),
                           time(kernel.ended_ns), launch.device, launch.context, launch.stream,
                           launch.channel, launch.graph, launch.graph_node, launch.grid[0],
                           launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
                           launch.block[2], launch.cluster[0], launch.cluster[1], launch.cluster[2],
                           kernel.fate));
}

std::string ActivityCollector::finish() {
    const Lock lock(mutex_);
    for (const auto &[id, kernel] : running_)
        log_kernel(*kernel);
    std::size_t held = 0;
    for (const auto &buffer : buffers_)
        held += buffer->records.size();
    return fmt::format("\"kernels\":{},\"running\":{},\"delivered\":{},\"dropped\":{},"
                       "\"buffers_held\":{},\"records_held\":{}",
                       kernels_, running_.size(), delivered_, dropped_in_all_, buffers_.size(),
                       held);
}

} // namespace collwire::cupti_double
