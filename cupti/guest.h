// SPDX-License-Identifier: Apache-2.0
// The guest in a CUDA process: dormant until a recorder wants a trace, then CUPTI's kernel records,
// then dormant again. One instance a process. All steering of CUPTI happens under the control lock;
// CUPTI's callbacks take no lock.
#pragma once

#include "abi.h"
#include "buffers.h"
#include "clock.h"
#include "collwire/gpu_records.h"
#include "control_lock.h"
#include "kernels.h"
#include "loader.h"
#include "windows.h"

#include <atomic>
#include <cstdint>

namespace collwire::cupti {

class Guest {
public:
    // The functions of the process's libcupti, or those that a unit test brings along.
    using LoadFunctions = bool (*)(Functions &functions, uint32_t &api_version, bool only_mapped);
    constexpr explicit Guest(LoadFunctions load = load_functions) : load_(load) {}

    // One look at what is wanted. For the guest's thread alone.
    void poll();

    // Another tool is about to ask CUPTI for records, on this thread: the guest is gone when this
    // returns.
    void yield(const char *function);

    // The process ends by exit(): hands over what CUPTI has, and stays away from CUPTI from then
    // on.
    void at_exit();

    // False: nothing will ever be traced in this process.
    bool is_alive() const {
        return state_ != CW_GPU_FAILED && state_ != CW_GPU_EXITING &&
               !is_exiting_.load(std::memory_order_acquire);
    }
    bool is_armed() const { return state_ == CW_GPU_ARMED; }
    cw_gpu_state state() const { return state_; }
    // CUPTI's requests for buffers are for the guest.
    bool is_receiving() const { return is_receiving_.load(std::memory_order_acquire); }
    // The buffer is the guest's, and no neighbour's.
    bool is_own(const uint8_t *buffer) const {
        return buffers_.is_own(buffer) || buffers_.is_waste(buffer);
    }

    // CUPTI's callbacks.
    void lend(uint8_t **buffer, size_t *bytes, size_t *max_records);
    void take_back(uint8_t *buffer, size_t valid_bytes);

private:
    void arm();
    // Why the process cannot be traced now; false: it can.
    bool must_not_arm(cw_gpu_state_item &answer);
    void disarm(cw_gpu_state_item &answer);
    void stop();
    void keep_error(Result result);
    void finish(cw_gpu_state state, cw_gpu_state_item &answer);
    void stand_back();
    void step_aside(const char *function, bool is_late);
    void give_back_memory();
    void flush(cw_gpu_state_item &answer);
    void restate();
    void set(cw_gpu_state state, cw_gpu_state_item &answer);
    void report(cw_gpu_state state, cw_gpu_state_item &answer);
    void fail(Result result, cw_gpu_state_item &answer);

    LoadFunctions load_;
    Functions functions_ = {};
    uint32_t api_version_ = 0;
    bool has_functions_ = false, is_own_libcupti_ = false, has_registered_ = false;
    std::atomic<cw_gpu_state> state_ = CW_GPU_OFF; // is_alive() takes no lock
    uint64_t flushed_ns_ = 0, disarming_ns_ = 0, disarmed_ns_ = 0, tried_ns_ = 0, yields_ = 0;
    Result error_ = SUCCESS; // the first one of a trace
    int unready_ = 0;
    unsigned recorders_ = 0;        // at the last poll
    cw_gpu_state_item stated_ = {}; // the last one
    bool is_draining_ = false;
    std::atomic<bool> is_receiving_ = false, is_neighbour_unserved_ = false, is_exiting_ = false;
    std::atomic<uint64_t> dropped_ = 0;
    ControlLock lock_;
    Buffers buffers_;
    Windows windows_;
    Clock clock_;
    Kernels kernels_ = {clock_, windows_};
};

} // namespace collwire::cupti
