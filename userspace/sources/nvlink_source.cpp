// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nvlink_source.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/clock.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/files.h"
#include "userspace/nvidia/nvlink_look.h"
#include "userspace/nvidia/nvml_abi.h"

namespace collwire::sources {
namespace {

namespace nvml = nvidia::nvml;
using nvidia::NvmlEvent;

constexpr std::uint64_t MAX_RETRY_NS = 600'000'000'000;
constexpr std::uint64_t NS_PER_S = 1'000'000'000;
constexpr std::uint64_t AFTER_KILL_NS = 50'000'000; // a process that can be killed has exited then

std::string address_of(const cw_nvlink_gpu &gpu) {
    return nvidia::pci_address_of(gpu.bus_id);
}

bool counts_bytes(unsigned field) {
    return (field >= nvml::THROUGHPUT_DATA_TX && field <= nvml::THROUGHPUT_RAW_RX) ||
           field == nvml::COUNT_XMIT_BYTES || field == nvml::COUNT_RCV_BYTES;
}

} // namespace

Result<void> NvlinkSource::prepare() {
    has_driver_ = inventory::exists(options_.driver_directory);
    start();
    const std::uint64_t since_ns = monotonic_ns();
    const auto most_ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(options_.prepare_wait).count());
    while (process_.runs() && !is_ready_ && monotonic_ns() - since_ns < most_ns) {
        process_.wait(std::chrono::milliseconds{100});
        pump();
    }
    return {};
}

void NvlinkSource::start() {
    nvidia::NvmlProcess::Options options;
    options.library = options_.library;
    options.interval_ns = options_.interval_ns;
    options.epoch = epoch_ + 1;
    const std::uint64_t now_ns = monotonic_ns();
    for (auto &[index, gpu] : gpus_) {
        if (!gpu.is_silent)
            continue;
        if (now_ns < gpu.retry_ns)
            options.skipped.insert(index);
        else // until its reading comes back, or is given up again
            gpu.retry_ns = now_ns + MAX_RETRY_NS;
    }
    is_ready_ = false;
    reading_.reset();
    if (auto started = process_.start(options); !started) {
        fail(0, started.failure().message);
        return;
    }
    ++epoch_;
    failure_.clear();
    started_ns_ = monotonic_ns();
}

// What was asked for later than now.
void NvlinkSource::read_now() {
    const std::uint64_t since_ns = monotonic_ns();
    const auto most_ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(options_.round_wait).count());
    pump();
    if (!is_ready_ || !has_links())
        return;
    process_.ask_now();
    const auto is_read = [this, since_ns] {
        return std::ranges::all_of(gpus_, [since_ns](const auto &entry) {
            const Gpu &gpu = entry.second;
            return gpu.record.links == 0 || gpu.is_silent || gpu.begin_ns >= since_ns;
        });
    };
    while (process_.runs() && !is_read() && monotonic_ns() - since_ns < most_ns) {
        process_.wait(std::chrono::milliseconds{20});
        pump();
    }
}

bool NvlinkSource::has_links() const {
    return std::ranges::any_of(gpus_,
                               [](const auto &entry) { return entry.second.record.links != 0; });
}

void NvlinkSource::pump() {
    const bool ran = process_.runs();
    while (const auto message = process_.next())
        take(*message);
    const std::uint64_t now_ns = monotonic_ns();
    const bool is_idle = is_absent_ || (is_ready_ && !has_links());
    if (ran && !process_.runs() && failure_.empty() && !is_idle) {
        append_gap(reading_ ? reading_->second : now_ns,
                   reading_ ? reading_->first : CW_NVLINK_ALL_GPUS, CW_NVLINK_EXITED, 0);
        fail(0, "the process that reads NVML has exited");
    }
    watch(now_ns);
    restart_if_due(now_ns);
}

void NvlinkSource::take(const nvidia::NvmlMessage &message) {
    switch (message.event) {
    case NvmlEvent::Absent:
        is_absent_ = true;
        failure_ = message.text;
        process_.abandon();
        break;
    case NvmlEvent::Failed:
        append_gap(monotonic_ns(), CW_NVLINK_ALL_GPUS, CW_NVLINK_FAILED, message.result);
        fail(message.result, message.text);
        process_.abandon();
        break;
    case NvmlEvent::Ready:
        is_ready_ = true;
        restart_after_ns_ = 0;
        if (!has_links()) // nothing to read, and NVML keeps the driver's device files open
            process_.abandon();
        break;
    case NvmlEvent::Begin:
        reading_ = {message.gpu, message.time_ns};
        break;
    case NvmlEvent::Record: {
        const cw_header &header = message.header();
        if (header.kind == CW_KIND_NVLINK_GPU && header.length_bytes == sizeof(cw_nvlink_gpu)) {
            Gpu &gpu = gpus_[message.gpu];
            gpu.record = reinterpret_cast<const cw_nvlink_gpu &>(header);
            gpu.is_written = false;
        } else if (header.kind == CW_KIND_NVLINK_SAMPLE) {
            cw_nvlink_sample head{};
            std::memcpy(&head, &header, sizeof head);
            std::vector<cw_nvlink_value> values((header.length_bytes - sizeof head) /
                                                sizeof(cw_nvlink_value));
            if (!values.empty())
                std::memcpy(values.data(),
                            reinterpret_cast<const std::byte *>(&header) + sizeof head,
                            values.size() * sizeof(cw_nvlink_value));
            take_sample(head, std::move(values));
            reading_.reset();
        }
        break;
    }
    case NvmlEvent::Round:
        reading_.reset();
        ++rounds_;
        break;
    }
}

void NvlinkSource::take_sample(const cw_nvlink_sample &head, std::vector<cw_nvlink_value> values) {
    Gpu &gpu = gpus_[head.gpu];
    if (gpu.epoch != head.epoch)
        gpu.answers.clear();
    gpu.epoch = head.epoch;
    gpu.begin_ns = head.read_begin_ns;
    gpu.time_ns = head.header.time_ns;
    gpu.is_silent = false;
    gpu.retry_after_ns = 0;
    std::erase_if(values, [&gpu](const cw_nvlink_value &value) {
        const Answer now{value.type, value.result, value.value};
        const auto [before, is_new] = gpu.answers.try_emplace({value.field, value.link}, now);
        const bool is_same = !is_new && before->second == now;
        before->second = now;
        return is_same;
    });
    if (!gpu.is_written) {
        pending_.append(gpu.record.header);
        gpu.is_written = true;
    }
    append_sample(pending_, head, values);
}

void NvlinkSource::fail(int result, std::string why) {
    failure_ =
        why.empty()
            ? fmt::format("NVML cannot be used (error {}). Fix: nvidia-smi says more", result)
            : std::move(why);
    restart_after_ns_ =
        restart_after_ns_ == 0 ? options_.retry_ns : std::min(2 * restart_after_ns_, MAX_RETRY_NS);
    restart_ns_ = monotonic_ns() + restart_after_ns_;
}

// Gives up a reading that does not come back. Its process is killed: whatever it waits for, the
// next process reads the other GPUs.
void NvlinkSource::watch(std::uint64_t now_ns) {
    if (!process_.runs())
        return;
    if (!is_ready_) {
        if (now_ns - started_ns_ < options_.start_ns)
            return;
        append_gap(started_ns_, CW_NVLINK_ALL_GPUS, CW_NVLINK_NO_ANSWER, 0);
        process_.abandon();
        fail(0, fmt::format("NVML did not start within {} s. Fix: nvidia-smi says which GPU is ill",
                            options_.start_ns / NS_PER_S));
        return;
    }
    if (!reading_ || now_ns - reading_->second < options_.answer_ns)
        return;
    const auto [index, since_ns] = *reading_;
    append_gap(since_ns, index, CW_NVLINK_NO_ANSWER, 0);
    Gpu &gpu = gpus_[index];
    gpu.is_silent = true;
    gpu.silent_ns = since_ns;
    gpu.retry_after_ns = gpu.retry_after_ns == 0 ? options_.retry_ns
                                                 : std::min(2 * gpu.retry_after_ns, MAX_RETRY_NS);
    gpu.retry_ns = now_ns + gpu.retry_after_ns;
    process_.abandon();
    reading_.reset();
    restart_ns_ = now_ns + AFTER_KILL_NS;
}

void NvlinkSource::restart_if_due(std::uint64_t now_ns) {
    if (has_ended_ || is_absent_)
        return;
    if (!process_.runs()) {
        if (epoch_ != 0 && is_ready_ && !has_links())
            return;
        if (restart_ns_ != 0 && now_ns >= restart_ns_)
            start();
        return;
    }
    // A GPU that was silent is tried again: a new process reads it.
    const bool is_due = std::ranges::any_of(gpus_, [now_ns](const auto &entry) {
        return entry.second.is_silent && now_ns >= entry.second.retry_ns;
    });
    if (is_due && is_ready_ && !reading_) {
        process_.abandon();
        restart_ns_ = now_ns + AFTER_KILL_NS;
    }
}

void NvlinkSource::append_gap(std::uint64_t begin_ns, std::uint32_t gpu,
                              cw_nvlink_gap_reason reason, int result) {
    cw_nvlink_gap gap{};
    gap.header = {sizeof gap, CW_KIND_NVLINK_GAP, CW_CPU_USERSPACE, monotonic_ns()};
    gap.begin_ns = begin_ns;
    gap.gpu = gpu;
    gap.reason = reason;
    gap.result = result;
    pending_.append(gap.header);
}

void NvlinkSource::append_sample(source::RecordSink &sink, const cw_nvlink_sample &head,
                                 const std::vector<cw_nvlink_value> &values) {
    cw_nvlink_sample record = head;
    record.n = static_cast<__u32>(values.size());
    record.header.length_bytes =
        static_cast<__u32>(sizeof record + values.size() * sizeof(cw_nvlink_value));
    std::vector<std::uint64_t> bytes(record.header.length_bytes / sizeof(std::uint64_t));
    std::memcpy(bytes.data(), &record, sizeof record);
    if (!values.empty())
        std::memcpy(bytes.data() + sizeof record / sizeof(std::uint64_t), values.data(),
                    values.size() * sizeof(cw_nvlink_value));
    sink.append(*reinterpret_cast<const cw_header *>(bytes.data()));
}

std::vector<cw_nvlink_value> NvlinkSource::all_values(const Gpu &gpu) const {
    std::vector<cw_nvlink_value> values;
    values.reserve(gpu.answers.size());
    for (const auto &[place, answer] : gpu.answers)
        values.push_back({place.first, place.second, answer.type, answer.result, answer.value});
    return values;
}

void NvlinkSource::sample(source::RecordSink &sink, bool everything) {
    pump();
    if (!everything)
        return pending_.hand_over([&sink](const cw_header &record) { sink.append(record); });
    // The answers contain what is pending, except for the gaps.
    pending_.hand_over([&sink](const cw_header &record) {
        if (record.kind == CW_KIND_NVLINK_GAP)
            sink.append(record);
    });
    for (auto &[index, gpu] : gpus_) {
        sink.append(gpu.record.header);
        gpu.is_written = true;
        if (gpu.time_ns == 0)
            continue;
        cw_nvlink_sample head{};
        head.header = {0, CW_KIND_NVLINK_SAMPLE, CW_CPU_USERSPACE, gpu.time_ns};
        head.read_begin_ns = gpu.begin_ns;
        head.gpu = index;
        head.epoch = gpu.epoch;
        append_sample(sink, head, all_values(gpu));
    }
}

std::vector<source::SourceState> NvlinkSource::states() const {
    if (is_absent_ && !has_driver_)
        return {{CW_SOURCE_OFF, failure_, ~0U}};
    if (is_absent_)
        return {{CW_SOURCE_UNAVAILABLE,
                 failure_ + ", but the driver is loaded. Fix: install the driver's user-space "
                            "libraries, or pass them into the container",
                 ~0U}};
    if (!failure_.empty())
        return {{is_ready_ || !gpus_.empty() ? CW_SOURCE_DEGRADED : CW_SOURCE_UNAVAILABLE, failure_,
                 ~0U}};
    if (!is_ready_)
        return {{CW_SOURCE_DEGRADED, "NVML has not listed the GPUs yet", ~0U}};
    if (!has_links())
        return {{CW_SOURCE_OFF, fmt::format("none of {} GPU(s) has NVLink", gpus_.size()), ~0U}};
    std::vector<source::SourceState> states;
    for (const auto &[index, gpu] : gpus_) {
        if (gpu.is_silent)
            states.push_back(
                {CW_SOURCE_DEGRADED,
                 fmt::format("GPU {}: NVML gave no answer for {} s: its NVLinks are "
                             "not measured. Fix: nvidia-smi -q -i {} shows its state",
                             address_of(gpu.record), options_.answer_ns / NS_PER_S, index),
                 ~0U});
        else if (gpu.record.links != 0 && gpu.time_ns != 0 &&
                 std::ranges::none_of(gpu.answers, [](const auto &entry) {
                     return counts_bytes(entry.first.first) && entry.second.result == nvml::SUCCESS;
                 }))
            states.push_back({CW_SOURCE_DEGRADED,
                              fmt::format("GPU {}: NVML has no NVLink byte counter for it: its "
                                          "bytes are not measured. Fix: a newer driver, or none on "
                                          "this GPU",
                                          address_of(gpu.record)),
                              ~0U});
    }
    if (states.empty())
        states.push_back({CW_SOURCE_ON, "", ~0U});
    return states;
}

std::vector<std::string> NvlinkSource::notes() const {
    std::vector<std::string> lines;
    for (const auto &[index, gpu] : gpus_)
        lines.push_back(fmt::format(
            "GPU {}: {}, NVLinks: {}", address_of(gpu.record),
            std::string_view(gpu.record.name, strnlen(gpu.record.name, sizeof gpu.record.name)),
            gpu.record.links));
    return lines;
}

} // namespace collwire::sources
