// SPDX-License-Identifier: Apache-2.0
// A test double of a tool that uses CUPTI. Built several times, as linkers lay out imports.
#include "fake_cupti.h"

#include <dlfcn.h>

// NVIDIA's names. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
int cuptiActivityRegisterCallbacks(void *, void *);
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityEnableContext(void *, int kind);
int cuptiActivityDisableContext(void *, int kind);
int cuptiFinalize();
int cuptiActivityFlushAll(unsigned flags);
int cuptiActivityFlushPeriod(unsigned ms);
int cuptiSubscribe(void **, void *, void *);
int cuptiUnsubscribe(void *);
int cuptiActivityRegisterTimestampCallback(void *);
}
// NOLINTEND(readability-identifier-naming)

namespace {

char callbacks[2];
void *const fake_request = callbacks, *const fake_completed = callbacks + 1;

int (*volatile const table[])(void *, int) = {cuptiActivityEnableContext};

const FakeTool tool = {
    [] { return cuptiActivityRegisterCallbacks(fake_request, fake_completed); },
    [](int kind) { return cuptiActivityEnable(kind); },
    [](int kind) { return cuptiActivityDisable(kind); },
    [](int kind) { return cuptiActivityEnableContext(nullptr, kind); },
    [](int kind) { return cuptiActivityDisableContext(nullptr, kind); },
    [] { return cuptiFinalize(); },
    [] { return cuptiActivityFlushAll(1); },
    [](unsigned ms) { return cuptiActivityFlushPeriod(ms); },
    [] { return cuptiSubscribe(nullptr, nullptr, nullptr); },
    [] { return cuptiUnsubscribe(nullptr); },
    [] { return cuptiActivityRegisterTimestampCallback(nullptr); },
    [](int kind) { return table[0](nullptr, kind); },
    [](void *library, const char *name) { return dlsym(library, name); },
};

} // namespace

extern "C" __attribute__((visibility("default"))) const FakeTool *fake_tool() {
    return &tool;
}
