// SPDX-License-Identifier: Apache-2.0
#include "cupti/kernels.h"

#include "cupti_received.h"
#include "cupti_records.h"

#include <barrier>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace collwire::cupti {
namespace {

constexpr const char *ALL_REDUCE =
    "_Z39ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE";

Result get_timestamp(uint64_t *time) {
    *time = monotonic_ns();
    return SUCCESS;
}

class CuptiKernels : public testing::Test {
protected:
    void SetUp() override {
        take_received();
        functions_.get_timestamp = get_timestamp;
        functions_.get_next_record = next_record;
        ASSERT_TRUE(windows_.take());
        ASSERT_TRUE(clock_.read_pair(functions_));
        kernels_.begin();
        now_ns_ = monotonic_ns();
    }
    void TearDown() override { windows_.give_back(); }

    void read(const std::vector<KernelRecord> &records) {
        std::vector<uint64_t> memory(records.size() * RECORD_BYTES / 8);
        auto *buffer = reinterpret_cast<uint8_t *>(memory.data());
        for (size_t i = 0; i < records.size(); ++i)
            write_record(buffer, i, records[i]);
        kernels_.read(functions_, buffer, memory.size() * 8);
    }

    cw_gpu_state_item counts() const {
        cw_gpu_state_item state = {};
        kernels_.add_counts(state);
        return state;
    }

    KernelRecord record(const char *name, uint64_t took_ns = 1'000) const {
        return kernel_record(name, now_ns_, now_ns_ + took_ns);
    }

    Functions functions_ = {};
    Windows windows_;
    Clock clock_;
    Kernels kernels_ = {clock_, windows_};
    uint64_t now_ns_ = 0;
};

TEST_F(CuptiKernels, AHandOverHas64AtMost) {
    read(std::vector<KernelRecord>(130, record(ALL_REDUCE)));
    const Received received = take_received();
    ASSERT_EQ(received.batches.size(), 4U);
    EXPECT_EQ(received.batches[0].item, CW_GPU_ITEM_NAME); // before the first kernel that has it
    EXPECT_EQ(received.batches[1].count, 64U);
    EXPECT_EQ(received.batches[2].count, 64U);
    EXPECT_EQ(received.batches[3].count, 2U);
    EXPECT_EQ(received.kernels.size(), 130U);
    EXPECT_EQ(counts().kernels, 130U);
    EXPECT_EQ(counts().unknown_names, 0U);
}

TEST_F(CuptiKernels, AKernelHasTheRecordsFields) {
    KernelRecord full = record(ALL_REDUCE, 7'000);
    full.device = 5;
    full.context = 11;
    full.stream = 13;
    full.correlation = 17;
    full.graph = 19;
    full.graph_node = (uint64_t{23} << 32) + 29;
    full.grid[0] = 24;
    full.block[0] = 32;
    full.block[1] = 17;
    full.cluster[0] = 4;
    full.cluster[1] = full.cluster[2] = 1;
    read({full});
    const Received received = take_received();
    ASSERT_EQ(received.kernels.size(), 1U);
    const cw_gpu_kernel_item &kernel = received.kernels[0];
    EXPECT_EQ(kernel.end_ns - kernel.start_ns, 7'000U);
    EXPECT_LE(kernel.start_ns - now_ns_ + clock_.error_ns(), 2 * clock_.error_ns());
    EXPECT_EQ(kernel.device, 5);
    EXPECT_EQ(kernel.context, 11U);
    EXPECT_EQ(kernel.stream, 13U);
    EXPECT_EQ(kernel.correlation, 17U);
    EXPECT_EQ(kernel.graph, 19U);
    EXPECT_EQ(kernel.graph_node, (uint64_t{23} << 32) + 29);
    EXPECT_EQ(kernel.blocks, 24U);
    EXPECT_EQ(kernel.threads, 544);
    EXPECT_EQ(kernel.cluster, 4);
    EXPECT_EQ(kernel.flags, 0);
    EXPECT_EQ(kernel.reserved, 0);
    ASSERT_EQ(received.names.size(), 1U);
    EXPECT_EQ(received.names[0].name, kernel.name);
    EXPECT_STREQ(received.names[0].text, ALL_REDUCE);
    EXPECT_EQ(received.names[0].is_truncated, 0);
}

TEST_F(CuptiKernels, ASizeThatDoesNotFitIsTheLargest) {
    KernelRecord huge = record(ALL_REDUCE);
    for (int i = 0; i < 3; ++i)
        huge.grid[i] = huge.block[i] = std::numeric_limits<int32_t>::max();
    huge.cluster[0] = huge.cluster[1] = 65'536;
    huge.cluster[2] = 0;
    read({huge});
    const Received received = take_received();
    ASSERT_EQ(received.kernels.size(), 1U);
    EXPECT_EQ(received.kernels[0].blocks, 0xffffffffU);
    EXPECT_EQ(received.kernels[0].threads, 0xffff);
    EXPECT_EQ(received.kernels[0].cluster, 0);
}

TEST_F(CuptiKernels, ANameIsHandedOverOncePerTrace) {
    const std::string other = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    read({record(ALL_REDUCE), record(other.c_str()), record(ALL_REDUCE)});
    read({record(other.c_str())});
    Received received = take_received();
    ASSERT_EQ(received.names.size(), 2U);
    EXPECT_NE(received.names[0].name, received.names[1].name);
    EXPECT_EQ(received.kernels[0].name, received.kernels[2].name);
    EXPECT_EQ(received.kernels[1].name, received.kernels[3].name);
    EXPECT_NE(received.kernels[0].name, received.kernels[1].name);
    read({record(ALL_REDUCE)});
    EXPECT_TRUE(take_received().names.empty());
    kernels_.begin();
    read({record(ALL_REDUCE)});
    received = take_received();
    ASSERT_EQ(received.names.size(), 1U);
    EXPECT_STREQ(received.names[0].text, ALL_REDUCE);
    EXPECT_EQ(counts().kernels, 6U); // of the process, not of the trace
}

TEST_F(CuptiKernels, ALongNameIsTruncatedAndFlagged) {
    const std::string fits = "ncclDevKernel_" + std::string(CW_GPU_NAME_BYTES - 15, 'a');
    const std::string longer = "ncclDevKernel_" + std::string(CW_GPU_NAME_BYTES - 14, 'b');
    read({record(fits.c_str()), record(longer.c_str()), record(longer.c_str())});
    const Received received = take_received();
    ASSERT_EQ(received.names.size(), 2U);
    EXPECT_EQ(received.names[0].text, fits);
    EXPECT_EQ(received.names[0].is_truncated, 0);
    EXPECT_EQ(received.names[1].text, longer.substr(0, CW_GPU_NAME_BYTES - 1));
    EXPECT_EQ(received.names[1].is_truncated, 1);
}

TEST_F(CuptiKernels, NamesBeyondTheTableAreCounted) {
    std::vector<std::string> names;
    names.reserve(257);
    for (int i = 0; i < 257; ++i)
        names.push_back("ncclDevKernel_" + std::to_string(i));
    for (const std::string &name : names)
        read({record(name.c_str())});
    const Received received = take_received();
    EXPECT_EQ(received.names.size(), 256U);
    std::set<uint16_t> numbers;
    for (const cw_gpu_name_item &name : received.names)
        numbers.insert(name.name);
    EXPECT_EQ(numbers.size(), 256U);
    EXPECT_EQ(received.kernels.size(), 257U);
    EXPECT_EQ(received.kernels[256].name, CW_GPU_NO_NAME);
    EXPECT_NE(received.kernels[255].name, CW_GPU_NO_NAME);
    EXPECT_EQ(counts().unnamed, 1U);
}

TEST_F(CuptiKernels, UnknownNamesOfNcclAreHandedOverAndCounted) {
    read({record("ncclFutureKernel_AllReduce"), record("_Z17ncclOtherKernel42v"),
          record(ALL_REDUCE)});
    EXPECT_EQ(take_received().kernels.size(), 3U);
    EXPECT_EQ(counts().kernels, 3U);
    EXPECT_EQ(counts().unknown_names, 2U);
}

TEST_F(CuptiKernels, OtherKernelsAreOnlySummed) {
    KernelRecord nameless = record(nullptr, 2'000'000);
    nameless.device = 1;
    read({record("_ZN2at6native29vectorized_elementwise_kernelILi4EEEvv", 4'000'000), nameless,
          record(ALL_REDUCE, 3'000'000)});
    Received received = take_received();
    EXPECT_EQ(received.kernels.size(), 1U);
    EXPECT_EQ(received.names.size(), 1U);
    EXPECT_EQ(counts().other_kernels, 2U);
    EXPECT_EQ(counts().kernels, 1U);
    windows_.hand_over_until(now_ns_ + 1'000'000'000);
    received = take_received();
    std::map<int, cw_gpu_window_item> sums; // a device's windows together
    for (const cw_gpu_window_item &window : received.windows) {
        sums[window.device].busy_ns += window.busy_ns;
        sums[window.device].nccl_ns += window.nccl_ns;
        sums[window.device].overlap_ns += window.overlap_ns;
    }
    EXPECT_EQ(sums.size(), 2U);
    EXPECT_EQ(sums[0].busy_ns, 4'000'000U);
    EXPECT_EQ(sums[0].nccl_ns, 3'000'000U);
    EXPECT_EQ(sums[0].overlap_ns, 3'000'000U);
    EXPECT_EQ(sums[1].busy_ns, 2'000'000U);
}

TEST_F(CuptiKernels, RecordsWithoutTimesAreFromBeforeTheTrace) {
    read({kernel_record(ALL_REDUCE, 0, 0), kernel_record("at_kernel", 0, 0), record(ALL_REDUCE)});
    EXPECT_EQ(take_received().kernels.size(), 1U);
    EXPECT_EQ(counts().before_armed, 2U);
    EXPECT_EQ(counts().kernels, 1U);
    EXPECT_EQ(counts().other_kernels, 0U);
}

TEST_F(CuptiKernels, AKernelWithoutEndStillRuns) {
    read({kernel_record(ALL_REDUCE, now_ns_, 0)});
    Received received = take_received();
    ASSERT_EQ(received.kernels.size(), 1U);
    EXPECT_EQ(received.kernels[0].flags, CW_GPU_KERNEL_RUNNING);
    EXPECT_EQ(received.kernels[0].end_ns, 0U);
    EXPECT_GT(received.kernels[0].start_ns, 0U);
    windows_.hand_over_until(now_ns_ + 1'000'000'000);
    EXPECT_TRUE(take_received().windows.empty());
}

TEST_F(CuptiKernels, AKernelThatHasNotBegunHasNoTimes) {
    const uint64_t ahead_ns = now_ns_ + 110'000'000;
    read({kernel_record(ALL_REDUCE, ahead_ns, ahead_ns)});
    const Received received = take_received();
    ASSERT_EQ(received.kernels.size(), 1U);
    EXPECT_EQ(received.kernels[0].flags, CW_GPU_KERNEL_QUEUED);
    EXPECT_EQ(received.kernels[0].start_ns, 0U);
    EXPECT_EQ(received.kernels[0].end_ns, 0U);
    windows_.hand_over_until(now_ns_ + 1'000'000'000);
    EXPECT_TRUE(take_received().windows.empty());
}

TEST_F(CuptiKernels, AnEndBeforeTheStartIsFlagged) {
    read({kernel_record(ALL_REDUCE, now_ns_, now_ns_ - 1)});
    const Received received = take_received();
    ASSERT_EQ(received.kernels.size(), 1U);
    EXPECT_EQ(received.kernels[0].flags, CW_GPU_KERNEL_ODD_TIME);
    EXPECT_EQ(received.kernels[0].start_ns - received.kernels[0].end_ns, 1U);
}

// A forced flush delivers kernels that have not begun.
TEST_F(CuptiKernels, AKernelWithOneTimeIsQueuedAndHasNone) {
    read({kernel_record(ALL_REDUCE, now_ns_ + 110'000'000, now_ns_ + 110'000'000)});
    const Received received = take_received();
    ASSERT_EQ(received.kernels.size(), 1U);
    EXPECT_EQ(received.kernels[0].flags, CW_GPU_KERNEL_QUEUED);
    EXPECT_EQ(received.kernels[0].start_ns, 0U);
    EXPECT_EQ(received.kernels[0].end_ns, 0U);
    EXPECT_EQ(counts().kernels, 1U);
}

TEST_F(CuptiKernels, AnErrorOfCuptiIsKept) {
    EXPECT_EQ(kernels_.error(), SUCCESS);
    read({record(ALL_REDUCE)});
    EXPECT_EQ(kernels_.error(), SUCCESS); // the end of a buffer is none
    functions_.get_next_record = [](uint8_t *, size_t, void **) { return 999; };
    read({record(ALL_REDUCE)});
    EXPECT_EQ(kernels_.error(), 999);
    EXPECT_EQ(take_received().kernels.size(), 1U);
}

TEST_F(CuptiKernels, RecordsOfOtherKindsAreSkipped) {
    KernelRecord memory_copy = record(ALL_REDUCE);
    memory_copy.kind = 1;
    read({memory_copy, record(ALL_REDUCE), memory_copy});
    EXPECT_EQ(take_received().kernels.size(), 1U);
    EXPECT_EQ(counts().kernels, 1U);
}

// CUPTI completes buffers on several threads. Each name has one text, and is there before a kernel
// has it.
TEST_F(CuptiKernels, ThreadsShareTheNames) {
    constexpr int THREADS = 4, NAMES = 60, ROUNDS = 100;
    std::vector<std::string> names;
    names.reserve(NAMES);
    for (int i = 0; i < NAMES; ++i)
        names.push_back("ncclDevKernel_" + std::to_string(i));
    std::vector<KernelRecord> records;
    records.reserve(NAMES);
    for (const std::string &name : names)
        records.push_back(record(name.c_str()));
    for (int round = 0; round < ROUNDS; ++round) {
        kernels_.begin();
        std::barrier start(THREADS);
        {
            std::vector<std::jthread> threads;
            threads.reserve(THREADS);
            for (int i = 0; i < THREADS; ++i)
                threads.emplace_back([&] {
                    start.arrive_and_wait();
                    read(records);
                });
        }
        const Received received = take_received();
        ASSERT_EQ(received.kernels.size(), static_cast<size_t>(THREADS * NAMES));
        std::map<uint16_t, std::string> texts;
        for (const cw_gpu_name_item &name : received.names)
            ASSERT_TRUE(texts.try_emplace(name.name, name.text).second) << name.name;
        std::map<std::string, int> kernels;
        for (const cw_gpu_kernel_item &kernel : received.kernels)
            ++kernels[texts.at(kernel.name)];
        ASSERT_EQ(kernels.size(), static_cast<size_t>(NAMES));
        for (const auto &[text, count] : kernels)
            ASSERT_EQ(count, THREADS) << text;
    }
    EXPECT_EQ(counts().unnamed, 0U);
    EXPECT_EQ(counts().kernels, static_cast<__u64>(THREADS * NAMES * ROUNDS));
}

TEST(CuptiKernelName, IsThatOfNcclWithOrWithoutMangling) {
    EXPECT_STREQ(nccl_kernel_name("ncclDevKernel_SendRecv"), "ncclDevKernel_SendRecv");
    EXPECT_STREQ(nccl_kernel_name("_Z23ncclDevKernel_SendRecvv"), "ncclDevKernel_SendRecvv");
    EXPECT_EQ(nccl_kernel_name("_ZN4nccl6kernelEv"), nullptr);
    EXPECT_EQ(nccl_kernel_name("my_ncclDevKernel"), nullptr);
    EXPECT_EQ(nccl_kernel_name("_Z"), nullptr);
    EXPECT_EQ(nccl_kernel_name("_"), nullptr);
    EXPECT_EQ(nccl_kernel_name(""), nullptr);
}

TEST(CuptiKernelName, OfEachReleaseIsKnown) {
    for (const char *name : {"ncclKernel_AllReduce_RING_LL_Sum_int8_t", // 2.18
                             "ncclDevKernel_Generic", "ncclSymDevKernel_AllReduce_RSxLD_AGxST_f32",
                             "ncclSymkDevKernel_AllGather_LL"})
        EXPECT_TRUE(is_known_nccl_kernel(name)) << name;
    EXPECT_FALSE(is_known_nccl_kernel("ncclKernels"));
    EXPECT_FALSE(is_known_nccl_kernel("nccl"));
}

} // namespace
} // namespace collwire::cupti
