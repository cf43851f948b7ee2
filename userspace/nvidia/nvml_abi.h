// SPDX-License-Identifier: Apache-2.0
// The part of NVML's interface that collwire uses, declared here: no header of NVIDIA's is needed
// to build. Numbers and layouts are those of nvml.h 11 to 13; tests/nvml_double/abi_check.cpp
// compares them where that header is installed.
#pragma once

#include <cstdint>

namespace collwire::nvidia::nvml {

using Device = void *; // nvmlDevice_t

// nvmlReturn_t; names of all are in correlate/capture/nvlink_names.cpp.
inline constexpr int SUCCESS = 0;
inline constexpr int UNINITIALIZED = 1;
inline constexpr int INVALID_ARGUMENT = 2;
inline constexpr int NOT_SUPPORTED = 3;
inline constexpr int DRIVER_NOT_LOADED = 9;
inline constexpr int FUNCTION_NOT_FOUND = 13;
inline constexpr int LIBRARY_MISMATCH = 18;
inline constexpr int DEPRECATED = 26;

// nvmlValueType_t
inline constexpr int TYPE_UNSIGNED_INT = 1;
inline constexpr int TYPE_UNSIGNED_LONG = 2;
inline constexpr int TYPE_UNSIGNED_LONG_LONG = 3;
inline constexpr int TYPE_SIGNED_LONG_LONG = 4;
inline constexpr int TYPE_SIGNED_INT = 5;
inline constexpr int TYPE_UNSIGNED_SHORT = 6;

inline constexpr unsigned MAX_LINKS = 36;            // NVML_NVLINK_MAX_LINKS
inline constexpr unsigned SCOPE_ALL_LINKS = ~0U;     // of the throughput fields: the sum
inline constexpr unsigned UUID_BYTES = 96;           // NVML_DEVICE_UUID_V2_BUFFER_SIZE
inline constexpr unsigned DRIVER_VERSION_BYTES = 80; // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
inline constexpr unsigned DEVICE_NAME_BYTES = 96;    // NVML_DEVICE_NAME_V2_BUFFER_SIZE

// nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t
inline constexpr int P2P_CAPS_NVLINK = 2;
inline constexpr int P2P_STATUS_OK = 0;
inline constexpr int P2P_STATUS_UNKNOWN = 6;

// NVML_FI_DEV_NVLINK_*
inline constexpr unsigned LINK_COUNT = 91;
inline constexpr unsigned THROUGHPUT_DATA_TX = 138; // KiB of payload
inline constexpr unsigned THROUGHPUT_DATA_RX = 139;
inline constexpr unsigned THROUGHPUT_RAW_TX = 140; // KiB, protocol overhead included
inline constexpr unsigned THROUGHPUT_RAW_RX = 141;
inline constexpr unsigned ERROR_DL_REPLAY = 161;
inline constexpr unsigned ERROR_DL_RECOVERY = 162;
inline constexpr unsigned ERROR_DL_CRC = 163;
inline constexpr unsigned GET_SPEED = 164; // MB/s
inline constexpr unsigned GET_STATE = 165; // 1: active
inline constexpr unsigned GET_VERSION = 166;
inline constexpr unsigned COUNT_XMIT_BYTES = 202; // NVLink 5
inline constexpr unsigned COUNT_RCV_BYTES = 204;
inline constexpr unsigned COUNT_MALFORMED_PACKET_ERRORS = 206;
inline constexpr unsigned COUNT_XMIT_DISCARDS = 212;
inline constexpr unsigned COUNT_LINK_RECOVERY_EVENTS = 215;
inline constexpr unsigned COUNT_EFFECTIVE_ERRORS = 219;
inline constexpr unsigned COUNT_SYMBOL_ERRORS = 221;

// nvmlFieldValue_t
struct FieldValue {
    unsigned field_id;
    unsigned scope_id;
    long long timestamp_us;
    long long latency_us;
    int value_type;
    int result;
    union {
        double as_double;
        int as_int;
        unsigned as_unsigned;
        unsigned long as_unsigned_long;
        unsigned long long as_unsigned_long_long;
        long long as_long_long;
        unsigned short as_unsigned_short;
    } value;
};

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

// Functions of the library. Null: an older one that lacks it.
struct Functions {
    int (*init)() = nullptr; // nvmlInit_v2
    int (*shutdown)() = nullptr;
    int (*get_driver_version)(char *, unsigned) = nullptr;
    int (*get_count)(unsigned *) = nullptr;           // nvmlDeviceGetCount_v2
    int (*get_handle)(unsigned, Device *) = nullptr;  // nvmlDeviceGetHandleByIndex_v2
    int (*get_pci_info)(Device, PciInfo *) = nullptr; // nvmlDeviceGetPciInfo_v3
    int (*get_uuid)(Device, char *, unsigned) = nullptr;
    int (*get_name)(Device, char *, unsigned) = nullptr;
    int (*get_link_state)(Device, unsigned, int *) = nullptr; // nvmlDeviceGetNvLinkState
    int (*get_field_values)(Device, int, FieldValue *) = nullptr;
    int (*get_p2p_status)(Device, Device, int, int *) = nullptr; // nvmlDeviceGetP2PStatus
};

} // namespace collwire::nvidia::nvml
