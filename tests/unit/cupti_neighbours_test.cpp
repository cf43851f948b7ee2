// SPDX-License-Identifier: Apache-2.0
// Other users of CUPTI in the process, and libcupti as the guest finds it. In order: what a process
// has mapped, it keeps.
#include "cupti/neighbours.h"

#include "cupti/clock.h"
#include "cupti/loader.h"
#include "fake_cupti/fake_cupti.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace collwire::cupti {
namespace {

std::vector<std::string> yields;
int enables_at_yield = 0;

FakeCuptiCalls &calls() {
    static auto *found = [] {
        void *library = dlopen(FAKE_LIBCUPTI, RTLD_LAZY | RTLD_NOLOAD);
        auto function = reinterpret_cast<FakeCuptiCalls *(*)()>(dlsym(library, "fake_cupti_calls"));
        return function();
    }();
    return *found;
}

void yield(const char *function) {
    yields.emplace_back(function);
    enables_at_yield = calls().enables;
}

class CuptiNeighbours : public testing::Test {
protected:
    void SetUp() override {
        yields.clear();
        if (!tool_) {
            void *library = dlopen(FAKE_TOOL_RELRO_NOW, RTLD_NOW | RTLD_LOCAL);
            ASSERT_NE(library, nullptr) << dlerror();
            tool_ = reinterpret_cast<const FakeTool *(*)()>(dlsym(library, "fake_tool"))();
        }
        watch_neighbours(yield);
        calls().succeeds = true;
    }
    void TearDown() override { calls().succeeds = false; }

    static const FakeTool *tool_; // NOLINT(readability-identifier-naming): a member
};
const FakeTool *CuptiNeighbours::tool_ = nullptr; // NOLINT(readability-identifier-naming)

TEST(CuptiLoader, FindsNoLibcuptiWhereNoneIsMapped) {
    bool is_ambiguous = true;
    EXPECT_EQ(mapped_libcupti(is_ambiguous), nullptr);
    EXPECT_FALSE(is_ambiguous);
    Functions functions = {};
    uint32_t api_version = 0;
    EXPECT_FALSE(load_functions(functions, api_version, true));
    EXPECT_EQ(cuda_driver_major(), 0);
    EXPECT_FALSE(has_unseen_caller());
    watch_neighbours(yield);
    EXPECT_FALSE(has_active_neighbour());
    EXPECT_EQ(last_neighbour_call_ns(), 0U);
    EXPECT_STREQ(last_neighbour_function(), "");
}

TEST(CuptiLoader, FindsTheMappedLibcuptiAndItsFunctions) {
    void *library = dlopen(FAKE_LIBCUPTI, RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    bool is_ambiguous = true;
    EXPECT_STREQ(mapped_libcupti(is_ambiguous), FAKE_LIBCUPTI);
    EXPECT_FALSE(is_ambiguous);
    Functions functions = {};
    uint32_t api_version = 0;
    ASSERT_TRUE(load_functions(functions, api_version, true));
    EXPECT_EQ(api_version, 130001U);
    EXPECT_EQ(functions.enable(10), FAKE_CUPTI_ENABLE + 10);
    EXPECT_EQ(functions.subscribe_v2, nullptr); // of CUPTI 13.0; the double has none
    // Mapped, and no file imports it: whoever loaded it is unseen.
    watch_neighbours(yield);
    EXPECT_TRUE(has_unseen_caller());
}

TEST_F(CuptiNeighbours, AreSeenBeforeCuptiSeesTheirCall) {
    EXPECT_FALSE(has_unseen_caller());
    const int before = calls().enables;
    EXPECT_FALSE(has_active_neighbour());
    const uint64_t begin_ns = monotonic_ns();
    EXPECT_EQ(tool_->enable(10), 0);
    EXPECT_EQ(yields, std::vector<std::string>{"cuptiActivityEnable"});
    EXPECT_EQ(enables_at_yield, before);
    EXPECT_EQ(calls().enables, before + 1);
    EXPECT_TRUE(has_active_neighbour());
    EXPECT_GE(last_neighbour_call_ns(), begin_ns);
    EXPECT_STREQ(last_neighbour_function(), "cuptiActivityEnable");
    EXPECT_EQ(tool_->disable(10), 0);
    EXPECT_FALSE(has_active_neighbour());
    EXPECT_STREQ(last_neighbour_function(), "cuptiActivityDisable");
    // The kind is the process's: the guest's own would end with it.
    EXPECT_EQ(yields.size(), 2U);
    tool_->disable(5);
    EXPECT_EQ(yields.size(), 2U); // not the guest's
}

TEST_F(CuptiNeighbours, AreActiveWhileAnyOfTheirKindsIsEnabled) {
    tool_->enable(3);
    tool_->enable(3); // a kind is on or off: it is not counted
    tool_->enable_context(10);
    EXPECT_TRUE(has_active_neighbour());
    tool_->disable(3);
    EXPECT_TRUE(has_active_neighbour());
    tool_->disable_context(10);
    EXPECT_FALSE(has_active_neighbour());
    // Kinds that CUPTI does not have.
    tool_->enable(-1);
    tool_->enable(MAX_KINDS);
    EXPECT_FALSE(has_active_neighbour());
    EXPECT_EQ(yields.size(), 6U);
}

TEST_F(CuptiNeighbours, WhoRegistersOrFinalizesIsYieldedToToo) {
    const FakeCuptiCalls before = calls();
    EXPECT_EQ(tool_->register_callbacks(), 0);
    EXPECT_STREQ(last_neighbour_function(), "cuptiActivityRegisterCallbacks");
    tool_->enable(10);
    EXPECT_EQ(tool_->finalize(), 0);
    EXPECT_FALSE(has_active_neighbour()); // CUPTI forgot it
    EXPECT_EQ(yields, (std::vector<std::string>{"cuptiActivityRegisterCallbacks",
                                                "cuptiActivityEnable", "cuptiFinalize"}));
    EXPECT_EQ(calls().registers, before.registers + 1);
    EXPECT_EQ(calls().finalizes, before.finalizes + 1);
}

TEST_F(CuptiNeighbours, AKindThatCuptiRefusesIsNotEnabled) {
    calls().succeeds = false;
    EXPECT_EQ(tool_->enable(10), FAKE_CUPTI_ENABLE + 10);
    EXPECT_FALSE(has_active_neighbour());
    calls().succeeds = true;
    tool_->enable(10);
    calls().succeeds = false;
    tool_->enable(10);
    EXPECT_TRUE(has_neighbour_enabled(10));
    tool_->disable(10);
    EXPECT_FALSE(has_neighbour_enabled(10));
}

TEST_F(CuptiNeighbours, RestAfterTheirCallUntilTheyFetchedTheirRecords) {
    tool_->finalize();
    EXPECT_TRUE(is_neighbour_resting());
    tool_->enable(10);
    tool_->disable(10);
    const uint64_t disabled_ns = monotonic_ns();
    while (monotonic_ns() - disabled_ns < 1'100'000'000)
        std::this_thread::yield();
    EXPECT_TRUE(is_neighbour_resting()); // its records are still with CUPTI
    const int flushes = calls().flushes;
    EXPECT_EQ(tool_->flush_all(), 0);
    EXPECT_EQ(calls().flushes, flushes + 1);
    EXPECT_STREQ(last_neighbour_function(), "cuptiActivityFlushAll");
    const uint64_t flushed_ns = last_neighbour_call_ns();
    while (monotonic_ns() - flushed_ns < 1'100'000'000)
        std::this_thread::yield();
    EXPECT_FALSE(is_neighbour_resting());
    tool_->flush_all(); // nothing to fetch: no sign of a profile
    EXPECT_EQ(last_neighbour_call_ns(), flushed_ns);
}

TEST_F(CuptiNeighbours, TheirReceiverAndPeriodAreKeptUntilCuptiForgetsThem) {
    tool_->register_callbacks();
    EXPECT_EQ(reinterpret_cast<void *>(neighbours_receiver().request), calls().request);
    EXPECT_EQ(reinterpret_cast<void *>(neighbours_receiver().completed), calls().completed);
    EXPECT_NE(calls().request, calls().completed);
    EXPECT_EQ(tool_->flush_period(70), 0);
    EXPECT_EQ(neighbours_flush_period_ms(), 70U);
    tool_->finalize();
    EXPECT_EQ(neighbours_receiver().request, nullptr);
    EXPECT_EQ(neighbours_flush_period_ms(), 0U);
}

TEST_F(CuptiNeighbours, WhoSubscribesIsYieldedTo) {
    EXPECT_EQ(tool_->subscribe(), 0);
    EXPECT_TRUE(has_subscribed_neighbour());
    EXPECT_EQ(tool_->unsubscribe(), 0);
    EXPECT_FALSE(has_subscribed_neighbour());
    EXPECT_EQ(tool_->register_time(), 0);
    EXPECT_EQ(yields, (std::vector<std::string>{"cuptiSubscribe",
                                                "cuptiActivityRegisterTimestampCallback"}));
}

TEST_F(CuptiNeighbours, WhoCallsByATableIsSeen) {
    const int before = calls().enables;
    EXPECT_EQ(tool_->enable_by_table(10), 0);
    EXPECT_EQ(yields, std::vector<std::string>{"cuptiActivityEnableContext"});
    EXPECT_EQ(calls().enables, before + 1);
    tool_->disable_context(10);
}

// What dlsym finds for a program is what calls the guest first.
TEST_F(CuptiNeighbours, WhoFindsFunctionsByNameIsSeen) {
    void *library = dlopen(FAKE_LIBCUPTI, RTLD_LAZY | RTLD_NOLOAD);
    auto enable = reinterpret_cast<int (*)(int)>(tool_->find(library, "cuptiActivityEnable"));
    ASSERT_NE(enable, nullptr);
    const int before = calls().enables;
    EXPECT_EQ(enable(10), 0);
    EXPECT_EQ(yields, std::vector<std::string>{"cuptiActivityEnable"});
    EXPECT_EQ(calls().enables, before + 1);
    tool_->disable(10);
    // Other names are left alone.
    auto timestamp =
        reinterpret_cast<int (*)(uint64_t *)>(tool_->find(library, "cuptiGetTimestamp"));
    Functions functions = {};
    uint32_t api_version = 0;
    ASSERT_TRUE(load_functions(functions, api_version, true));
    EXPECT_EQ(timestamp, functions.get_timestamp);
    EXPECT_EQ(tool_->find(library, "cuptiNone"), nullptr);
    EXPECT_EQ(tool_->find(RTLD_DEFAULT, "getpid"), reinterpret_cast<void *>(getpid));
}

// A fork has the guest's state, but not its thread.
TEST_F(CuptiNeighbours, OfAForkAreLeftAlone) {
    const pid_t child = fork();
    if (child == 0) {
        const bool is_answer_right = tool_->enable(10) == 0;
        _exit(is_answer_right && yields.empty() && !has_active_neighbour() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

// The guest's own calls go to libcupti itself.
TEST_F(CuptiNeighbours, TheGuestIsNoneOfThem) {
    Functions functions = {};
    uint32_t api_version = 0;
    ASSERT_TRUE(load_functions(functions, api_version, false));
    const uint64_t before = last_neighbour_call_ns();
    EXPECT_EQ(functions.enable(10), 0);
    EXPECT_TRUE(yields.empty());
    EXPECT_FALSE(has_active_neighbour());
    EXPECT_EQ(last_neighbour_call_ns(), before);
}

TEST_F(CuptiNeighbours, OfFilesThatAreLoadedLaterAreSeen) {
    void *library = dlopen(FAKE_TOOL_LAZY, RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const FakeTool *later = reinterpret_cast<const FakeTool *(*)()>(dlsym(library, "fake_tool"))();
    watch_neighbours(yield);
    later->enable(10);
    EXPECT_EQ(yields.size(), 1U);
    EXPECT_TRUE(has_active_neighbour());
    later->disable(10);
}

// Its imports are bound at the first call: those of a file that called are.
TEST_F(CuptiNeighbours, WhoCalledBeforeItWasSeenIsTakenToBeActive) {
    void *library = dlopen(FAKE_TOOL_RELRO, RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const FakeTool *later = reinterpret_cast<const FakeTool *(*)()>(dlsym(library, "fake_tool"))();
    later->enable(10);
    EXPECT_TRUE(yields.empty());
    EXPECT_FALSE(has_active_neighbour());
    watch_neighbours(yield);
    EXPECT_EQ(yields, std::vector<std::string>{"cuptiActivityEnable"});
    EXPECT_TRUE(has_active_neighbour());
    later->disable(10);
    EXPECT_FALSE(has_active_neighbour());
}

TEST_F(CuptiNeighbours, ASecondCopyOfLibcuptiIsAmbiguous) {
    void *library = dlopen(FAKE_LIBCUPTI_COPY, RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    bool is_ambiguous = false;
    EXPECT_NE(mapped_libcupti(is_ambiguous), nullptr);
    EXPECT_TRUE(is_ambiguous);
    EXPECT_TRUE(has_unseen_caller());
    dlclose(library);
    EXPECT_FALSE(has_unseen_caller());
}

} // namespace
} // namespace collwire::cupti
