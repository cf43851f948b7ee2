// SPDX-License-Identifier: Apache-2.0
// The GPU source against a test double of the guest library.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/gpu_records.h"
#include "collwire/record_kinds.h"
#include "tests/root/bpf_here.h"
#include "tests/support/fake_gpu_guest/fake_gpu_guest.h"
#include "userspace/elf/elf_image.h"
#include "userspace/elf/usdt_sites.h"
#include "userspace/loader/event_ring.h"
#include "userspace/sources/gpu_schedule.h"
#include "userspace/sources/gpu_source.h"

namespace collwire::test {
namespace {

constexpr std::uint64_t SECOND_NS = 1'000'000'000;

// The double in this process: without fake_gpu_start it does nothing by itself.
struct Guest {
    Guest() : library(dlopen(FAKE_GPU_GUEST, RTLD_NOW)) {
        if (library == nullptr)
            return;
        semaphore =
            static_cast<volatile unsigned short *>(dlsym(library, "collwire_gpu_arm_semaphore"));
        void *symbol = dlsym(library, "collwire_gpu_batch");
        std::memcpy(&batch, &symbol, sizeof batch);
    }
    Guest(const Guest &) = delete;
    Guest &operator=(const Guest &) = delete;
    ~Guest() {
        if (library != nullptr)
            dlclose(library);
    }
    template <typename Item>
    void hand_over(cw_gpu_item kind, const std::vector<Item> &items) const {
        const cw_gpu_batch handed = {CW_GPU_BATCH_MAGIC,
                                     CW_GPU_BATCH_VERSION,
                                     static_cast<std::uint16_t>(kind),
                                     static_cast<std::uint32_t>(items.size()),
                                     sizeof(Item),
                                     reinterpret_cast<std::uint64_t>(items.data())};
        batch(&handed);
    }

    void *library;
    volatile unsigned short *semaphore = nullptr;
    void (*batch)(const cw_gpu_batch *) = nullptr;
};

class GpuRecorder : public source::RecordSink {
public:
    explicit GpuRecorder(sources::GpuOptions options = {}) {
        auto created = loader::SharedMaps::create({});
        EXPECT_TRUE(created.ok()) << created.failure().message;
        maps = std::move(*created);
        auto opened = loader::EventRing::create(*maps, [this](const cw_header &record) {
            append(record);
            source->on_record(record);
        });
        EXPECT_TRUE(opened.ok()) << opened.failure().message;
        ring = std::move(*opened);
        EXPECT_TRUE(maps->hold(CW_HELD).ok());
        source = std::make_unique<sources::GpuSource>(*maps, std::move(options));
        EXPECT_TRUE(source->prepare().ok());
        EXPECT_TRUE(source->attach().ok());
    }
    ~GpuRecorder() override { source->detach(); }
    void begin() {
        EXPECT_TRUE(maps->hold(CW_NOT_HELD).ok());
        source->begin();
    }
    void append(const cw_header &record) override {
        const auto *bytes = reinterpret_cast<const std::byte *>(&record);
        records[record.kind].emplace_back(bytes, bytes + record.length_bytes);
    }
    void read() { EXPECT_TRUE(ring->consume().ok()); }
    template <typename Record> std::vector<Record> all(cw_kind kind) {
        std::vector<Record> found;
        for (const auto &bytes : records[kind])
            std::memcpy(&found.emplace_back(), bytes.data(), sizeof(Record));
        return found;
    }
    std::uint64_t loss(cw_loss_class loss_class) {
        std::uint64_t sum = 0;
        for (const source::LossCount &count : maps->losses())
            if (count.loss_class == loss_class)
                sum += count.records;
        return sum;
    }

    std::unique_ptr<loader::SharedMaps> maps;
    std::unique_ptr<loader::EventRing> ring;
    std::unique_ptr<sources::GpuSource> source;
    std::map<std::uint16_t, std::vector<std::vector<std::byte>>> records;
};

class GpuSourceTest : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
    }
};

std::vector<cw_gpu_kernel_item> kernels(std::size_t n) {
    std::vector<cw_gpu_kernel_item> items(n);
    for (std::size_t i = 0; i < n; ++i)
        items[i].correlation = static_cast<std::uint32_t>(i + 1);
    return items;
}

TEST_F(GpuSourceTest, RecordsAreThoseHandedOver) {
    const Guest guest;
    ASSERT_NE(guest.batch, nullptr) << dlerror();
    GpuRecorder recorder;
    recorder.begin();
    const auto items = kernels(CW_GPU_BATCH_ITEMS);
    guest.hand_over(CW_GPU_ITEM_KERNEL, items);
    guest.hand_over(CW_GPU_ITEM_KERNEL, kernels(0));
    recorder.read();
    const auto read = recorder.all<cw_gpu_kernel>(CW_KIND_GPU_KERNEL);
    ASSERT_EQ(read.size(), items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        EXPECT_EQ(read[i].tgid, static_cast<std::uint32_t>(getpid()));
        EXPECT_EQ(read[i].header.length_bytes, sizeof(cw_gpu_kernel));
        EXPECT_EQ(std::memcmp(&read[i].kernel, &items[i], sizeof items[i]), 0) << i;
    }
}

TEST_F(GpuSourceTest, ItemsOfOtherLengthsAreCutOrFilledWithZeros) {
    struct Longer {
        cw_gpu_window_item known;
        std::uint64_t more;
    };
    struct Shorter {
        std::uint64_t start_ns;
        std::uint64_t busy_ns;
    };
    const Guest guest;
    GpuRecorder recorder;
    recorder.begin();
    std::vector<Longer> longer(3);
    for (std::size_t i = 0; i < longer.size(); ++i) {
        longer[i].known.start_ns = i + 1;
        longer[i].known.device = 7;
        longer[i].more = ~std::uint64_t{0};
    }
    guest.hand_over(CW_GPU_ITEM_WINDOW, longer);
    guest.hand_over(CW_GPU_ITEM_WINDOW, std::vector<Shorter>{{11, 12}, {13, 14}});
    recorder.read();
    const auto read = recorder.all<cw_gpu_window>(CW_KIND_GPU_WINDOW);
    ASSERT_EQ(read.size(), 5u);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(read[i].window.start_ns, i + 1);
        EXPECT_EQ(read[i].window.device, 7u);
    }
    EXPECT_EQ(read[4].window.start_ns, 13u);
    EXPECT_EQ(read[4].window.busy_ns, 14u);
    EXPECT_EQ(read[4].window.nccl_ns, 0u);
    EXPECT_EQ(read[4].window.device, 0u);
}

TEST_F(GpuSourceTest, OnlyStatesAndNamesComeBeforeTheRecordingStarts) {
    const Guest guest;
    GpuRecorder recorder;
    const auto hand_over_all = [&guest] {
        guest.hand_over(CW_GPU_ITEM_STATE, std::vector<cw_gpu_state_item>(1));
        guest.hand_over(CW_GPU_ITEM_NAME, std::vector<cw_gpu_name_item>(2));
        guest.hand_over(CW_GPU_ITEM_KERNEL, kernels(3));
        guest.hand_over(CW_GPU_ITEM_WINDOW, std::vector<cw_gpu_window_item>(4));
    };
    hand_over_all();
    recorder.read();
    EXPECT_EQ(recorder.records[CW_KIND_GPU_TRACE].size(), 1u);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_NAME].size(), 2u);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_KERNEL].size(), 0u);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_WINDOW].size(), 0u);
    recorder.begin();
    hand_over_all();
    EXPECT_TRUE(recorder.maps->hold(CW_OVER).ok());
    hand_over_all();
    recorder.read();
    EXPECT_EQ(recorder.records[CW_KIND_GPU_TRACE].size(), 2u);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_NAME].size(), 4u);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_KERNEL].size(), 3u);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_WINDOW].size(), 4u);
}

TEST_F(GpuSourceTest, EachSegmentRepeatsNamesAndLastStates) {
    const Guest guest;
    GpuRecorder recorder;
    recorder.begin();
    std::vector<cw_gpu_name_item> names(2);
    names[1].name = 1;
    std::vector<cw_gpu_state_item> states(1);
    states[0].state = CW_GPU_ARMED;
    guest.hand_over(CW_GPU_ITEM_NAME, names);
    guest.hand_over(CW_GPU_ITEM_STATE, states);
    states[0].state = CW_GPU_RUNNING;
    guest.hand_over(CW_GPU_ITEM_STATE, states);
    recorder.read();
    recorder.source->sample(recorder, false);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_NAME].size(), 2u);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_TRACE].size(), 2u);
    recorder.source->sample(recorder, true);
    EXPECT_EQ(recorder.records[CW_KIND_GPU_NAME].size(), 4u);
    const auto traces = recorder.all<cw_gpu_trace>(CW_KIND_GPU_TRACE);
    ASSERT_EQ(traces.size(), 3u);
    EXPECT_EQ(traces[2].state.state, CW_GPU_RUNNING);
}

TEST_F(GpuSourceTest, TheSemaphoreIsUpWhileArmedAndNotBefore) {
    const Guest guest;
    ASSERT_NE(guest.semaphore, nullptr);
    {
        GpuRecorder recorder;
        EXPECT_EQ(*guest.semaphore, 0);
        recorder.begin();
        EXPECT_EQ(*guest.semaphore, 1);
        (void)recorder.source->finish();
        EXPECT_EQ(*guest.semaphore, 0);
        // The probe on hand-overs stays until the recorder detaches.
        guest.hand_over(CW_GPU_ITEM_KERNEL, kernels(1));
        recorder.read();
        EXPECT_EQ(recorder.records[CW_KIND_GPU_KERNEL].size(), 1u);
        recorder.source->detach();
        guest.hand_over(CW_GPU_ITEM_KERNEL, kernels(1));
        recorder.read();
        EXPECT_EQ(recorder.records[CW_KIND_GPU_KERNEL].size(), 1u);
    }
    EXPECT_EQ(*guest.semaphore, 0);
}

TEST_F(GpuSourceTest, TwoRecordersEachGetAllRecords) {
    const Guest guest;
    GpuRecorder first;
    GpuRecorder second;
    first.begin();
    second.begin();
    EXPECT_GE(*guest.semaphore, 1);
    guest.hand_over(CW_GPU_ITEM_KERNEL, kernels(5));
    (void)first.source->finish();
    EXPECT_GE(*guest.semaphore, 1) << "the second recorder still traces";
    guest.hand_over(CW_GPU_ITEM_KERNEL, kernels(2));
    (void)second.source->finish();
    EXPECT_EQ(*guest.semaphore, 0);
    first.read();
    second.read();
    EXPECT_EQ(first.records[CW_KIND_GPU_KERNEL].size(), 7u);
    EXPECT_EQ(second.records[CW_KIND_GPU_KERNEL].size(), 7u);
}

TEST_F(GpuSourceTest, FinishWaitsForProcessesThatSayThatTheyTrace) {
    const Guest guest;
    GpuRecorder recorder;
    recorder.begin();
    std::vector<cw_gpu_state_item> states(1);
    states[0].state = CW_GPU_ARMED;
    guest.hand_over(CW_GPU_ITEM_STATE, states);
    EXPECT_FALSE(recorder.source->finish());
    recorder.read();
    EXPECT_FALSE(recorder.source->finish());
    states[0].state = CW_GPU_DISARMED;
    guest.hand_over(CW_GPU_ITEM_STATE, states);
    recorder.read();
    EXPECT_TRUE(recorder.source->finish());
}

TEST_F(GpuSourceTest, TheReasonNamesTheProcessThatGivesWay) {
    const Guest guest;
    GpuRecorder recorder;
    recorder.begin();
    std::vector<cw_gpu_state_item> states(1);
    states[0].state = CW_GPU_YIELDED;
    states[0].reason = CW_GPU_REASON_SUBSCRIBED;
    std::strcpy(states[0].owner, "a profiler");
    guest.hand_over(CW_GPU_ITEM_STATE, states);
    recorder.read();
    const auto state = recorder.source->states().front();
    EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
    EXPECT_NE(state.reason.find(std::to_string(getpid())), std::string::npos) << state.reason;
    EXPECT_NE(state.reason.find("a profiler"), std::string::npos) << state.reason;
}

// A running guest that polls all the time, and this process's own copy. 0.15 s each.
TEST_F(GpuSourceTest, ArmedAndDisarmedManyTimesLeavesTheSemaphoreAtZero) {
    int to_guest[2];
    int from_guest[2];
    ASSERT_EQ(pipe2(to_guest, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(from_guest, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(to_guest[0], 0);
        dup2(from_guest[1], 1);
        execl(FAKE_GPU_PROCESS, "fake_gpu_process", FAKE_GPU_GUEST, "/dev/null", "100", "0",
              static_cast<char *>(nullptr));
        _exit(127);
    }
    close(to_guest[0]);
    close(from_guest[1]);
    FILE *answers = fdopen(from_guest[0], "r");
    char line[64];
    ASSERT_NE(std::fgets(line, sizeof line, answers), nullptr);
    const auto semaphore_there = [&] {
        EXPECT_EQ(write(to_guest[1], "\n", 1), 1);
        return std::fgets(line, sizeof line, answers) == nullptr
                   ? -1
                   : static_cast<int>(std::strtol(line, nullptr, 10));
    };
    const Guest guest;
    {
        sources::GpuOptions options;
        options.times.mode = sources::GpuTraceMode::OnTrigger;
        options.times.on_ns = 10'000'000;
        GpuRecorder recorder{options};
        recorder.begin();
        EXPECT_EQ(*guest.semaphore, 0);
        const char *full = std::getenv("COLLWIRE_FULL");
        const int n_times = full != nullptr && std::string_view{full} == "1" ? 1000 : 50;
        int n_armed = 0;
        for (int i = 0; i < n_times; ++i) {
            recorder.source->on_request();
            n_armed += *guest.semaphore;
            const std::uint64_t since_ns = monotonic_ns();
            while (*guest.semaphore != 0 && monotonic_ns() - since_ns < 60 * SECOND_NS)
                recorder.source->on_due();
            ASSERT_EQ(*guest.semaphore, 0) << i;
            if (i % 10 == 0) {
                ASSERT_EQ(semaphore_there(), 0) << i;
                recorder.read();
            }
        }
        recorder.read();
        // A slice may be over before it has begun, on a machine that stalls.
        EXPECT_GT(n_armed, n_times * 9 / 10);
    }
    EXPECT_EQ(*guest.semaphore, 0);
    EXPECT_EQ(semaphore_there(), 0);
    close(to_guest[1]);
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    std::fclose(answers);
}

TEST_F(GpuSourceTest, ALibraryIsFoundBeforeAProcessMapsIt) {
    sources::GpuOptions options;
    options.installed = {FAKE_GPU_GUEST, "/nowhere/libcollwire_cupti.so"};
    GpuRecorder recorder{options};
    recorder.begin();
    const Guest guest;
    EXPECT_EQ(*guest.semaphore, 1) << "the kernel raises it when the library is mapped";
    guest.hand_over(CW_GPU_ITEM_KERNEL, kernels(1));
    recorder.read();
    EXPECT_EQ(recorder.records[CW_KIND_GPU_KERNEL].size(), 1u);
}

TEST_F(GpuSourceTest, AFileWithoutTheProbesIsRefusedWithTheReason) {
    const auto folder = std::filesystem::temp_directory_path() / "gpu_source_test";
    std::filesystem::create_directories(folder);
    const auto file = folder / "libcollwire_cupti.so";
    std::filesystem::copy_file("/proc/self/exe", file,
                               std::filesystem::copy_options::overwrite_existing);
    sources::GpuOptions options;
    options.installed = {file};
    {
        GpuRecorder recorder{options};
        recorder.begin();
        const auto state = recorder.source->states().front();
        EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
        EXPECT_NE(state.reason.find("no probes"), std::string::npos) << state.reason;
    }
    std::filesystem::remove_all(folder);
}

TEST(UsdtSites, AreThoseOfTheNotes) {
    const auto bytes = elf::read_library_file(FAKE_GPU_GUEST);
    ASSERT_TRUE(bytes.ok());
    const auto sites = elf::usdt_sites(bytes.value(), "collwire");
    ASSERT_TRUE(sites.ok()) << sites.failure().message;
    ASSERT_EQ(sites.value().size(), 2u);
    const auto &batch = sites.value().at("gpu_batch");
    EXPECT_EQ(batch.arguments, "8@%rdi");
    EXPECT_EQ(batch.semaphore, 0u);
    const auto &arm = sites.value().at("gpu_arm");
    EXPECT_NE(arm.semaphore, 0u);
    EXPECT_TRUE(elf::usdt_sites(bytes.value(), "other").value().empty());
    // Cut at any place it is an error or has no sites, never more.
    for (std::size_t n = 0; n < bytes.value().size(); n += 101) {
        const auto cut = elf::usdt_sites(std::span(bytes.value()).first(n), "collwire");
        if (cut.ok()) {
            EXPECT_LE(cut.value().size(), 2u);
        }
    }
}

TEST(GpuScheduleTest, SlicesStartAtMultiplesOfThePeriod) {
    sources::GpuSchedule schedule({sources::GpuTraceMode::Slices, 2 * SECOND_NS, 60 * SECOND_NS});
    const std::uint64_t real_ns = 60'000 * SECOND_NS;
    const auto at = [&](double seconds) {
        const auto ns = static_cast<std::uint64_t>(seconds * 1e9);
        return sources::GpuSchedule::Now{real_ns + ns, 5 * SECOND_NS + ns};
    };
    schedule.begin(at(1)); // within a slice: that one is not whole
    EXPECT_FALSE(schedule.wants_trace(at(1.5)));
    EXPECT_EQ(schedule.until_change_ns(at(10)), 50 * SECOND_NS);
    EXPECT_TRUE(schedule.wants_trace(at(60.25)));
    EXPECT_EQ(schedule.until_change_ns(at(60.25)), SECOND_NS * 7 / 4);
    EXPECT_TRUE(schedule.wants_trace(at(61.9)));
    EXPECT_FALSE(schedule.wants_trace(at(62)));
    EXPECT_TRUE(schedule.wants_trace(at(120)));
    EXPECT_FALSE(schedule.wants_trace(at(122.5)));
    EXPECT_FALSE(schedule.wants_trace(at(183))); // came too late: the slice is over
    EXPECT_TRUE(schedule.wants_trace(at(240)));
}

TEST(GpuScheduleTest, FollowsAClockThatIsSetBack) {
    sources::GpuSchedule schedule({sources::GpuTraceMode::Slices, 2 * SECOND_NS, 60 * SECOND_NS});
    schedule.begin({6'000'000 * SECOND_NS, SECOND_NS});
    EXPECT_FALSE(schedule.wants_trace({600'030 * SECOND_NS, 2 * SECOND_NS}));
    EXPECT_EQ(schedule.until_change_ns({600'030 * SECOND_NS, 2 * SECOND_NS}), 30 * SECOND_NS);
}

TEST(GpuScheduleTest, ATriggerStartsOneSlice) {
    sources::GpuSchedule schedule({sources::GpuTraceMode::OnTrigger, 2 * SECOND_NS, SECOND_NS});
    schedule.begin({0, 10 * SECOND_NS});
    EXPECT_FALSE(schedule.wants_trace({0, 11 * SECOND_NS}));
    EXPECT_FALSE(schedule.until_change_ns({0, 11 * SECOND_NS}).has_value());
    schedule.trigger({0, 20 * SECOND_NS});
    EXPECT_TRUE(schedule.wants_trace({0, 21 * SECOND_NS}));
    EXPECT_FALSE(schedule.wants_trace({0, 22 * SECOND_NS}));
}

} // namespace
} // namespace collwire::test
