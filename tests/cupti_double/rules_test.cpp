// SPDX-License-Identifier: Apache-2.0
// The double checks its client: CUPTI's rules, subscribers, injected failures.
#include <fstream>
#include <iterator>

#include "tests/cupti_double/fixture.h"

// CUPTI's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" collwire::cupti_double::Result cuptiActivityEnableLatencyTimestamps();

namespace collwire::cupti_double {
namespace {

class RulesTest : public CuptiDoubleTest {};

void ignore(void *, int, std::uint32_t, const void *) {}

TEST_F(RulesTest, OneSubscriberHasTheSlotAndItsNameIsTold) {
    start();
    Subscriber *first = nullptr;
    SubscriberParameters own{sizeof own, "collwire", nullptr, 0};
    ASSERT_EQ(cuptiSubscribe_v2(&first, ignore, nullptr, &own), Result::Success);
    Subscriber *second = nullptr;
    char owner[64] = "";
    SubscriberParameters other{sizeof other, nullptr, owner, sizeof owner};
    EXPECT_EQ(cuptiSubscribe_v2(&second, ignore, nullptr, &other),
              Result::MultipleSubscribersNotSupported);
    EXPECT_STREQ(owner, "CUPTI for collwire");
    EXPECT_EQ(cuptiSubscribe(&second, ignore, nullptr), Result::MultipleSubscribersNotSupported);
    EXPECT_EQ(cuptiUnsubscribe(first), Result::Success);
    EXPECT_EQ(cuptiSubscribe(&second, ignore, nullptr), Result::Success);
    EXPECT_EQ(misuses(), 0U);
}

TEST_F(RulesTest, AnotherToolCanHaveTheSlot) {
    Settings settings;
    settings.owner = "Nsight Systems";
    start(settings);
    Subscriber *subscriber = nullptr;
    char owner[7] = "";
    SubscriberParameters parameters{sizeof parameters, nullptr, owner, sizeof owner};
    EXPECT_EQ(cuptiSubscribe_v2(&subscriber, ignore, nullptr, &parameters),
              Result::MultipleSubscribersNotSupported);
    EXPECT_STREQ(owner, "Nsight"); // cut off
}

TEST_F(RulesTest, NobodyCanSubscribeBeforeCudaIsInitialised) {
    start();
    double_->cuda = nullptr;
    Subscriber *subscriber = nullptr;
    EXPECT_EQ(cuptiSubscribe(&subscriber, ignore, nullptr),
              Result::MultipleSubscribersNotSupported);
}

TEST_F(RulesTest, AStructureSizeThatIsTooSmallIsMisuse) {
    start();
    Subscriber *subscriber = nullptr;
    SubscriberParameters parameters{0, nullptr, nullptr, 0};
    EXPECT_EQ(cuptiSubscribe_v2(&subscriber, ignore, nullptr, &parameters),
              Result::InvalidParameter);
    EXPECT_EQ(misuses(), 1U);
}

TEST_F(RulesTest, AHandleThatIsNoSubscriberIsMisuse) {
    start();
    Subscriber *subscriber = nullptr;
    ASSERT_EQ(cuptiSubscribe(&subscriber, ignore, nullptr), Result::Success);
    EXPECT_EQ(cuptiUnsubscribe(nullptr), Result::InvalidParameter);
    EXPECT_EQ(cuptiEnableCallback(1, reinterpret_cast<Subscriber *>(8), 1, 307),
              Result::InvalidParameter);
    EXPECT_EQ(cuptiEnableCallback(1, subscriber, 7, 1), Result::InvalidParameter);
    EXPECT_EQ(misuses(), 3U);
    EXPECT_EQ(cuptiEnableCallback(1, subscriber, 1, 307), Result::Success);
    EXPECT_EQ(double_->log.lacking().count("callbacks of domain 1"), 1U);
}

TEST_F(RulesTest, AFlushWithoutCallbacksFailsBefore13) {
    Settings settings;
    settings.api_version = 28;
    start(settings);
    EXPECT_EQ(cuptiActivityFlushAll(0), Result::InvalidOperation);
    EXPECT_EQ(misuses(), 1U);
}

TEST_F(RulesTest, CallbacksMustBeRegisteredBeforeAFlush) {
    start();
    EXPECT_EQ(cuptiActivityFlushAll(0), Result::Success);
    EXPECT_EQ(cuptiActivityRegisterCallbacks(nullptr, complete_of<1>), Result::InvalidParameter);
    EXPECT_EQ(cuptiActivityRegisterTimestampCallback(nullptr), Result::InvalidParameter);
    EXPECT_EQ(misuses(), 3U);
}

TEST_F(RulesTest, EnablingWithoutCallbacksIsMisuseAndDropsRecords) {
    start();
    EXPECT_EQ(cuptiActivityEnable(KIND_CONCURRENT_KERNEL), Result::Success);
    EXPECT_EQ(misuses(), 1U);
    launch_and_run();
    std::size_t dropped = 0;
    ASSERT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), Result::Success);
    EXPECT_EQ(dropped, 1U);
}

TEST_F(RulesTest, KindsAreChecked) {
    start();
    arm();
    EXPECT_EQ(cuptiActivityEnable(0), Result::InvalidKind);
    EXPECT_EQ(cuptiActivityDisable(LAST_KIND + 1), Result::InvalidKind);
    EXPECT_EQ(cuptiActivityEnable(KIND_KERNEL), Result::NotCompatible);
    EXPECT_EQ(misuses(), 3U);
    EXPECT_EQ(cuptiActivityEnable(4), Result::Success); // driver calls
    EXPECT_EQ(double_->log.lacking().count("records of kind 4"), 1U);
}

TEST_F(RulesTest, AttributesHaveTheirSizes) {
    start();
    std::size_t bytes = 8;
    std::size_t value = 0;
    ASSERT_EQ(cuptiActivityGetAttribute(0, &bytes, &value), Result::Success);
    EXPECT_EQ(value, 3'200'000U);
    value = 8;
    ASSERT_EQ(cuptiActivitySetAttribute(2, &bytes, &value), Result::Success);
    EXPECT_EQ(double_->log.hazards(), 1U);
    value = 0;
    ASSERT_EQ(cuptiActivityGetAttribute(2, &bytes, &value), Result::Success);
    EXPECT_EQ(value, 8U);
    bytes = 4;
    EXPECT_EQ(cuptiActivityGetAttribute(0, &bytes, &value), Result::ParameterSizeNotSufficient);
    EXPECT_EQ(cuptiActivitySetAttribute(0, &bytes, &value), Result::ParameterSizeNotSufficient);
    EXPECT_EQ(cuptiActivitySetAttribute(99, &bytes, &value), Result::InvalidParameter);
}

TEST_F(RulesTest, AFunctionFailsWhereItIsTold) {
    Settings settings;
    settings.failures = parse_failures("cuptiActivityEnable:2:2,cuptiActivityFlushAll:999:1");
    start(settings);
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<1>, complete_of<1>), Result::Success);
    EXPECT_EQ(cuptiActivityEnable(KIND_CONCURRENT_KERNEL), Result::Success);
    EXPECT_EQ(static_cast<int>(cuptiActivityEnable(KIND_CONCURRENT_KERNEL)), 2);
    EXPECT_EQ(cuptiActivityEnable(KIND_CONCURRENT_KERNEL), Result::Success);
    EXPECT_EQ(cuptiActivityFlushAll(0), Result::Unknown);
    EXPECT_EQ(cuptiActivityFlushAll(0), Result::Success);
    EXPECT_EQ(misuses(), 0U);
}

TEST_F(RulesTest, RulesOfFailureThatMeanNothingAreRefused) {
    for (const char *text :
         {"cuptiActivityEnable", "cuptiActivityEnable:x:1", ":1:1", "cuptiActivityEnable:0:1",
          "cuptiActivityEnable:1:0", "cuptiActivityEnable:500:1", "cuptiActivityEnable:-1:1"})
        EXPECT_DEATH(parse_failures(text), "COLLWIRE_CUPTI_FAIL.*Fix: ") << text;
}

Result result_in_callback = Result::Success;

void complete_with_a_call(void *context, std::uint32_t stream, std::uint8_t *buffer,
                          std::size_t bytes, std::size_t valid_bytes) {
    result_in_callback = cuptiActivityFlushAll(0);
    complete_of<1>(context, stream, buffer, bytes, valid_bytes);
}

TEST_F(RulesTest, ACallInACallbackIsMisuse) {
    start();
    arm();
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<1>, complete_with_a_call), Result::Success);
    launch_and_run();
    flush();
    EXPECT_EQ(result_in_callback, Result::Unknown);
    EXPECT_EQ(records().size(), 1U);
    EXPECT_EQ(misuses(), 1U);
}

TEST_F(RulesTest, AFunctionThatTheDoubleLacksIsNamedAndCounted) {
    start();
    EXPECT_EQ(cuptiActivityEnableLatencyTimestamps(), Result::ApiNotImplemented);
    EXPECT_EQ(cuptiActivityEnableLatencyTimestamps(), Result::ApiNotImplemented);
    EXPECT_EQ(double_->log.lacking().at("cuptiActivityEnableLatencyTimestamps"), 2U);
}

TEST_F(RulesTest, ResultsHaveTheirNames) {
    start();
    const char *text = nullptr;
    ASSERT_EQ(cuptiGetResultString(Result::MultipleSubscribersNotSupported, &text),
              Result::Success);
    EXPECT_STREQ(text, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
    ASSERT_EQ(cuptiGetResultString(Result::Unknown, &text), Result::Success);
    EXPECT_STREQ(text, "CUPTI_ERROR_UNKNOWN");
    EXPECT_EQ(cuptiGetResultString(static_cast<Result>(47), &text), Result::InvalidParameter);
}

TEST_F(RulesTest, RecordsAreReadOnlyWithinTheirBuffer) {
    start();
    std::uint8_t buffer[KERNEL10_BYTES] = {KIND_CONCURRENT_KERNEL};
    std::uint8_t *record = nullptr;
    EXPECT_EQ(cuptiActivityGetNextRecord(buffer, sizeof buffer, &record), Result::Success);
    EXPECT_EQ(record, buffer);
    EXPECT_EQ(cuptiActivityGetNextRecord(buffer, sizeof buffer, &record), Result::MaxLimitReached);
    EXPECT_EQ(misuses(), 0U);
    std::uint8_t elsewhere = 0;
    record = &elsewhere;
    EXPECT_EQ(cuptiActivityGetNextRecord(buffer, sizeof buffer, &record), Result::InvalidParameter);
    record = nullptr;
    buffer[0] = 0;
    EXPECT_EQ(cuptiActivityGetNextRecord(buffer, sizeof buffer, &record), Result::InvalidKind);
    EXPECT_EQ(misuses(), 2U);
}

TEST_F(RulesTest, TheLogHasALineForEachCallKernelAndBuffer) {
    Settings settings;
    settings.log_path = testing::TempDir() + "cupti_double.log";
    std::remove(settings.log_path.c_str());
    start(settings);
    arm();
    launch_and_run();
    launch();
    flush();
    double_->finish();
    std::ifstream file(settings.log_path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto count = [&](const std::string &part) {
        std::size_t found = 0;
        for (std::size_t at = text.find(part); at != std::string::npos;
             at = text.find(part, at + 1))
            found++;
        return found;
    };
    EXPECT_EQ(count("\"event\":\"call\""), 4U);
    EXPECT_EQ(count("\"event\":\"kernel\""), 2U);
    EXPECT_EQ(count("\"end_ns\":null"), 1U);
    EXPECT_EQ(count("\"event\":\"requested\""), 1U);
    EXPECT_EQ(count("\"event\":\"delivered\""), 0U); // one of its kernels still runs
    EXPECT_EQ(count("\"records_held\":2,"), 1U);
    EXPECT_EQ(count("\"event\":\"summary\""), 1U);
    std::remove(settings.log_path.c_str());
}

} // namespace
} // namespace collwire::cupti_double
