// SPDX-License-Identifier: Apache-2.0
// What the tests see of the double of libcupti, and of the double of a tool that uses it.
#pragma once

constexpr int FAKE_CUPTI_ENABLE = 1'000,
              FAKE_CUPTI_DISABLE = 2'000; // plus the kind: the double's answers

struct FakeCuptiCalls {
    int registers = 0, enables = 0, disables = 0, finalizes = 0, flushes = 0;
    bool succeeds = false;                         // enabling and disabling answer 0
    void *request = nullptr, *completed = nullptr; // registered last
};

// A tool's calls, each of the function that it imports.
struct FakeTool {
    int (*register_callbacks)();
    int (*enable)(int kind);
    int (*disable)(int kind);
    int (*enable_context)(int kind);
    int (*disable_context)(int kind);
    int (*finalize)();
    int (*flush_all)();
    int (*flush_period)(unsigned ms);
    int (*subscribe)();
    int (*unsubscribe)();
    int (*register_time)();
    int (*enable_by_table)(int kind);               // by an address in the tool's data
    void *(*find)(void *library, const char *name); // with dlsym
};
