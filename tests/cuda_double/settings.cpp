// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace collwire::cuda_double {
namespace {

constexpr int kMostDevices = 64;

std::string text_of(const char *variable) {
    const char *value = std::getenv(variable);
    return value != nullptr ? value : "";
}

long number_of(const char *variable, long otherwise, int base = 10) {
    const std::string text = text_of(variable);
    if (text.empty())
        return otherwise;
    char *end = nullptr;
    const long value = std::strtol(text.c_str(), &end, base);
    if (*end != '\0' || value < 0)
        fatal(
            fmt::format("{}={} is not a number. Fix: set it to one, or unset it", variable, text));
    return value;
}

// nvml.cpp reads it, too.
PeerAccess read_peer_access() {
    const std::string text = text_of("COLLWIRE_CUDA_P2P");
    if (text.empty() || text == "none")
        return PeerAccess::None;
    if (text == "pci")
        return PeerAccess::Pci;
    if (text == "nvlink")
        return PeerAccess::NvLink;
    fatal(fmt::format("COLLWIRE_CUDA_P2P={}. Fix: none, pci or nvlink", text));
}

Settings read_settings() {
    Settings read;
    read.log_path = text_of("COLLWIRE_CUDA_LOG");
    read.calls_path = text_of("COLLWIRE_CUDA_CALLS");
    read.layouts = text_of("COLLWIRE_CUDA_LAYOUTS");
    read.symbols = text_of("COLLWIRE_CUDA_SYMBOLS");
    if (const std::string name = text_of("COLLWIRE_CUDA_LIBRARY"); !name.empty())
        read.library_name = name;
    read.stuck_path = text_of("COLLWIRE_CUDA_STUCK");
    read.devices = static_cast<int>(number_of("COLLWIRE_CUDA_DEVICES", 1));
    if (read.devices < 1 || read.devices > kMostDevices)
        fatal(fmt::format("COLLWIRE_CUDA_DEVICES={}. Fix: 1 to {}", read.devices, kMostDevices));
    read.first_bus = static_cast<unsigned>(number_of("COLLWIRE_CUDA_BUSID", 0x1b, 16));
    read.peer_access = read_peer_access();
    read.has_multicast = number_of("COLLWIRE_CUDA_NVLS", 0) != 0;
    if (read.has_multicast && read.peer_access != PeerAccess::NvLink)
        fatal("COLLWIRE_CUDA_NVLS=1 without an NVSwitch. Fix: COLLWIRE_CUDA_P2P=nvlink");
    read.has_gpu_direct = number_of("COLLWIRE_CUDA_GDR", 0) != 0;
    read.hang_s = static_cast<std::uint64_t>(number_of("COLLWIRE_CUDA_HANG_S", 20));
    read.other_kernels = static_cast<unsigned>(number_of("COLLWIRE_CUPTI_OTHER_KERNELS", 0));
    read.other_kernel_us = static_cast<std::uint64_t>(number_of("COLLWIRE_CUPTI_OTHER_US", 50));
    read.driver_version = static_cast<int>(number_of("COLLWIRE_CUDA_DRIVER", 12040));
    read.runtime_version = static_cast<int>(number_of("COLLWIRE_CUDA_RUNTIME", 12040));
    read.verbose = number_of("COLLWIRE_CUDA_VERBOSE", 0) != 0;
    return read;
}

void say(const char *kind, const std::string &text) {
    const std::string line = fmt::format("cuda_double[{}]: {}{}\n", ::getpid(), kind, text);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
}

} // namespace

// Never destroyed: detached threads and exit handlers use it.
const Settings &settings() {
    static const Settings &read = *new Settings(read_settings());
    return read;
}

void note(const std::string &text) {
    say("", text);
}

void fatal(const std::string &text) {
    say("FATAL: ", text);
    std::abort();
}

std::uint64_t now_ns() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

} // namespace collwire::cuda_double
