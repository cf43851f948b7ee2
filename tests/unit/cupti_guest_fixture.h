// SPDX-License-Identifier: Apache-2.0
// A guest with a double of CUPTI, and what it handed over.
#pragma once

#include "cupti/guest.h"

#include "cupti_fake_cupti.h"
#include "cupti_received.h"

#include <gtest/gtest.h>
#include <memory>
#include <thread>

namespace collwire::cupti {

// Of which CUPTI's callbacks are.
inline Guest *guest_of_callbacks = nullptr;

inline constexpr const char *ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
inline constexpr uint64_t PATIENCE_NS = 20'000'000'000;

class CuptiGuest : public testing::Test {
protected:
    void SetUp() override {
        take_received();
        guest_of_callbacks = guest_.get();
    }
    void TearDown() override { want_trace(false); }

    // Polls until a state is there, as the guest's thread does, but faster. The items until then
    // are in received_.
    void poll_until(cw_gpu_state state) {
        const uint64_t begin_ns = monotonic_ns();
        received_ = {};
        do {
            guest_->poll();
            take();
            if (!received_.states.empty() && received_.states.back().state == state)
                return;
            std::this_thread::yield();
        } while (monotonic_ns() - begin_ns < PATIENCE_NS);
        FAIL() << "state " << state << " did not come";
    }

    void take() {
        const Received more = take_received();
        received_.kernels.insert(received_.kernels.end(), more.kernels.begin(), more.kernels.end());
        received_.names.insert(received_.names.end(), more.names.begin(), more.names.end());
        received_.windows.insert(received_.windows.end(), more.windows.begin(), more.windows.end());
        received_.states.insert(received_.states.end(), more.states.begin(), more.states.end());
    }

    cw_gpu_state_item last() const {
        return received_.states.empty() ? cw_gpu_state_item{} : received_.states.back();
    }

    void arm() {
        want_trace(true);
        poll_until(CW_GPU_ARMED);
    }

    FakeCupti cupti_;
    std::unique_ptr<Guest> guest_ = std::make_unique<Guest>(FakeCupti::load);
    Received received_;
};

} // namespace collwire::cupti
