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
#include <unistd.h>
#include <vector>

namespace collwire::cupti {
namespace {

std::vector<std::string> yields;
int enables_at_yield = 0;

const FakeCuptiCalls &calls() {
    static const auto *found = [] {
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
    }

    static const FakeTool *tool_;
};
const FakeTool *CuptiNeighbours::tool_ = nullptr;

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
    EXPECT_EQ(tool_->enable(10), FAKE_CUPTI_ENABLE + 10);
    EXPECT_EQ(yields, std::vector<std::string>{"cuptiActivityEnable"});
    EXPECT_EQ(enables_at_yield, before);
    EXPECT_EQ(calls().enables, before + 1);
    EXPECT_TRUE(has_active_neighbour());
    EXPECT_GE(last_neighbour_call_ns(), begin_ns);
    EXPECT_STREQ(last_neighbour_function(), "cuptiActivityEnable");
    EXPECT_EQ(tool_->disable(10), FAKE_CUPTI_DISABLE + 10);
    EXPECT_FALSE(has_active_neighbour());
    EXPECT_STREQ(last_neighbour_function(), "cuptiActivityDisable");
    EXPECT_EQ(yields.size(), 1U); // to stop needs no yield
}

TEST_F(CuptiNeighbours, AreActiveWhileAnyOfTheirKindsIsEnabled) {
    tool_->enable(3);
    tool_->enable(3);
    tool_->enable_context(10);
    tool_->disable(3);
    EXPECT_TRUE(has_active_neighbour());
    tool_->disable(3);
    EXPECT_TRUE(has_active_neighbour());
    tool_->disable_context(10);
    EXPECT_FALSE(has_active_neighbour());
    // Kinds that CUPTI does not have.
    tool_->enable(-1);
    tool_->enable(MAX_KINDS);
    EXPECT_FALSE(has_active_neighbour());
    EXPECT_EQ(yields.size(), 5U);
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

// A fork has the guest's state, but not its thread.
TEST_F(CuptiNeighbours, OfAForkAreLeftAlone) {
    const pid_t child = fork();
    if (child == 0) {
        const bool is_answer_right = tool_->enable(10) == FAKE_CUPTI_ENABLE + 10;
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
    EXPECT_EQ(functions.enable(10), FAKE_CUPTI_ENABLE + 10);
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
