// SPDX-License-Identifier: Apache-2.0
// A test double of a tool that uses CUPTI. Built several times, as linkers lay out imports.
#include "fake_cupti.h"

// NVIDIA's names. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
int cuptiActivityRegisterCallbacks(void *, void *);
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityEnableContext(void *, int kind);
int cuptiActivityDisableContext(void *, int kind);
int cuptiFinalize();
}
// NOLINTEND(readability-identifier-naming)

namespace {

const FakeTool tool = {
    [] { return cuptiActivityRegisterCallbacks(nullptr, nullptr); },
    [](int kind) { return cuptiActivityEnable(kind); },
    [](int kind) { return cuptiActivityDisable(kind); },
    [](int kind) { return cuptiActivityEnableContext(nullptr, kind); },
    [](int kind) { return cuptiActivityDisableContext(nullptr, kind); },
    [] { return cuptiFinalize(); },
};

} // namespace

extern "C" __attribute__((visibility("default"))) const FakeTool *fake_tool() {
    return &tool;
}
