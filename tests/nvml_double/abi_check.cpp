// SPDX-License-Identifier: Apache-2.0
// collwire's own declarations of NVML against NVIDIA's header, where it is installed: it compiles,
// or they differ.
#include "userspace/nvidia/nvml_abi.h"

#include <cstddef>
#include <nvml.h>
#include <type_traits>

namespace collwire::nvidia::nvml {
namespace {

#define SAME(Ours, ours, Theirs, theirs)                                                           \
    static_assert(offsetof(Ours, ours) == offsetof(Theirs, theirs) &&                              \
                  sizeof(Ours::ours) == sizeof(Theirs::theirs))
SAME(FieldValue, field_id, nvmlFieldValue_t, fieldId);
SAME(FieldValue, scope_id, nvmlFieldValue_t, scopeId);
SAME(FieldValue, timestamp_us, nvmlFieldValue_t, timestamp);
SAME(FieldValue, latency_us, nvmlFieldValue_t, latencyUsec);
SAME(FieldValue, value_type, nvmlFieldValue_t, valueType);
SAME(FieldValue, result, nvmlFieldValue_t, nvmlReturn);
SAME(FieldValue, value, nvmlFieldValue_t, value);
static_assert(sizeof(FieldValue) == sizeof(nvmlFieldValue_t));
SAME(PciInfo, short_bus_id, nvmlPciInfo_t, busIdLegacy);
SAME(PciInfo, domain, nvmlPciInfo_t, domain);
SAME(PciInfo, bus, nvmlPciInfo_t, bus);
SAME(PciInfo, device, nvmlPciInfo_t, device);
SAME(PciInfo, device_id, nvmlPciInfo_t, pciDeviceId);
SAME(PciInfo, subsystem_id, nvmlPciInfo_t, pciSubSystemId);
SAME(PciInfo, bus_id, nvmlPciInfo_t, busId);
static_assert(sizeof(PciInfo) == sizeof(nvmlPciInfo_t));

static_assert(SUCCESS == NVML_SUCCESS && UNINITIALIZED == NVML_ERROR_UNINITIALIZED);
static_assert(INVALID_ARGUMENT == NVML_ERROR_INVALID_ARGUMENT);
static_assert(NOT_SUPPORTED == NVML_ERROR_NOT_SUPPORTED);
static_assert(DRIVER_NOT_LOADED == NVML_ERROR_DRIVER_NOT_LOADED);
static_assert(FUNCTION_NOT_FOUND == NVML_ERROR_FUNCTION_NOT_FOUND);
static_assert(LIBRARY_MISMATCH == NVML_ERROR_LIB_RM_VERSION_MISMATCH);
static_assert(DEPRECATED == NVML_ERROR_DEPRECATED);
static_assert(TYPE_UNSIGNED_INT == NVML_VALUE_TYPE_UNSIGNED_INT);
static_assert(TYPE_UNSIGNED_LONG == NVML_VALUE_TYPE_UNSIGNED_LONG);
static_assert(TYPE_UNSIGNED_LONG_LONG == NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
static_assert(TYPE_SIGNED_LONG_LONG == NVML_VALUE_TYPE_SIGNED_LONG_LONG);
static_assert(TYPE_SIGNED_INT == NVML_VALUE_TYPE_SIGNED_INT);
static_assert(TYPE_UNSIGNED_SHORT == NVML_VALUE_TYPE_UNSIGNED_SHORT);
static_assert(MAX_LINKS >= NVML_NVLINK_MAX_LINKS);
static_assert(UUID_BYTES == NVML_DEVICE_UUID_V2_BUFFER_SIZE);
static_assert(DRIVER_VERSION_BYTES == NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
static_assert(DEVICE_NAME_BYTES == NVML_DEVICE_NAME_V2_BUFFER_SIZE);

static_assert(P2P_CAPS_NVLINK == NVML_P2P_CAPS_INDEX_NVLINK);
static_assert(P2P_STATUS_OK == NVML_P2P_STATUS_OK);
static_assert(P2P_STATUS_UNKNOWN == NVML_P2P_STATUS_UNKNOWN);

static_assert(LINK_COUNT == NVML_FI_DEV_NVLINK_LINK_COUNT);
static_assert(THROUGHPUT_DATA_TX == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX);
static_assert(THROUGHPUT_DATA_RX == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX);
static_assert(THROUGHPUT_RAW_TX == NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX);
static_assert(THROUGHPUT_RAW_RX == NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX);
static_assert(ERROR_DL_REPLAY == NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY);
static_assert(ERROR_DL_RECOVERY == NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY);
static_assert(ERROR_DL_CRC == NVML_FI_DEV_NVLINK_ERROR_DL_CRC);
static_assert(GET_SPEED == NVML_FI_DEV_NVLINK_GET_SPEED);
static_assert(GET_STATE == NVML_FI_DEV_NVLINK_GET_STATE);
static_assert(GET_VERSION == NVML_FI_DEV_NVLINK_GET_VERSION);
static_assert(COUNT_XMIT_BYTES == NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES);
static_assert(COUNT_RCV_BYTES == NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES);
static_assert(COUNT_MALFORMED_PACKET_ERRORS == NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS);
static_assert(COUNT_XMIT_DISCARDS == NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS);
static_assert(COUNT_LINK_RECOVERY_EVENTS == NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS);
static_assert(COUNT_EFFECTIVE_ERRORS == NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS);
static_assert(COUNT_SYMBOL_ERRORS == NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS);

// The number of arguments, and the size of each.
template <class Ours, class Theirs> struct IsSameCall : std::false_type {};
template <class Ours, class Theirs, class... OurArguments, class... TheirArguments>
struct IsSameCall<Ours (*)(OurArguments...), Theirs(TheirArguments...)> {
    static constexpr bool value = [] {
        if constexpr (sizeof...(OurArguments) != sizeof...(TheirArguments))
            return false;
        else
            return sizeof(Ours) == sizeof(Theirs) &&
                   ((sizeof(OurArguments) == sizeof(TheirArguments)) && ...);
    }();
};

#define SAME_CALL(ours, theirs)                                                                    \
    static_assert(IsSameCall<decltype(Functions::ours), decltype(theirs)>::value)
SAME_CALL(init, nvmlInit_v2);
SAME_CALL(shutdown, nvmlShutdown);
SAME_CALL(get_driver_version, nvmlSystemGetDriverVersion);
SAME_CALL(get_count, nvmlDeviceGetCount_v2);
SAME_CALL(get_handle, nvmlDeviceGetHandleByIndex_v2);
SAME_CALL(get_pci_info, nvmlDeviceGetPciInfo_v3);
SAME_CALL(get_uuid, nvmlDeviceGetUUID);
SAME_CALL(get_name, nvmlDeviceGetName);
SAME_CALL(get_link_state, nvmlDeviceGetNvLinkState);
SAME_CALL(get_field_values, nvmlDeviceGetFieldValues);
SAME_CALL(get_p2p_status, nvmlDeviceGetP2PStatus);

} // namespace
} // namespace collwire::nvidia::nvml
