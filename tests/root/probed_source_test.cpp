// SPDX-License-Identifier: Apache-2.0
// A source on functions of which the kernel refuses one.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "ports.skel.h"
#include "tests/root/bpf_here.h"
#include "userspace/sources/probed_source.h"

namespace collwire::loader {
namespace {

constexpr const char *TAKEN = "netif_carrier_on";
constexpr const char *TAKEN_PROGRAM = "carrier_on_kprobe";
constexpr const char *REFUSED_PROGRAM = "carrier_off_kprobe";

// Kprobes do not probe themselves; a kernel without any refuses every function.
const char *refused_function() {
    constexpr const char *OF_KPROBES = "kprobe_int3_handler";
    const auto functions = KernelFunctions::read({OF_KPROBES});
    return functions && functions->find(OF_KPROBES) != nullptr ? OF_KPROBES : TAKEN;
}

constexpr const char *WITHOUT = "nothing is known of them";

Hook hook(const char *function, const char *program, bool optional) {
    Hook made;
    made.function = function;
    made.kprobe = program;
    if (optional)
        made.without = WITHOUT;
    return made;
}

class TestSource : public sources::ProbedSource<ports> {
public:
    TestSource(const SharedMaps &maps, std::vector<Hook> hooks)
        : ProbedSource(maps, "test", std::move(hooks), HookMode::KprobeOnly) {}
    bool needed = false;
    std::uint64_t n_missed = 0; // in addition to what the kernel says

private:
    [[nodiscard]] std::uint64_t missed() const override {
        return ProbedSource::missed() + n_missed;
    }
    bool applicable() override { return true; }
    // The object has programs for more functions.
    bool configure() override {
        bpf_program *program = nullptr;
        bpf_object__for_each_program(program, skeleton_.object()) {
            const std::string name = bpf_program__name(program);
            if (name != TAKEN_PROGRAM && name != REFUSED_PROGRAM)
                bpf_program__set_autoload(program, false);
        }
        return true;
    }
    [[nodiscard]] bool indispensable() const override { return needed; }
};

class RefusedFunction : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = test::no_bpf_because(); !reason.empty())
            GTEST_SKIP() << reason;
        auto created = SharedMaps::create({});
        ASSERT_TRUE(created) << created.failure().message;
        maps = std::move(*created);
    }
    [[nodiscard]] std::unique_ptr<TestSource> source(bool optional) const {
        std::vector<Hook> hooks{hook(refused, REFUSED_PROGRAM, optional)};
        if (refused != TAKEN)
            hooks.insert(hooks.begin(), hook(TAKEN, TAKEN_PROGRAM, false));
        return std::make_unique<TestSource>(*maps, std::move(hooks));
    }
    static std::size_t n_placed(const source::Source &source) {
        std::size_t n = 0;
        for (const source::PlannedProbe &probe : source.probe_list())
            n += probe.placed ? 1 : 0;
        return n;
    }
    std::unique_ptr<SharedMaps> maps;
    const char *refused = refused_function();
};

TEST_F(RefusedFunction, IsLeftOutAndSaidWhereTheSourceCanDoWithoutIt) {
    const auto one = source(true);
    ASSERT_TRUE(one->prepare());
    ASSERT_TRUE(one->attach());
    const source::SourceState state = one->states().front();
    EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
    EXPECT_TRUE(state.reason.starts_with(std::string(WITHOUT) + ": ")) << state.reason;
    EXPECT_NE(state.reason.find(refused), std::string::npos) << state.reason;
    const std::size_t taken = refused != TAKEN ? 1 : 0;
    EXPECT_EQ(n_placed(*one), taken);
    EXPECT_EQ(one->probe_list().size(), taken);
    EXPECT_TRUE(one->losses().empty());
    one->detach();
}

TEST_F(RefusedFunction, IsSaidWhereTheKernelHasNone) {
    TestSource one(*maps, {hook("no_such_function", REFUSED_PROGRAM, true)});
    ASSERT_TRUE(one.prepare());
    ASSERT_TRUE(one.attach());
    const source::SourceState state = one.states().front();
    EXPECT_EQ(state.state, CW_SOURCE_DEGRADED);
    EXPECT_EQ(state.reason, std::string(WITHOUT) + ": the kernel has no function no_such_function");
    one.detach();
}

TEST_F(RefusedFunction, MakesTheSourceUnavailableAndNoProbeStays) {
    const auto one = source(false);
    ASSERT_TRUE(one->prepare());
    ASSERT_TRUE(one->attach()) << "the others go on";
    const source::SourceState state = one->states().front();
    EXPECT_EQ(state.state, CW_SOURCE_UNAVAILABLE);
    EXPECT_NE(state.reason.find(refused), std::string::npos) << state.reason;
    EXPECT_EQ(n_placed(*one), 0u);
    EXPECT_TRUE(one->losses().empty());
}

// While probes are taken off the kernel goes on counting.
TEST_F(RefusedFunction, WhatIsMissedAfterTheEndIsNoLoss) {
    const auto one = source(true);
    one->n_missed = 3;
    ASSERT_EQ(one->losses().size(), 1U);
    EXPECT_EQ(one->losses()[0].loss_class, CW_LOSS_PROBE_MISSED);
    EXPECT_EQ(one->losses()[0].records, 3U);
    one->end();
    one->n_missed = 9;
    one->detach();
    EXPECT_EQ(one->losses()[0].records, 3U);
}

TEST_F(RefusedFunction, EndsARecordingThatIsNothingWithoutTheSource) {
    const auto one = source(false);
    one->needed = true;
    ASSERT_TRUE(one->prepare());
    EXPECT_FALSE(one->attach());
    EXPECT_EQ(n_placed(*one), 0u);
}

} // namespace
} // namespace collwire::loader
