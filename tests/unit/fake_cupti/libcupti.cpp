// SPDX-License-Identifier: Apache-2.0
// A test double of a libcupti that a process maps: its functions count their calls and give fixed
// answers. It records nothing (tests/cupti_double does).
#include "fake_cupti.h"

#include <ctime>

namespace {

FakeCuptiCalls calls;

} // namespace

// NVIDIA's names. NOLINTBEGIN(readability-identifier-naming)
extern "C" {

FakeCuptiCalls *fake_cupti_calls() {
    return &calls;
}

int cuptiActivityRegisterCallbacks(void *request, void *completed) {
    ++calls.registers;
    calls.request = request;
    calls.completed = completed;
    return 0;
}

__attribute__((noinline)) int cuptiActivityEnable(int kind) {
    ++calls.enables;
    return calls.succeeds ? 0 : FAKE_CUPTI_ENABLE + kind;
}

int cuptiActivityDisable(int kind) {
    ++calls.disables;
    return calls.succeeds ? 0 : FAKE_CUPTI_DISABLE + kind;
}

int cuptiActivityEnableContext(void *, int kind) {
    ++calls.enables;
    return calls.succeeds ? 0 : FAKE_CUPTI_ENABLE + kind;
}

int cuptiActivityDisableContext(void *, int kind) {
    ++calls.disables;
    return calls.succeeds ? 0 : FAKE_CUPTI_DISABLE + kind;
}

int cuptiFinalize() {
    ++calls.finalizes;
    return 0;
}

int cuptiGetVersion(unsigned *version) {
    *version = 130001;
    return 0;
}

int cuptiGetTimestamp(unsigned long *time) {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = static_cast<unsigned long>(now.tv_sec) * 1'000'000'000 +
            static_cast<unsigned long>(now.tv_nsec);
    return 0;
}

int cuptiSubscribe(void **, void *, void *) {
    return 0;
}
int cuptiUnsubscribe(void *) {
    return 0;
}
int cuptiActivityRegisterTimestampCallback(void *) {
    return 0;
}
int cuptiActivityFlushAll(unsigned) {
    ++calls.flushes;
    return 0;
}
int cuptiActivityFlushPeriod(unsigned) {
    return 0;
}
int cuptiActivityGetNextRecord(void *, unsigned long, void **) {
    return 12;
}
int cuptiActivityGetNumDroppedRecords(void *, unsigned, unsigned long *) {
    return 0;
}

// A call within libcupti, through its own import.
int fake_cupti_call_own_enable(int kind) {
    return cuptiActivityEnable(kind);
}

} // extern "C"
// NOLINTEND(readability-identifier-naming)
