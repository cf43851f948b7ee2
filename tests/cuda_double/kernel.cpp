// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/kernel.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <deque>
#include <list>
#include <optional>
#include <utility>

#include "tests/cuda_double/profiler_counters.h"
#include "tests/cuda_double/schedules.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

// One block of a kernel: its batches one after the other.
class ChannelRun {
public:
    ChannelRun(const Communicator &communicator, int id, int first_batch)
        : channel_(communicator, id), counters_(communicator, channel_), next_(first_batch) {}

    // True when it has ended.
    bool advance(const Communicator &communicator, WorkReader &reader, KernelTruth &truth,
                 bool &progressed) {
        while (!ended_) {
            if (phases_.empty()) {
                next_batch({communicator, channel_, truth}, reader);
                progressed = true;
            } else if (advance_phase(phases_.front(), progressed)) {
                phases_.pop_front();
            } else {
                return false;
            }
        }
        return true;
    }

    [[nodiscard]] std::string state() const {
        std::string text;
        if (!phases_.empty()) {
            for (const auto &run : phases_.front())
                text += run ? fmt::format(" [{}]", run->state()) : "";
        }
        return text;
    }

private:
    static bool advance_phase(Phase &phase, bool &progressed) {
        bool all_ended = true;
        for (auto &run : phase) {
            if (run && run->advance(progressed))
                run.reset();
            all_ended = all_ended && !run;
        }
        return all_ended;
    }

    void next_batch(const ChannelContext &context, WorkReader &reader) {
        if (profiled_)
            counters_.batch_ended(*profiled_);
        if (!next_) {
            counters_.kernel_ended();
            ended_ = true;
            return;
        }
        Batch batch = reader.read_batch(channel_, *next_, context.truth);
        next_ = batch.next;
        profiled_ = batch.profiled;
        counters_.batch_started(*profiled_);
        for (const Collective &collective : batch.collectives)
            phases_.push_back(schedule_collective(context, collective));
        for (const LocalCopy &copy : batch.copies)
            std::memmove(copy.to, copy.from, copy.bytes);
        if (!batch.transfers.empty())
            phases_.push_back(schedule_transfers(context, batch.transfers));
        if (!batch.broadcasts.empty())
            phases_.push_back(
                schedule_broadcasts(context, batch.function, std::move(batch.broadcasts)));
    }

    Channel channel_;
    ProfilerCounters counters_;
    std::optional<int> next_;
    std::optional<std::vector<bool>> profiled_; // of the batch that runs
    std::deque<Phase> phases_;
    bool ended_ = false;
};

class NcclKernel : public WorkItem {
public:
    NcclKernel(std::string name, std::unique_ptr<WorkReader> reader)
        : name_(std::move(name)), reader_(std::move(reader)),
          communicator_(reader_->communicator()) {}

    bool advance(bool &progressed) override {
        if (begun_ns_ == 0) {
            begun_ns_ = now_ns();
            truth_.set_host(host_communicator_of(communicator_));
            start_channels();
            progressed = true;
        }
        bool all_ended = true;
        bool moved = false;
        for (ChannelRun &channel : channels_) {
            if (!channel.advance(communicator_, *reader_, truth_, moved))
                all_ended = false;
        }
        progressed = progressed || moved;
        const bool is_aborted = !all_ended && !moved && ask_for_abort();
        if (!all_ended && !is_aborted)
            return false;
        if (is_aborted)
            note(fmt::format("{} aborted, as its communicator is", name_));
        truth_.write(
            {name_, communicator_, reader_->channel_mask(), launched_ns_, begun_ns_, is_aborted});
        return true;
    }

    [[nodiscard]] std::string state() const override {
        std::string text = name_;
        for (const ChannelRun &channel : channels_)
            text += channel.state();
        return text;
    }

private:
    static constexpr unsigned kRoundsPerQuestion = 256;

    void start_channels() {
        int block = 0;
        for (int id = 0; id < kMostChannels; id++) {
            if ((reader_->channel_mask() >> id & 1) != 0)
                channels_.emplace_back(communicator_, id, block++);
        }
    }

    bool ask_for_abort() {
        return ++idle_rounds_ % kRoundsPerQuestion == 0 && communicator_.aborted();
    }

    std::string name_;
    std::unique_ptr<WorkReader> reader_;
    Communicator communicator_;
    std::list<ChannelRun> channels_;
    KernelTruth truth_;
    std::uint64_t launched_ns_ = now_ns();
    std::uint64_t begun_ns_ = 0;
    unsigned idle_rounds_ = 0;
};

// A communicator of one rank: PreMulSum without anyone to talk to.
class OneRankKernel : public WorkItem {
public:
    explicit OneRankKernel(const Launch &launch) : name_(launch.kernel) {
        const char *at = launch.arguments.data();
        const auto take = [&](auto &value) {
            std::memcpy(&value, at, sizeof value);
            at += sizeof value;
        };
        take(output_);
        take(input_);
        take(elements_);
        take(argument_);
        take(is_address_);
        function_.type = type_in(name_);
    }

    bool advance(bool &) override {
        ReductionOperator op{Reduction::PreMulSum, function_.type, 0};
        op.argument = reduction_argument(function_, argument_, is_address_);
        std::memmove(output_, input_, elements_ * bytes_of(op.type));
        scale_input(op, output_, elements_);
        return true;
    }
    [[nodiscard]] std::string state() const override { return name_; }

private:
    // The template argument, mangled (its name does not demangle everywhere) or demangled.
    static DataType type_in(const std::string &kernel) {
        static const std::array<std::pair<const char *, DataType>, 10> kTypes = {
            {{"<signed char>", DataType::Int8},
             {"<unsigned char>", DataType::Uint8},
             {"<int>", DataType::Int32},
             {"<unsigned int>", DataType::Uint32},
             {"<long>", DataType::Int64},
             {"<unsigned long>", DataType::Uint64},
             {"<__half>", DataType::Float16},
             {"<float>", DataType::Float32},
             {"<double>", DataType::Float64},
             {"<__nv_bfloat16>", DataType::Bfloat16}}};
        for (const auto &[text, type] : kTypes) {
            if (kernel.find(text) != std::string::npos)
                return type;
        }
        fatal(fmt::format("{}: its type has no double. Fix: another data type", kernel));
    }

    std::string name_;
    Function function_;
    void *output_ = nullptr;
    const void *input_ = nullptr;
    std::size_t elements_ = 0;
    std::uint64_t argument_ = 0;
    bool is_address_ = false;
};

bool is_one_rank(const std::string &kernel) {
    return kernel.find("oneRankReduce") != std::string::npos;
}

void require_double(const std::string &kernel) {
    const bool is_known = kernel.find("ncclDevKernel_") != std::string::npos || is_one_rank(kernel);
    if (!is_known)
        fatal(fmt::format("kernel {} has no double. Fix: switch the feature that launches it off "
                          "(README.md)",
                          kernel.empty() ? "without a name" : kernel));
    if (!has_known_fifo())
        fatal(
            fmt::format("kernel {}: kernels of NCCL before 2.20 have no double. Fix: NCCL 2.20 or "
                        "later",
                        kernel));
}

} // namespace

std::vector<std::size_t> parameter_bytes(const std::string &kernel) {
    constexpr std::size_t kArgumentsBytes = 4096; // ncclDevKernelArgsStorage
    require_double(kernel);
    if (is_one_rank(kernel))
        return {8, 8, 8, 8, 1};
    return has_batches() ? std::vector<std::size_t>{kArgumentsBytes}
                         : std::vector<std::size_t>{8, 8, 8};
}

std::unique_ptr<WorkItem> make_kernel(const Launch &launch) {
    require_double(launch.kernel);
    if (is_one_rank(launch.kernel))
        return std::make_unique<OneRankKernel>(launch);
    return std::make_unique<NcclKernel>(launch.kernel, has_batches()
                                                           ? make_batch_reader(launch.arguments)
                                                           : make_element_reader(launch.arguments));
}

} // namespace collwire::cuda_double
