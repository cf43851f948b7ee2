// SPDX-License-Identifier: Apache-2.0
// A kernel in a stream, as launched.
#pragma once

#include <memory>
#include <string>

#include "tests/cuda_double/engine.h"
#include "tests/cuda_double/kernel_feed.h"

namespace collwire::cuda_double {

class LaunchedKernel : public WorkItem {
public:
    // Made within a LaunchingCall. `started`: complete when the kernel starts; null: none.
    LaunchedKernel(std::unique_ptr<WorkItem> kernel, const KernelLaunch &launch,
                   EventPointer started);

    bool advance(bool &progressed) override;
    [[nodiscard]] std::string state() const override { return kernel_->state(); }

private:
    std::unique_ptr<WorkItem> kernel_;
    KernelLaunch launch_;
    EventPointer started_;
    std::uint64_t ticket_;
    bool is_started_ = false;
};

// COLLWIRE_CUPTI_OTHER_KERNELS: as many kernels that are none of NCCL's, on a stream of their own,
// whose work is to take time. On the current device.
void launch_other_kernels();

} // namespace collwire::cuda_double
