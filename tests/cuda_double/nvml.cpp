// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1: a double of the few NVML functions that NCCL calls. With
// COLLWIRE_CUDA_P2P=nvlink each device has the NVLinks of an H100, all to one NVSwitch. NCCL calls
// some of the functions without asking whether they exist.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Result { kSuccess = 0, kNotSupported = 3, kNotFound = 6 };

constexpr unsigned kMostDevices = 64;
constexpr unsigned kPciDeviceId = 0x233010de;
constexpr unsigned kPciSubsystemId = 0x16c110de;
constexpr int kP2pOk = 0;
constexpr int kP2pGpuNotSupported = 2;
constexpr unsigned kNvLinks = 18;
constexpr unsigned kNvLinkPeerToPeer = 0; // NVML_NVLINK_CAP_P2P_SUPPORTED
constexpr int kRemoteIsSwitch = 2;
constexpr unsigned kFieldNvLinkState = 165; // NVML_FI_DEV_NVLINK_GET_STATE
// What NVML says of a switch that this machine does not show, as in a guest.
constexpr const char *kHiddenSwitch = "FFFFFFF:FFFF:FF";

// A device is distinguished by its address alone.
char devices[kMostDevices];

unsigned number_of(const char *variable, unsigned otherwise, int base) {
    const char *text = std::getenv(variable);
    return text != nullptr && *text != '\0'
               ? static_cast<unsigned>(std::strtoul(text, nullptr, base))
               : otherwise;
}

unsigned device_count() {
    return number_of("COLLWIRE_CUDA_DEVICES", 1, 10);
}
unsigned first_bus() {
    return number_of("COLLWIRE_CUDA_BUSID", 0x1b, 16);
}
unsigned index_of(void *device) {
    return static_cast<unsigned>(static_cast<char *>(device) - devices);
}
unsigned bus_of(void *device) {
    return first_bus() + index_of(device);
}

bool has(const char *peer_access) {
    const char *text = std::getenv("COLLWIRE_CUDA_P2P");
    return text != nullptr && std::strcmp(text, peer_access) == 0;
}
bool has_link(unsigned link) {
    return has("nvlink") && link < kNvLinks;
}

Result device_at(unsigned index, void **device) {
    if (index >= device_count() || index >= kMostDevices)
        return kNotFound;
    *device = &devices[index];
    return kSuccess;
}

// nvmlPciInfo_t
struct PciInfo {
    char short_bus_id[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned device_id;
    unsigned subsystem_id;
    char bus_id[32];
};

// nvmlPciInfo_t of the functions without a version in their name
struct FirstPciInfo {
    char bus_id[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned device_id;
    unsigned subsystem_id;
    unsigned reserved[4];
};

// nvmlPciInfoExt_t
struct PciInfoExtended {
    unsigned version; // the caller's
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned device_id;
    unsigned subsystem_id;
    unsigned base_class;
    unsigned sub_class;
    char bus_id[32];
};

// nvmlFieldValue_t
struct FieldValue {
    unsigned field;
    unsigned scope; // here: the link
    long long timestamp_us;
    long long latency_us;
    int type;
    int result;
    unsigned long long value;
};

} // namespace

// NOLINTBEGIN(readability-identifier-naming): NVML's names.
#pragma GCC visibility push(default)
extern "C" {

Result nvmlInit() {
    return kSuccess;
}
Result nvmlInit_v2() {
    return kSuccess;
}
Result nvmlShutdown() {
    return kSuccess;
}
const char *nvmlErrorString(Result result) {
    return result == kSuccess ? "success" : "cuda_double: NVML error";
}

Result nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
    std::snprintf(text, bytes, "550.54.15");
    return kSuccess;
}

Result nvmlDeviceGetCount(unsigned *count) {
    *count = device_count();
    return kSuccess;
}
Result nvmlDeviceGetCount_v2(unsigned *count) {
    return nvmlDeviceGetCount(count);
}

Result nvmlDeviceGetHandleByIndex(unsigned index, void **device) {
    return device_at(index, device);
}

Result nvmlDeviceGetHandleByPciBusId(const char *bus_id, void **device) {
    // DOMAIN:BUS:DEVICE.FUNCTION
    const char *text = std::strchr(bus_id, ':');
    char *end = nullptr;
    const unsigned long bus = text != nullptr ? std::strtoul(text + 1, &end, 16) : 0;
    if (end == nullptr || *end != ':' || bus < first_bus())
        return kNotFound;
    return device_at(static_cast<unsigned>(bus) - first_bus(), device);
}

Result nvmlDeviceGetIndex(void *device, unsigned *index) {
    *index = index_of(device);
    return kSuccess;
}

Result nvmlDeviceGetName(void *, char *text, unsigned bytes) {
    std::snprintf(text, bytes, "cuda_double");
    return kSuccess;
}

Result nvmlDeviceGetCudaComputeCapability(void *, int *major, int *minor) {
    *major = 9;
    *minor = 0;
    return kSuccess;
}

Result nvmlDeviceGetP2PStatus(void *, void *, int, int *status) {
    *status = has("nvlink") || has("pci") ? kP2pOk : kP2pGpuNotSupported;
    return kSuccess;
}

Result nvmlDeviceGetNvLinkState(void *, unsigned link, int *is_up) {
    *is_up = 1;
    return has_link(link) ? kSuccess : kNotSupported;
}
Result nvmlDeviceGetNvLinkRemotePciInfo(void *, unsigned link, FirstPciInfo *info) {
    *info = FirstPciInfo{};
    std::snprintf(info->bus_id, sizeof info->bus_id, "%s", kHiddenSwitch);
    return has_link(link) ? kSuccess : kNotSupported;
}
Result nvmlDeviceGetNvLinkCapability(void *, unsigned link, unsigned capability, unsigned *has_it) {
    *has_it = capability == kNvLinkPeerToPeer ? 1 : 0;
    return has_link(link) ? kSuccess : kNotSupported;
}
Result nvmlDeviceGetNvLinkRemoteDeviceType(void *, unsigned link, int *type) {
    *type = kRemoteIsSwitch;
    return has_link(link) ? kSuccess : kNotSupported;
}
Result nvmlDeviceGetFieldValues(void *, int count, FieldValue *values) {
    if (!has("nvlink"))
        return kNotSupported;
    for (int i = 0; i < count; i++) {
        const bool is_known = values[i].field == kFieldNvLinkState && has_link(values[i].scope);
        values[i].value = is_known ? 1 : 0;
        values[i].result = is_known ? kSuccess : kNotSupported;
    }
    return kSuccess;
}

Result nvmlDeviceGetPciInfo_v3(void *device, PciInfo *info) {
    *info = PciInfo{};
    std::snprintf(info->short_bus_id, sizeof info->short_bus_id, "0000:%02x:00.0", bus_of(device));
    std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02x:00.0", bus_of(device));
    info->bus = bus_of(device);
    info->device_id = kPciDeviceId;
    info->subsystem_id = kPciSubsystemId;
    return kSuccess;
}

Result nvmlDeviceGetPciInfoExt(void *device, PciInfoExtended *info) {
    *info = PciInfoExtended{
        info->version, 0, bus_of(device), 0, kPciDeviceId, kPciSubsystemId, 3, 2, {}};
    std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02x:00.0", bus_of(device));
    return kSuccess;
}

Result nvmlDeviceGetPcieLinkMaxSpeed(void *, unsigned *megatransfers) {
    *megatransfers = 32000;
    return kSuccess;
}

Result nvmlDeviceGetCurrPcieLinkGeneration(void *, unsigned *generation) {
    *generation = 5;
    return kSuccess;
}

Result nvmlDeviceGetCurrPcieLinkWidth(void *, unsigned *lanes) {
    *lanes = 16;
    return kSuccess;
}

Result nvmlDeviceGetMemoryErrorCounter(void *, int, int, int, unsigned long long *errors) {
    *errors = 0;
    return kSuccess;
}

} // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
