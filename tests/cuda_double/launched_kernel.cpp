// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/launched_kernel.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "tests/cuda_double/runtime.h"
#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

// Takes its time on the device, and lets other streams go on meanwhile.
class OtherKernel : public WorkItem {
public:
    bool advance(bool &) override {
        const std::uint64_t now = now_ns();
        if (begun_ns_ == 0)
            begun_ns_ = now;
        return now - begun_ns_ >= settings().other_kernel_us * 1000;
    }
    [[nodiscard]] std::string state() const override { return "a kernel that is none of NCCL's"; }

private:
    std::uint64_t begun_ns_ = 0;
};

Stream &stream_of_others() {
    static std::mutex mutex;
    static auto &streams = *new std::map<int, Stream *>;
    const std::lock_guard lock(mutex);
    Stream *&stream = streams[current_device()];
    if (stream == nullptr)
        stream = engine().create_stream(current_device());
    return *stream;
}

} // namespace

LaunchedKernel::LaunchedKernel(std::unique_ptr<WorkItem> kernel, const KernelLaunch &launch,
                               EventPointer started)
    : kernel_(std::move(kernel)), launch_(launch), started_(std::move(started)),
      ticket_(started_ ? ++started_->asked : 0) {
    LaunchingCall::describe(launch_);
    report_launched(launch_);
}

// The event is complete when the kernel starts: NCCL's implicit launch order waits for it, and
// would wait for ever if it meant the kernel's end.
bool LaunchedKernel::advance(bool &progressed) {
    if (!is_started_) {
        is_started_ = true;
        report_started(launch_.id);
    }
    if (started_) {
        started_->complete(ticket_);
        started_.reset();
    }
    if (!kernel_->advance(progressed))
        return false;
    report_ended(launch_.id);
    return true;
}

void launch_other_kernels() {
    // Names as compilers mangle them; one holds "nccl" and is none of NCCL's.
    static constexpr std::array NAMES = {
        "_Z16elementwise_scalPffi", "_ZN5model13layer_forwardEPKfPfi",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "_Z14not_nccl_at_alPf"};
    for (unsigned i = 0; i < settings().other_kernels; i++) {
        KernelLaunch launch;
        launch.name = NAMES[i % NAMES.size()];
        launch.grid = {64 + i, 1, 1};
        launch.block = {256, 1, 1};
        Stream &stream = stream_of_others();
        const LaunchingCall call(stream);
        engine().enqueue(stream, std::make_unique<LaunchedKernel>(std::make_unique<OtherKernel>(),
                                                                  launch, nullptr));
    }
}

} // namespace collwire::cuda_double
