// SPDX-License-Identifier: Apache-2.0
// Reads NVLink counters through NVML, as records. Every call may block for seconds, or for ever,
// when a GPU is ill, so only the process of nvml_process.h uses this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "collwire/nvlink_records.h"
#include "userspace/nvidia/nvml_abi.h"

namespace collwire::nvidia {

// One reading of a GPU: the record's head, and its values.
struct NvlinkReading {
    cw_nvlink_sample head{};
    std::vector<cw_nvlink_value> values;
};

class NvlinkReader {
public:
    // Loads the library. Unsupported: there is none. Failed: it lacks a function.
    Result<void> load(const std::string &library);
    // Starts NVML and lists its GPUs; returns nvmlReturn_t. `epoch` goes into all records.
    int start(std::uint32_t epoch);
    // In NVML's order. A GPU that gives no handle or no PCI address is left out.
    [[nodiscard]] const std::vector<cw_nvlink_gpu> &gpus() const { return gpus_; }
    // Reads all fields of the GPU at this place of gpus(). Fields that no link supports are only
    // asked again in every ASK_AGAIN-th reading. The first one completes its record in gpus(): a
    // question about two GPUs may block at an ill one.
    [[nodiscard]] NvlinkReading read(std::size_t place);
    [[nodiscard]] bool has_read(std::size_t place) const { return devices_[place].readings != 0; }
    // Whether the last reading's answers say that NVML must be started again.
    [[nodiscard]] bool must_restart() const { return must_restart_; }

    static constexpr std::uint64_t ASK_AGAIN = 60;

private:
    struct Gpu {
        nvml::Device device = nullptr;
        std::vector<unsigned> left_out; // fields
        std::uint64_t readings = 0;
    };

    void add_gpu(unsigned index, std::uint32_t epoch, const std::string &driver);
    void find_links(nvml::Device device, cw_nvlink_gpu &record) const;
    void find_peers(std::size_t place);
    void ask(std::size_t place, std::vector<nvml::FieldValue> &asked, NvlinkReading &reading);
    [[nodiscard]] bool is_asked(const Gpu &gpu, unsigned field) const;
    static void leave_out(Gpu &gpu, const NvlinkReading &reading);

    nvml::Functions functions_;
    std::vector<cw_nvlink_gpu> gpus_;
    std::vector<Gpu> devices_; // by place
    bool must_restart_ = false;
};

// The value's bytes by its type; those beyond the type's size are 0.
[[nodiscard]] std::uint64_t bits_of(const nvml::FieldValue &value);

} // namespace collwire::nvidia
