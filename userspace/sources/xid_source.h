// SPDX-License-Identifier: Apache-2.0
// Source "xid": errors of the NVIDIA driver in the kernel log.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collwire/nvlink_records.h"
#include "userspace/nvidia/kernel_log.h"
#include "userspace/source/source.h"

namespace collwire::sources {

struct XidOptions {
    std::string log = "/dev/kmsg";
    // How often the log is read: an error is that much older at most than its record's time.
    std::uint64_t read_ns = 50'000'000;
    std::size_t most_before = 1000; // errors from before the recording: the last ones
};

class XidSource : public source::Source {
public:
    explicit XidSource(XidOptions options) : options_(std::move(options)) {}

    [[nodiscard]] std::string_view name() const override { return "xid"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override { return {}; }
    Result<void> attach() override;
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    [[nodiscard]] std::uint64_t due_ns() const override;
    void on_due() override;
    void sample(source::RecordSink &sink, bool everything) override;
    void detach() override {}

private:
    void read();

    XidOptions options_;
    nvidia::KernelLog log_;
    std::string failure_;
    std::uint64_t read_ns_ = 0;  // the last time; 0: not attached
    std::vector<cw_xid> errors_; // not written yet
    std::vector<cw_nvlink_gap> gaps_;
};

} // namespace collwire::sources
