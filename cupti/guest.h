// SPDX-License-Identifier: Apache-2.0
// The guest in a CUDA process: dormant until a recorder wants a trace, then CUPTI's kernel records, then dormant again. One instance a process.
// All steering of CUPTI happens under the control lock; CUPTI's callbacks take no lock.
#pragma once

#include "abi.h"
#include "buffers.h"
#include "clock.h"
#include "collwire/gpu_records.h"
#include "control_lock.h"
#include "kernels.h"
#include "windows.h"

#include <atomic>
#include <cstdint>

namespace collwire::cupti {

class Guest {
public:
  // One look at what is wanted. For the guest's thread alone, at most 4 times a second.
  void poll();

  // Another tool is about to ask CUPTI for records, on this thread: the guest is gone when this returns.
  void yield(const char* function);

  // The process ends by exit(): hands over what CUPTI has, and stays away from CUPTI from then on.
  void at_exit();

  // False: nothing will ever be traced in this process.
  bool is_alive() const { return state_ != CW_GPU_FAILED && state_ != CW_GPU_EXITING; }

  // CUPTI's callbacks.
  void lend(uint8_t** buffer, size_t* bytes, size_t* max_records);
  void take_back(uint8_t* buffer, size_t valid_bytes);

private:
  void arm();
  // Why the process cannot be traced now; false: it can.
  bool must_not_arm(cw_gpu_state_item& answer);
  void disarm(cw_gpu_state_item& answer);
  void finish(cw_gpu_state_item& answer);
  void flush();
  void set(cw_gpu_state state, cw_gpu_state_item& answer);
  void report(cw_gpu_state state, cw_gpu_state_item& answer);
  void fail(Result result, cw_gpu_state_item& answer);

  Functions functions_ = {};
  uint32_t api_version_ = 0;
  bool has_functions_ = false, is_own_libcupti_ = false, has_registered_ = false;
  cw_gpu_state state_ = CW_GPU_OFF;
  uint64_t flushed_ns_ = 0, disarmed_ns_ = 0, tried_ns_ = 0, yields_ = 0;
  int unready_ = 0;
  bool is_draining_ = false;
  std::atomic<bool> is_receiving_ = false;
  std::atomic<uint64_t> dropped_ = 0;
  ControlLock lock_;
  Buffers buffers_;
  Windows windows_;
  Clock clock_;
  Kernels kernels_ = {clock_, windows_};
};

} // namespace collwire::cupti
