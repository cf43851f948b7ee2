// SPDX-License-Identifier: Apache-2.0
// The checks by subject. Each returns its results in the order in which they are printed.
#pragma once

#include <string>
#include <vector>

#include "userspace/doctor/doctor.h"

namespace collwire::doctor {

inline Check ok(std::string name, std::string found) {
    return {std::move(name), CheckState::Ok, std::move(found), "", "", false, Code::Ok};
}

// The fix of a missing privilege. One text for all of them: they are one change.
inline constexpr const char *privilege_fix_without_root = "sudo collwire ...";
std::string privilege_fix(const std::string &root);

// Whether this process has a capability in effect (number of linux/capability.h).
bool has_capability(const std::string &root, int capability);

// Capabilities, pid namespace, memory limit, kernel pointers, perf, /proc.
std::vector<Check> check_privileges(const DoctorOptions &options);
// Lockdown, BTF, ring buffer, kprobes, fentry, uprobes.
std::vector<Check> check_kernel(const DoctorOptions &options);
// RDMA subsystem, devices, ports, modules, optional counters, netdev counters. Fills
// report.devices and report.optional_counters.
std::vector<Check> check_rdma(const DoctorOptions &options, DoctorReport &report);
// The guest library for GPU kernels: installed, and loaded in CUDA processes.
std::vector<Check> check_gpu(const DoctorOptions &options);
// NVML, the GPUs' NVLinks and their counters, the kernel log.
std::vector<Check> check_nvlink(const DoctorOptions &options);
// The NCCL libraries that processes have mapped.
std::vector<Check> check_nccl(const DoctorOptions &options);
// rdma-core's providers, CUDA, NCCL, NUMA.
std::vector<Check> check_user_space(const std::string &root);

} // namespace collwire::doctor
