// SPDX-License-Identifier: Apache-2.0
// The NVLink source on the test double of NVML.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collwire/nvlink_records.h"
#include "collwire/record_kinds.h"
#include "userspace/nvidia/nvml_abi.h"
#include "userspace/sources/nvlink_source.h"

namespace collwire::sources {
namespace {

namespace nvml = nvidia::nvml;
using namespace std::chrono_literals;

constexpr std::uint64_t MS = 1'000'000;
constexpr unsigned ALL = CW_NVLINK_ALL_LINKS;
constexpr auto LIMIT = 30s;

// Records, as the capture would have them.
class Sink : public source::RecordSink {
public:
    struct Sample {
        cw_nvlink_sample head;
        std::vector<cw_nvlink_value> values;
    };
    void append(const cw_header &record) override {
        if (record.kind == CW_KIND_NVLINK_GPU)
            gpus.push_back(reinterpret_cast<const cw_nvlink_gpu &>(record));
        if (record.kind == CW_KIND_NVLINK_GAP)
            gaps.push_back(reinterpret_cast<const cw_nvlink_gap &>(record));
        if (record.kind != CW_KIND_NVLINK_SAMPLE)
            return;
        Sample sample{};
        std::memcpy(&sample.head, &record, sizeof sample.head);
        EXPECT_EQ(record.length_bytes,
                  sizeof sample.head + sample.head.n * sizeof(cw_nvlink_value));
        sample.values.resize(sample.head.n);
        if (sample.head.n != 0)
            std::memcpy(sample.values.data(),
                        reinterpret_cast<const std::byte *>(&record) + sizeof sample.head,
                        sample.head.n * sizeof(cw_nvlink_value));
        for (const cw_nvlink_value &value : sample.values)
            last[{sample.head.gpu, value.field, value.link}] = value;
        samples.push_back(std::move(sample));
    }
    [[nodiscard]] const cw_nvlink_value &at(unsigned gpu, unsigned field, unsigned link) const {
        static const cw_nvlink_value NONE{0, 0, 0, 0xffff, 0};
        const auto found = last.find({gpu, field, link});
        return found == last.end() ? NONE : found->second;
    }
    [[nodiscard]] std::size_t samples_of(unsigned gpu) const {
        std::size_t n = 0;
        for (const Sample &sample : samples)
            n += sample.head.gpu == gpu ? 1 : 0;
        return n;
    }

    std::vector<cw_nvlink_gpu> gpus;
    std::vector<cw_nvlink_gap> gaps;
    std::vector<Sample> samples;
    std::map<std::tuple<unsigned, unsigned, unsigned>, cw_nvlink_value> last;
};

class NvlinkSourceTest : public testing::Test {
protected:
    void SetUp() override {
        directory_ = std::filesystem::temp_directory_path() /
                     ("nvml_double." + std::to_string(getpid()) + "." +
                      testing::UnitTest::GetInstance()->current_test_info()->name());
        std::filesystem::create_directories(directory_);
        setenv("COLLWIRE_NVML_DOUBLE", (directory_ / "state").c_str(), 1);
        options_.library = NVML_DOUBLE;
        options_.driver_directory = directory_ / "driver";
        options_.interval_ns = 20 * MS;
        // Longer than the scheduler holds a healthy reading.
        options_.answer_ns = 20'000 * MS;
        options_.retry_ns = 200 * MS;
        options_.prepare_wait = 20s;
        options_.round_wait = 10s;
    }
    void TearDown() override {
        source_.reset();
        std::filesystem::remove_all(directory_);
    }

    // Replaces the double's state at once.
    void say(const std::string &text) const {
        std::ofstream(directory_ / "next") << text;
        std::filesystem::rename(directory_ / "next", directory_ / "state");
    }
    void record() {
        source_ = std::make_unique<NvlinkSource>(options_);
        ASSERT_TRUE(source_->prepare());
        ASSERT_TRUE(source_->attach());
        source_->baseline();
        source_->begin();
        source_->sample(sink_, true);
    }
    // Samples as the recorder does, until it is so.
    void sample_until(const std::function<bool()> &is_so) {
        const auto end = std::chrono::steady_clock::now() + LIMIT;
        while (!is_so()) {
            ASSERT_LT(std::chrono::steady_clock::now(), end);
            std::this_thread::sleep_for(5ms);
            const std::uint64_t since_ns = monotonic_ns();
            source_->sample(sink_, false);
            longest_ns_ = std::max(longest_ns_, monotonic_ns() - since_ns);
        }
    }
    [[nodiscard]] cw_source_state state() const { return source_->states().front().state; }
    [[nodiscard]] std::string reason() const { return source_->states().front().reason; }

    std::filesystem::path directory_;
    NvlinkOptions options_;
    std::unique_ptr<NvlinkSource> source_;
    Sink sink_;
    std::uint64_t longest_ns_ = 0; // of one sample()
};

constexpr const char *HOPPER = R"(gpu 0000:1b:00.0 GPU-5d2a
field 91 0 2 u32
field 138 all 1000
field 139 all 2000
refuse 140 all 3
refuse 141 all 3
field 138 0 600
field 138 1 400
field 162 0 5 u32
field 162 1 0 u32
field 165 0 1 u32
field 165 1 0 u32
)";

TEST_F(NvlinkSourceTest, WithoutTheLibraryTheSourceIsOffAndSaysWhy) {
    options_.library = directory_ / "libnvidia-ml.so.1";
    record();
    EXPECT_EQ(state(), CW_SOURCE_OFF);
    EXPECT_NE(reason().find("is not on this machine"), std::string::npos) << reason();
    EXPECT_FALSE(source_->has_nvidia());
    EXPECT_TRUE(sink_.samples.empty());
    EXPECT_TRUE(sink_.gaps.empty());
}

TEST_F(NvlinkSourceTest, WithoutTheLibraryAndWithTheDriverTheSourceIsUnavailable) {
    options_.library = directory_ / "libnvidia-ml.so.1";
    std::filesystem::create_directories(directory_ / "driver");
    record();
    EXPECT_EQ(state(), CW_SOURCE_UNAVAILABLE);
    EXPECT_NE(reason().find("Fix: "), std::string::npos) << reason();
    EXPECT_TRUE(source_->has_nvidia());
}

TEST_F(NvlinkSourceTest, GpusHaveTheAddressThatNcclHas) {
    say("gpu 0002:9b:00.0 GPU-77\nfield 91 0 1 u32\nfield 138 all 1\n");
    record();
    ASSERT_EQ(sink_.gpus.size(), 1U);
    EXPECT_EQ(sink_.gpus[0].bus_id, 0x29b000U); // "0002:9b:00.0" without its punctuation
    EXPECT_STREQ(sink_.gpus[0].uuid, "GPU-77");
    EXPECT_STREQ(sink_.gpus[0].driver, "580.65.06");
    EXPECT_EQ(sink_.gpus[0].links, 1U);
    EXPECT_EQ(state(), CW_SOURCE_ON) << reason();
}

TEST_F(NvlinkSourceTest, NvmlSaysWhichGpusAreConnectedByNvlink) {
    std::string text;
    for (int gpu = 0; gpu < 4; ++gpu)
        text += fmt::format("gpu 0000:{:x}:00.0 GPU-{}\nfield 91 0 1 u32\nfield 138 all 1\n"
                            "peer {} 0\npeer {} 5\n",
                            0x1b + gpu, gpu, gpu ^ 1, gpu ^ 2);
    say(text + "peer 0 6\n"); // of GPU 3: unknown
    record();
    ASSERT_EQ(sink_.gpus.size(), 4U);
    for (unsigned gpu = 0; gpu < 4; ++gpu) {
        EXPECT_EQ(sink_.gpus[gpu].nvlink_peers, std::uint64_t{1} << (gpu ^ 1U)) << gpu;
        EXPECT_EQ(sink_.gpus[gpu].other_peers, std::uint64_t{1} << (gpu ^ 2U)) << gpu;
    }
    // Not again with each reading.
    sample_until([this] { return sink_.samples_of(0) > 3; });
    EXPECT_EQ(sink_.gpus.size(), 4U);
}

TEST_F(NvlinkSourceTest, AbsentIsNotZero) {
    say(HOPPER);
    record();
    EXPECT_EQ(sink_.at(0, nvml::THROUGHPUT_DATA_TX, ALL).value, 1000U);
    EXPECT_EQ(sink_.at(0, nvml::THROUGHPUT_DATA_TX, ALL).result, nvml::SUCCESS);
    EXPECT_EQ(sink_.at(0, nvml::THROUGHPUT_DATA_TX, 1).value, 400U);
    EXPECT_EQ(sink_.at(0, nvml::THROUGHPUT_RAW_TX, ALL).result, nvml::NOT_SUPPORTED);
    EXPECT_EQ(sink_.at(0, nvml::COUNT_XMIT_BYTES, 0).result, nvml::NOT_SUPPORTED);
    EXPECT_EQ(sink_.at(0, nvml::ERROR_DL_RECOVERY, 0).value, 5U);
    EXPECT_EQ(sink_.at(0, nvml::ERROR_DL_RECOVERY, 1).value, 0U);
    EXPECT_EQ(sink_.at(0, nvml::ERROR_DL_RECOVERY, 1).result, nvml::SUCCESS);
    EXPECT_EQ(sink_.at(0, nvml::ERROR_DL_RECOVERY, 1).type, nvml::TYPE_UNSIGNED_INT);
}

TEST_F(NvlinkSourceTest, OnlyChangesAreWrittenAndEachReadingHasItsTimes) {
    say(HOPPER);
    record();
    sink_.samples.clear();
    sample_until([this] { return sink_.samples.size() >= 3; });
    for (const Sink::Sample &sample : sink_.samples) {
        EXPECT_TRUE(sample.values.empty());
        EXPECT_LE(sample.head.read_begin_ns, sample.head.header.time_ns);
    }
    std::string changed = HOPPER;
    changed.replace(changed.find("1000"), 4, "1001");
    sink_.samples.clear();
    say(changed);
    sample_until([this] { return sink_.at(0, nvml::THROUGHPUT_DATA_TX, ALL).value == 1001; });
    EXPECT_EQ(sink_.samples.back().values.size(), 1U);
}

TEST_F(NvlinkSourceTest, NewSegmentsStartWithAllAnswers) {
    say(HOPPER);
    record();
    Sink second;
    source_->sample(second, true);
    EXPECT_EQ(second.gpus.size(), 1U);
    ASSERT_EQ(second.samples.size(), 1U);
    EXPECT_EQ(second.last.size(), sink_.last.size());
}

TEST_F(NvlinkSourceTest, TheLastReadingIsOfTheEnd) {
    options_.interval_ns = 3'600'000 * MS;
    say(HOPPER);
    record();
    std::string changed = HOPPER;
    changed.replace(changed.find("1000"), 4, "7777");
    say(changed);
    const std::uint64_t since_ns = monotonic_ns();
    source_->end();
    source_->detach();
    source_->sample(sink_, false);
    EXPECT_EQ(sink_.at(0, nvml::THROUGHPUT_DATA_TX, ALL).value, 7777U);
    EXPECT_GE(sink_.samples.back().head.read_begin_ns, since_ns);
}

TEST_F(NvlinkSourceTest, NvLink5HasOtherFields) {
    say("gpu 0000:1b:00.0 GPU-1\nfield 91 0 1 u32\nfield 202 0 9000000000\nfield 204 0 8\n"
        "field 215 0 505\n");
    record();
    EXPECT_EQ(sink_.at(0, nvml::COUNT_XMIT_BYTES, 0).value, 9'000'000'000U);
    EXPECT_EQ(sink_.at(0, nvml::COUNT_LINK_RECOVERY_EVENTS, 0).value, 505U);
    EXPECT_EQ(sink_.at(0, nvml::THROUGHPUT_DATA_TX, ALL).result, nvml::NOT_SUPPORTED);
    EXPECT_EQ(state(), CW_SOURCE_ON) << reason();
}

TEST_F(NvlinkSourceTest, LinksAreFoundByTheirStateWhereTheFieldIsMissing) {
    say("gpu 0000:1b:00.0 GPU-1\nstate 0 1\nstate 3 0\nfield 138 all 1\n");
    record();
    EXPECT_EQ(sink_.gpus.at(0).links, 4U);
}

TEST_F(NvlinkSourceTest, WithoutNvLinksNothingRunsOn) {
    say("gpu 0000:1b:00.0 GPU-1\nfield 91 0 0 u32\n");
    record();
    EXPECT_EQ(state(), CW_SOURCE_OFF);
    EXPECT_EQ(reason(), "none of 1 GPU(s) has NVLink");
    EXPECT_TRUE(sink_.gaps.empty());
    ASSERT_EQ(sink_.gpus.size(), 1U);
    EXPECT_EQ(sink_.gpus[0].links, 0U);
}

TEST_F(NvlinkSourceTest, WithoutByteCountersTheSourceIsDegradedWithTheGpu) {
    say("gpu 0000:1b:00.0 GPU-1\nfield 91 0 1 u32\nfield 162 0 3 u32\n");
    record();
    EXPECT_EQ(state(), CW_SOURCE_DEGRADED);
    EXPECT_NE(reason().find("0000:1b:00.0"), std::string::npos) << reason();
    EXPECT_EQ(sink_.at(0, nvml::ERROR_DL_RECOVERY, 0).value, 3U);
}

TEST_F(NvlinkSourceTest, AGpuThatDoesNotAnswerIsGivenUpAndTheOthersAreReadOn) {
    options_.answer_ns = 2000 * MS;
    const std::string healthy = "gpu 0000:1c:00.0 GPU-2\nfield 91 0 1 u32\nfield 138 all 50\n";
    say(HOPPER + healthy);
    record();
    say(std::string(HOPPER) + "block\n" + healthy);
    sample_until([this] { return !sink_.gaps.empty(); });
    EXPECT_EQ(sink_.gaps[0].reason, static_cast<__u32>(CW_NVLINK_NO_ANSWER));
    EXPECT_EQ(sink_.gaps[0].gpu, 0U);
    EXPECT_LT(sink_.gaps[0].begin_ns, sink_.gaps[0].header.time_ns);
    EXPECT_EQ(state(), CW_SOURCE_DEGRADED);
    EXPECT_NE(reason().find("0000:1b:00.0: NVML gave no answer"), std::string::npos) << reason();
    // Listing the GPUs blocks, too: nothing can be read until it answers again.
    say(HOPPER + healthy);
    const std::size_t before = sink_.samples_of(1);
    sample_until([this, before] { return sink_.samples_of(1) > before + 2; });
    sample_until([this] { return state() == CW_SOURCE_ON; });
    EXPECT_EQ(sink_.samples.back().head.epoch, sink_.gpus.back().epoch);
    EXPECT_GT(sink_.gpus.back().epoch, 1U);
    EXPECT_LT(longest_ns_, 1000 * MS) << "the recorder waited for NVML";
}

TEST_F(NvlinkSourceTest, NvmlThatNeverStartsIsGivenUp) {
    options_.prepare_wait = 50ms;
    options_.start_ns = 1000 * MS;
    say("init-blocks\n" + std::string(HOPPER));
    record();
    if (sink_.gaps.empty()) // else the scheduler held this thread until it was given up
        EXPECT_EQ(reason(), "NVML has not listed the GPUs yet");
    sample_until([this] { return !sink_.gaps.empty(); });
    EXPECT_EQ(sink_.gaps[0].gpu, CW_NVLINK_ALL_GPUS);
    EXPECT_EQ(state(), CW_SOURCE_UNAVAILABLE);
    say(HOPPER);
    sample_until([this] { return state() == CW_SOURCE_ON; });
    EXPECT_EQ(sink_.at(0, nvml::THROUGHPUT_DATA_TX, ALL).value, 1000U);
}

TEST_F(NvlinkSourceTest, AReloadedDriverStartsANewEpochWithAllAnswers) {
    say(HOPPER);
    record();
    say("init 9\n" + std::string(HOPPER));
    sample_until([this] { return !sink_.gaps.empty(); });
    EXPECT_EQ(sink_.gaps[0].reason, static_cast<__u32>(CW_NVLINK_FAILED));
    EXPECT_EQ(sink_.gaps[0].result, nvml::DRIVER_NOT_LOADED);
    sink_.samples.clear();
    say(HOPPER);
    sample_until([this] { return !sink_.samples.empty() && sink_.samples.back().head.epoch > 1; });
    const auto first = std::ranges::find_if(
        sink_.samples, [](const Sink::Sample &sample) { return sample.head.epoch > 1; });
    EXPECT_EQ(first->values.size(), sink_.last.size());
}

TEST_F(NvlinkSourceTest, ACounterThatComesLaterIsFound) {
    say(HOPPER);
    record();
    std::string more = HOPPER;
    more.replace(more.find("refuse 140 all 3"), 16, "field 140 all 44");
    say(more);
    sample_until([this] { return sink_.at(0, nvml::THROUGHPUT_RAW_TX, ALL).value == 44; });
}

TEST_F(NvlinkSourceTest, AnErrorOfTheGpuIsTheReasonOfEveryField) {
    say(HOPPER);
    record();
    say(std::string(HOPPER) + "result 15\n");
    sample_until([this] { return sink_.at(0, nvml::THROUGHPUT_DATA_TX, ALL).result == 15; });
    EXPECT_EQ(sink_.at(0, nvml::ERROR_DL_RECOVERY, 0).result, 15U);
}

} // namespace
} // namespace collwire::sources
