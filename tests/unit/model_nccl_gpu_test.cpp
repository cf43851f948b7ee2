// SPDX-License-Identifier: Apache-2.0
// Records of GPU kernels, and the launches that they belong to.
#include <nlohmann/json.hpp>

#include "collwire/gpu_records.h"
#include "collwire/record_kinds.h"
#include "correlate/report/json_gpu.h"
#include "correlate/report/text_gpu.h"
#include "tests/support/model_of.h"
#include "tests/support/nccl_builder.h"

namespace collwire::nccl {
namespace {

using namespace collwire::test;

constexpr std::uint32_t PID = 100;
constexpr std::string_view ALL_GATHER = "ncclDevKernel_AllGather_RING_LL";

// One process with communicators on its devices, and a guest library that is armed at 11.5 s.
class GpuJob {
public:
    GpuJob() { state(11.5, CW_GPU_ARMED); }

    NcclBuilder &comm(std::uint64_t comm, std::int32_t cuda_dev, std::int32_t rank = 0) {
        ranks_.emplace_back(
            node_, RankOptions{
                       .pid = PID, .comm = comm, .hash = comm, .rank = rank, .cuda_dev = cuda_dev});
        return ranks_.back().comm();
    }
    // A call and its launch, with a block for each bit of the mask.
    static void launch(NcclBuilder &rank, double time, std::uint64_t channel_mask,
                       const std::vector<CallOptions> &tasks = {{}}, std::uint64_t shape = 0x51) {
        for (const CallOptions &task : tasks)
            rank.call(time - 0.001, task);
        if (shape != 0)
            rank.shape(time, shape, tasks, {rank.ring({.connection = SENDS_AT, .bytes = 1000})}, 2);
        rank.launch(time, shape, tasks, {.launched = ++launched, .channel_mask = channel_mask});
    }
    GpuJob &state(double time, cw_gpu_state state, std::uint64_t not_summed = 0) {
        auto record = make_record<cw_gpu_trace>(CW_KIND_GPU_TRACE, seconds(time), 0);
        record.tgid = PID;
        record.state.state = state;
        record.state.begin_ns = seconds(time) - 1000;
        record.state.end_ns = seconds(time) - 500;
        record.state.not_summed = not_summed;
        node_.add(record);
        return *this;
    }
    GpuJob &name(double time, std::uint16_t number, std::string_view text) {
        auto record = make_record<cw_gpu_name>(CW_KIND_GPU_NAME, seconds(time), 0);
        record.tgid = PID;
        record.name.name = number;
        set_text(record.name.text, text);
        node_.add(record);
        return *this;
    }
    GpuJob &kernel(double start, std::uint32_t blocks, std::uint16_t device = 0) {
        auto record = make_record<cw_gpu_kernel>(CW_KIND_GPU_KERNEL, seconds(start + 0.5), 0);
        record.tgid = PID;
        record.kernel.start_ns = seconds(start);
        record.kernel.end_ns = seconds(start + 0.01);
        record.kernel.correlation = ++correlation_;
        record.kernel.blocks = blocks;
        record.kernel.device = device;
        node_.add(record);
        return *this;
    }
    [[nodiscard]] model::Model model() { return model_of({node_.clock(20).end().bytes()}); }

private:
    NodeBuilder node_{{.flags = NCCL_NODE_FLAGS | CW_NODE_GPU}};
    std::vector<NcclBuilder> ranks_ = [] {
        std::vector<NcclBuilder> ranks;
        ranks.reserve(8);
        return ranks;
    }();
    std::uint32_t correlation_ = 0;
    static inline std::uint64_t launched = 0;
};

const GpuTrace &trace_of(const model::Model &model, std::uint16_t device) {
    for (const GpuTrace &trace : model.nccl.gpu.traces)
        if (trace.device == device)
            return trace;
    ADD_FAILURE() << "no device " << device;
    static const GpuTrace none;
    return none;
}

TEST(NcclGpu, AStateThatSegmentsRepeatIsOneState) {
    GpuJob job;
    job.name(11.5, 0, ALL_GATHER);
    NcclBuilder &rank = job.comm(0xc0, 0);
    GpuJob::launch(rank, 12, 0b11);
    job.kernel(12, 2).state(11.5, CW_GPU_ARMED).name(11.5, 0, ALL_GATHER).kernel(13, 2);
    GpuJob::launch(rank, 13, 0b11);
    const model::Model model = job.model();
    ASSERT_EQ(model.nccl.gpu.guests.size(), 1U);
    EXPECT_EQ(model.nccl.gpu.guests[0].spans.size(), 1U);
    EXPECT_EQ(trace_of(model, 0).exact, 2U);
    EXPECT_EQ(trace_of(model, 0).traced_launches, 2U);
}

TEST(NcclGpu, NamesThatComeAfterTheirKernelsAreKnown) {
    GpuJob job;
    NcclBuilder &rank = job.comm(0xc0, 0);
    GpuJob::launch(rank, 12, 0b11);
    job.kernel(12, 2).name(12.9, 0, ALL_GATHER).kernel(13, 2);
    GpuJob::launch(rank, 13, 0b11);
    const model::Model model = job.model();
    const GpuProcess &process = model.nccl.gathered.gpu_processes.at(0);
    EXPECT_TRUE(process.unknown_names.empty());
    EXPECT_EQ(process.kernels.at(0).func, CW_NCCL_ALL_GATHER);
    EXPECT_EQ(process.kernels.at(1).func, CW_NCCL_ALL_GATHER);
}

TEST(NcclGpu, ANameThatNeverComesIsCounted) {
    GpuJob job;
    NcclBuilder &rank = job.comm(0xc0, 0);
    GpuJob::launch(rank, 12, 0b11);
    job.kernel(12, 2);
    const model::Model model = job.model();
    EXPECT_EQ(model.nccl.gathered.gpu_processes.at(0).unknown_names.at(""), 1U);
}

TEST(NcclGpu, AKernelOfSeveralTasksHasABlockForEachChannelOfTheirUnion) {
    GpuJob job;
    job.name(11.5, 0, ALL_GATHER);
    NcclBuilder &rank = job.comm(0xc0, 0);
    const std::vector<CallOptions> two = {{.buffer = 0x1000}, {.buffer = 0x2000}};
    GpuJob::launch(rank, 12, 0b111, two, 0x52);
    GpuJob::launch(rank, 13, 0b1111, two, 0x53);
    job.kernel(12, 3).kernel(13, 3);
    const model::Model model = job.model();
    EXPECT_EQ(trace_of(model, 0).exact, 1U);
    EXPECT_EQ(trace_of(model, 0).contradicted, 1U);
}

TEST(NcclGpu, TheKernelOfSeveralBroadcastsIsNoBroadcast) {
    GpuJob job;
    job.name(11.5, 0, "ncclDevKernel_AllGatherV_RING_LL");
    NcclBuilder &rank = job.comm(0xc0, 0);
    const std::vector<CallOptions> two = {{.func = CW_NCCL_BROADCAST, .buffer = 0x1000},
                                          {.func = CW_NCCL_BROADCAST, .buffer = 0x2000}};
    GpuJob::launch(rank, 12, 0b1, two, 0x52);
    job.kernel(12, 1);
    EXPECT_EQ(trace_of(job.model(), 0).exact, 1U);
}

TEST(NcclGpu, CommunicatorsOnSeveralDevicesOfAProcessAreJoinedByDevice) {
    GpuJob job;
    job.name(11.5, 0, ALL_GATHER);
    NcclBuilder &first = job.comm(0xc0, 0), &second = job.comm(0xc1, 1),
                &also_first = job.comm(0xc2, 0);
    for (int i = 0; i < 4; ++i) {
        GpuJob::launch(first, 12 + i, 0b1);
        GpuJob::launch(second, 12.1 + i, 0b11);
        GpuJob::launch(also_first, 12.2 + i, 0b111);
        // The GPU's order is another one than the host's.
        job.kernel(12.3 + i, 1, 0).kernel(12.2 + i, 2, 1).kernel(12.4 + i, 3, 0);
    }
    const model::Model model = job.model();
    EXPECT_EQ(trace_of(model, 0).exact, 8U);
    EXPECT_EQ(trace_of(model, 1).exact, 4U);
    EXPECT_EQ(model.nccl.gpu.traces.size(), 2U);
    for (std::size_t stream = 0; stream < 3; ++stream)
        for (const auto &[process, kernel] : model.nccl.gpu.kernel_of_launch.at(stream))
            EXPECT_EQ(model.nccl.gathered.gpu_processes.at(process).kernels.at(kernel).blocks,
                      stream + 1);
}

TEST(NcclGpu, KernelsInNoWindowAreReported) {
    GpuJob job;
    NcclBuilder &rank = job.comm(0xc0, 0);
    GpuJob::launch(rank, 12, 0b11);
    job.kernel(12, 2).state(13, CW_GPU_RUNNING, 1234);
    const model::Model model = job.model();
    EXPECT_EQ(report::gpu_json(model)["processes"][0]["not_summed"], 1234);
    EXPECT_NE(report::gpu_text(model, {}).find("1,234 kernel(s) of any kind in no window"),
              std::string::npos);
}

} // namespace
} // namespace collwire::nccl
