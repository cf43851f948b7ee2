// SPDX-License-Identifier: Apache-2.0
// What the environment asks of the double, and how the double talks.
#pragma once

#include <cstdint>
#include <string>

namespace collwire::cuda_double {

// How a device reaches another one's memory.
enum class PeerAccess { None, Pci, NvLink };

struct Settings {
    std::string log_path;                      // COLLWIRE_CUDA_LOG
    std::string calls_path;                    // COLLWIRE_CUDA_CALLS
    std::string layouts;                       // COLLWIRE_CUDA_LAYOUTS: a folder
    std::string symbols;                       // COLLWIRE_CUDA_SYMBOLS: a file
    std::string library_name = "libnccl.so";   // COLLWIRE_CUDA_LIBRARY: how it begins
    std::string stuck_path;                    // COLLWIRE_CUDA_STUCK
    int devices = 1;                           // COLLWIRE_CUDA_DEVICES
    unsigned first_bus = 0;                    // COLLWIRE_CUDA_BUSID: hexadecimal
    PeerAccess peer_access = PeerAccess::None; // COLLWIRE_CUDA_P2P
    bool has_multicast = false;                // COLLWIRE_CUDA_NVLS
    bool has_gpu_direct = false;               // COLLWIRE_CUDA_GDR
    std::uint64_t hang_s = 0;
    unsigned other_kernels = 0;        // COLLWIRE_CUPTI_OTHER_KERNELS: after each launch
    std::uint64_t other_kernel_us = 0; // COLLWIRE_CUPTI_OTHER_US: how long each takes
    int driver_version = 0;
    int runtime_version = 0;
    bool verbose = false;
};

const Settings &settings();

void note(const std::string &text);
// `text` ends with what to do.
[[noreturn]] void fatal(const std::string &text);

std::uint64_t now_ns();

} // namespace collwire::cuda_double
