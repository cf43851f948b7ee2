// SPDX-License-Identifier: Apache-2.0
#include "userspace/nvidia/nvlink_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/set_text.h"
#include "collwire/record_kinds.h"

namespace collwire::nvidia {
namespace {

using nvml::FieldValue;

// A driver from before NVLink 5 may refuse a request as a whole that has a field it does not know,
// so the two are separate requests.
constexpr auto PER_LINK = std::to_array<unsigned>(
    {nvml::THROUGHPUT_DATA_TX, nvml::THROUGHPUT_DATA_RX, nvml::THROUGHPUT_RAW_TX,
     nvml::THROUGHPUT_RAW_RX, nvml::ERROR_DL_REPLAY, nvml::ERROR_DL_RECOVERY, nvml::ERROR_DL_CRC,
     nvml::GET_SPEED, nvml::GET_STATE, nvml::GET_VERSION});
constexpr auto PER_LINK_5 = std::to_array<unsigned>(
    {nvml::COUNT_XMIT_BYTES, nvml::COUNT_RCV_BYTES, 206, 207, 208, 209, 210, 211, 212, 213, 214,
     215, nvml::COUNT_EFFECTIVE_ERRORS, nvml::COUNT_SYMBOL_ERRORS});
constexpr auto OF_ALL_LINKS =
    std::to_array<unsigned>({nvml::THROUGHPUT_DATA_TX, nvml::THROUGHPUT_DATA_RX,
                             nvml::THROUGHPUT_RAW_TX, nvml::THROUGHPUT_RAW_RX});

constexpr unsigned PEER_BITS = 64; // of cw_nvlink_gpu

template <typename Function> bool find(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

FieldValue question(unsigned field, unsigned scope) {
    FieldValue value{};
    value.field_id = field;
    value.scope_id = scope;
    // NVML leaves a field that it does not know untouched in some versions.
    value.result = nvml::NOT_SUPPORTED;
    return value;
}

bool is_refused(int result) {
    return result == nvml::NOT_SUPPORTED || result == nvml::INVALID_ARGUMENT ||
           result == nvml::DEPRECATED;
}

std::uint16_t as_u16(int number) {
    return static_cast<std::uint16_t>(std::clamp(number, 0, 0xffff));
}

} // namespace

std::uint64_t bits_of(const FieldValue &value) {
    switch (value.value_type) {
    case nvml::TYPE_UNSIGNED_INT:
        return value.value.as_unsigned;
    case nvml::TYPE_SIGNED_INT: {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value.value.as_int, sizeof bits);
        return bits;
    }
    case nvml::TYPE_UNSIGNED_SHORT:
        return value.value.as_unsigned_short;
    default: {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value.value, sizeof bits);
        return bits;
    }
    }
}

Result<void> NvlinkReader::load(const std::string &library) {
    void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
        return error(ErrorKind::Unsupported, library + " is not on this machine");
    const std::array<std::pair<const char *, bool>, 9> found{{
        {"nvmlInit_v2", find(handle, "nvmlInit_v2", functions_.init)},
        {"nvmlShutdown", find(handle, "nvmlShutdown", functions_.shutdown)},
        {"nvmlDeviceGetCount_v2", find(handle, "nvmlDeviceGetCount_v2", functions_.get_count)},
        {"nvmlDeviceGetHandleByIndex_v2",
         find(handle, "nvmlDeviceGetHandleByIndex_v2", functions_.get_handle)},
        {"nvmlDeviceGetPciInfo_v3",
         find(handle, "nvmlDeviceGetPciInfo_v3", functions_.get_pci_info)},
        {"nvmlDeviceGetFieldValues",
         find(handle, "nvmlDeviceGetFieldValues", functions_.get_field_values)},
        {"nvmlDeviceGetUUID", find(handle, "nvmlDeviceGetUUID", functions_.get_uuid)},
        {"nvmlDeviceGetName", find(handle, "nvmlDeviceGetName", functions_.get_name)},
        {"nvmlSystemGetDriverVersion",
         find(handle, "nvmlSystemGetDriverVersion", functions_.get_driver_version)},
    }};
    find(handle, "nvmlDeviceGetNvLinkState", functions_.get_link_state);
    find(handle, "nvmlDeviceGetP2PStatus", functions_.get_p2p_status);
    for (const auto &[name, is_found] : found)
        if (!is_found)
            return error(
                ErrorKind::Failed,
                fmt::format("{} has no {}. Fix: install the driver's own library", library, name));
    return {};
}

int NvlinkReader::start(std::uint32_t epoch) {
    gpus_.clear();
    devices_.clear();
    must_restart_ = false;
    if (const int result = functions_.init(); result != nvml::SUCCESS)
        return result;
    std::array<char, nvml::DRIVER_VERSION_BYTES> driver{};
    if (functions_.get_driver_version(driver.data(), driver.size()) != nvml::SUCCESS)
        driver[0] = '\0';
    driver.back() = '\0';
    unsigned count = 0;
    if (const int result = functions_.get_count(&count); result != nvml::SUCCESS)
        return result;
    for (unsigned index = 0; index < count; ++index)
        add_gpu(index, epoch, driver.data());
    return nvml::SUCCESS;
}

void NvlinkReader::add_gpu(unsigned index, std::uint32_t epoch, const std::string &driver) {
    Gpu gpu;
    nvml::PciInfo pci{};
    if (functions_.get_handle(index, &gpu.device) != nvml::SUCCESS ||
        functions_.get_pci_info(gpu.device, &pci) != nvml::SUCCESS)
        return;
    cw_nvlink_gpu record{};
    record.header = {sizeof record, CW_KIND_NVLINK_GPU, CW_CPU_USERSPACE, monotonic_ns()};
    record.gpu = index;
    record.epoch = epoch;
    record.bus_id = std::uint64_t{pci.domain} << 20U | std::uint64_t{pci.bus & 0xffU} << 12U |
                    std::uint64_t{pci.device & 0x1fU} << 4U;
    std::array<char, nvml::UUID_BYTES> uuid{};
    if (functions_.get_uuid(gpu.device, uuid.data(), uuid.size()) == nvml::SUCCESS)
        set_text(record.uuid, {uuid.data(), strnlen(uuid.data(), uuid.size())});
    std::array<char, nvml::DEVICE_NAME_BYTES> name{};
    if (functions_.get_name(gpu.device, name.data(), name.size()) == nvml::SUCCESS)
        set_text(record.name, {name.data(), strnlen(name.data(), name.size())});
    set_text(record.driver, driver);
    find_links(gpu.device, record);
    gpus_.push_back(record);
    devices_.push_back(std::move(gpu));
}

// By field, or, where the driver does not have it, by the links that have a state.
void NvlinkReader::find_links(nvml::Device device, cw_nvlink_gpu &record) const {
    FieldValue count = question(nvml::LINK_COUNT, 0);
    const int result = functions_.get_field_values(device, 1, &count);
    record.result = result != nvml::SUCCESS ? result : count.result;
    if (record.result == nvml::SUCCESS) {
        record.links = static_cast<__u32>(std::min<std::uint64_t>(bits_of(count), nvml::MAX_LINKS));
        return;
    }
    for (unsigned link = 0; functions_.get_link_state != nullptr && link < nvml::MAX_LINKS; ++link)
        if (int state = 0; functions_.get_link_state(device, link, &state) == nvml::SUCCESS)
            record.links = link + 1;
    if (record.links != 0)
        record.result = nvml::SUCCESS;
}

void NvlinkReader::find_peers(std::size_t place) {
    cw_nvlink_gpu &record = gpus_[place];
    for (std::size_t i = 0; functions_.get_p2p_status != nullptr && i < gpus_.size(); ++i) {
        int status = nvml::P2P_STATUS_UNKNOWN;
        if (i == place || gpus_[i].gpu >= PEER_BITS ||
            functions_.get_p2p_status(devices_[place].device, devices_[i].device,
                                      nvml::P2P_CAPS_NVLINK, &status) != nvml::SUCCESS ||
            status == nvml::P2P_STATUS_UNKNOWN)
            continue;
        (status == nvml::P2P_STATUS_OK ? record.nvlink_peers : record.other_peers) |=
            std::uint64_t{1} << gpus_[i].gpu;
    }
}

bool NvlinkReader::is_asked(const Gpu &gpu, unsigned field) const {
    return gpu.readings % ASK_AGAIN == 0 ||
           std::ranges::find(gpu.left_out, field) == gpu.left_out.end();
}

NvlinkReading NvlinkReader::read(std::size_t place) {
    Gpu &gpu = devices_[place];
    NvlinkReading reading;
    reading.head.header = {sizeof reading.head, CW_KIND_NVLINK_SAMPLE, CW_CPU_USERSPACE, 0};
    reading.head.gpu = gpus_[place].gpu;
    reading.head.epoch = gpus_[place].epoch;
    if (gpu.readings == 0)
        find_peers(place);
    reading.head.read_begin_ns = monotonic_ns();
    std::vector<FieldValue> asked;
    // The bytes first and together: their time is what windows are made of.
    for (const unsigned field : OF_ALL_LINKS)
        if (is_asked(gpu, field))
            asked.push_back(question(field, nvml::SCOPE_ALL_LINKS));
    ask(place, asked, reading);
    for (const std::span<const unsigned> fields :
         {std::span<const unsigned>(PER_LINK_5), std::span<const unsigned>(PER_LINK)}) {
        asked.clear();
        for (const unsigned field : fields)
            for (unsigned link = 0; link < gpus_[place].links && is_asked(gpu, field); ++link)
                asked.push_back(question(field, link));
        ask(place, asked, reading);
    }
    if (gpu.readings++ % ASK_AGAIN == 0)
        leave_out(gpu, reading);
    reading.head.header.time_ns = monotonic_ns();
    reading.head.n = static_cast<__u32>(reading.values.size());
    reading.head.header.length_bytes =
        static_cast<__u32>(sizeof reading.head + reading.values.size() * sizeof(cw_nvlink_value));
    return reading;
}

void NvlinkReader::ask(std::size_t place, std::vector<FieldValue> &asked, NvlinkReading &reading) {
    if (asked.empty())
        return;
    const int result = functions_.get_field_values(devices_[place].device,
                                                   static_cast<int>(asked.size()), asked.data());
    must_restart_ = must_restart_ || result == nvml::UNINITIALIZED ||
                    result == nvml::DRIVER_NOT_LOADED || result == nvml::LIBRARY_MISMATCH;
    for (const FieldValue &answer : asked) {
        cw_nvlink_value value{};
        value.field = static_cast<__u16>(answer.field_id);
        value.link = answer.scope_id == nvml::SCOPE_ALL_LINKS ? std::uint16_t{CW_NVLINK_ALL_LINKS}
                                                              : static_cast<__u16>(answer.scope_id);
        value.result = as_u16(result != nvml::SUCCESS ? result : answer.result);
        if (value.result == nvml::SUCCESS) {
            value.type = as_u16(answer.value_type);
            value.value = bits_of(answer);
        }
        reading.values.push_back(value);
    }
}

void NvlinkReader::leave_out(Gpu &gpu, const NvlinkReading &reading) {
    std::map<unsigned, bool> refused;
    for (const cw_nvlink_value &value : reading.values) {
        const auto [field, is_new] = refused.try_emplace(value.field, true);
        field->second = field->second && is_refused(value.result);
    }
    gpu.left_out.clear();
    for (const auto &[field, is_refused_everywhere] : refused)
        if (is_refused_everywhere)
            gpu.left_out.push_back(field);
}

} // namespace collwire::nvidia
