// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1: a test double of the part of NVML that collwire uses. It answers from the file
// that COLLWIRE_NVML_DOUBLE names, which a test may replace at any time (README.md has its words).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "userspace/nvidia/nvml_abi.h"

namespace {

namespace nvml = collwire::nvidia::nvml;

constexpr std::size_t MAX_GPUS = 64;
constexpr auto POLL = std::chrono::milliseconds{5};
constexpr const char *ALL = "all";
constexpr int NO_GPU = 28; // NVML_ERROR_GPU_NOT_FOUND

// A device is distinguished by its address alone.
char devices[MAX_GPUS];
bool is_started = false;

struct Answer {
    int result = nvml::SUCCESS;
    int type = nvml::TYPE_UNSIGNED_LONG_LONG;
    unsigned long long value = 0;
};

struct Gpu {
    unsigned domain = 0, bus = 0, device = 0;
    std::string uuid, name = "nvml_double";
    std::map<std::pair<unsigned, unsigned>, Answer> fields; // field, link
    std::map<unsigned, int> states;                         // by link, for nvmlDeviceGetNvLinkState
    std::map<unsigned, int> peers;                          // by GPU, for nvmlDeviceGetP2PStatus
    int result = nvml::SUCCESS;                             // of every call for this GPU
    bool is_blocked = false;
};

struct State {
    int init = nvml::SUCCESS;
    bool is_init_blocked = false;
    std::string driver = "580.65.06";
    std::vector<Gpu> gpus;
};

unsigned link_of(const std::string &word) {
    return word == ALL ? nvml::SCOPE_ALL_LINKS
                       : static_cast<unsigned>(std::strtoul(word.c_str(), nullptr, 10));
}

int type_of(const std::string &word) {
    return word == "u32" ? nvml::TYPE_UNSIGNED_INT : nvml::TYPE_UNSIGNED_LONG_LONG;
}

// One statement a line; those after "gpu" are of that GPU.
void take_line(State &state, const std::string &line) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word.empty() || word[0] == '#')
        return;
    if (word == "init")
        words >> state.init;
    else if (word == "init-blocks")
        state.is_init_blocked = true;
    else if (word == "driver")
        words >> state.driver;
    else if (word == "gpu") {
        Gpu gpu;
        std::string address;
        words >> address >> gpu.uuid;
        const char *at = address.c_str();
        for (unsigned *part : {&gpu.domain, &gpu.bus, &gpu.device}) {
            char *end = nullptr;
            *part = static_cast<unsigned>(std::strtoul(at, &end, 16));
            at = *end == '\0' ? end : end + 1;
        }
        state.gpus.push_back(std::move(gpu));
    } else if (state.gpus.empty()) {
        std::fprintf(stderr, "nvml_double: no gpu before: %s\n", line.c_str());
        std::abort();
    } else if (Gpu &gpu = state.gpus.back(); word == "field") {
        unsigned field = 0;
        std::string link, type = "u64";
        Answer answer;
        words >> field >> link >> answer.value >> type;
        answer.type = type_of(type);
        gpu.fields[{field, link_of(link)}] = answer;
    } else if (word == "refuse") {
        unsigned field = 0;
        std::string link;
        Answer answer;
        words >> field >> link >> answer.result;
        gpu.fields[{field, link_of(link)}] = answer;
    } else if (word == "state") {
        unsigned link = 0;
        int value = 0;
        words >> link >> value;
        gpu.states[link] = value;
    } else if (word == "peer") {
        unsigned index = 0;
        int status = 0;
        words >> index >> status;
        gpu.peers[index] = status;
    } else if (word == "result")
        words >> gpu.result;
    else if (word == "block")
        gpu.is_blocked = true;
    else {
        std::fprintf(stderr, "nvml_double: not a statement: %s\n", line.c_str());
        std::abort();
    }
}

State state_now() {
    const char *path = std::getenv("COLLWIRE_NVML_DOUBLE");
    State state;
    std::ifstream file(path == nullptr ? "" : path);
    if (!file)
        state.init = nvml::DRIVER_NOT_LOADED;
    for (std::string line; std::getline(file, line);)
        take_line(state, line);
    return state;
}

// The GPU, once it is not blocked. Null: there is none any more.
const Gpu *gpu_of(void *device, State &state) {
    const auto index = static_cast<std::size_t>(static_cast<char *>(device) - devices);
    for (;;) {
        state = state_now();
        if (index >= state.gpus.size())
            return nullptr;
        if (!state.gpus[index].is_blocked)
            return &state.gpus[index];
        std::this_thread::sleep_for(POLL);
    }
}

// 0, or why it cannot answer.
int use(void *device, State &state, const Gpu *&gpu) {
    if (!is_started)
        return nvml::UNINITIALIZED;
    gpu = gpu_of(device, state);
    if (gpu == nullptr || state.init != nvml::SUCCESS)
        return gpu == nullptr ? NO_GPU : state.init;
    return gpu->result;
}

int put_text(const std::string &text, char *into, unsigned bytes) {
    std::snprintf(into, bytes, "%s", text.c_str());
    return nvml::SUCCESS;
}

} // namespace

#pragma GCC visibility push(default)
// NOLINTBEGIN(readability-identifier-naming): NVML's names
extern "C" {

int nvmlInit_v2() {
    State state = state_now();
    while (state.is_init_blocked) {
        std::this_thread::sleep_for(POLL);
        state = state_now();
    }
    is_started = state.init == nvml::SUCCESS;
    return state.init;
}
int nvmlShutdown() {
    is_started = false;
    return nvml::SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
    return put_text(state_now().driver, text, bytes);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!is_started)
        return nvml::UNINITIALIZED;
    *count = static_cast<unsigned>(std::min(state_now().gpus.size(), MAX_GPUS));
    return nvml::SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= std::min(state_now().gpus.size(), MAX_GPUS))
        return nvml::INVALID_ARGUMENT;
    *device = &devices[index];
    return nvml::SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, nvml::PciInfo *info) {
    State state;
    const Gpu *gpu = nullptr;
    if (const int result = use(device, state, gpu); result != nvml::SUCCESS)
        return result;
    *info = nvml::PciInfo{};
    info->domain = gpu->domain;
    info->bus = gpu->bus;
    info->device = gpu->device;
    std::snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", gpu->domain, gpu->bus,
                  gpu->device);
    return nvml::SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned bytes) {
    State state;
    const Gpu *gpu = nullptr;
    const int result = use(device, state, gpu);
    return result != nvml::SUCCESS ? result : put_text(gpu->uuid, text, bytes);
}

int nvmlDeviceGetName(void *device, char *text, unsigned bytes) {
    State state;
    const Gpu *gpu = nullptr;
    const int result = use(device, state, gpu);
    return result != nvml::SUCCESS ? result : put_text(gpu->name, text, bytes);
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *is_active) {
    State state;
    const Gpu *gpu = nullptr;
    if (const int result = use(device, state, gpu); result != nvml::SUCCESS)
        return result;
    const auto found = gpu->states.find(link);
    if (found == gpu->states.end())
        return nvml::INVALID_ARGUMENT;
    *is_active = found->second;
    return nvml::SUCCESS;
}

int nvmlDeviceGetP2PStatus(void *device, void *other, int caps, int *status) {
    State state;
    const Gpu *gpu = nullptr;
    if (const int result = use(device, state, gpu); result != nvml::SUCCESS)
        return result;
    const auto found = gpu->peers.find(static_cast<unsigned>(static_cast<char *>(other) - devices));
    if (found == gpu->peers.end() || caps != nvml::P2P_CAPS_NVLINK)
        return nvml::INVALID_ARGUMENT;
    *status = found->second;
    return nvml::SUCCESS;
}

int nvmlDeviceGetFieldValues(void *device, int count, nvml::FieldValue *values) {
    State state;
    const Gpu *gpu = nullptr;
    if (const int result = use(device, state, gpu); result != nvml::SUCCESS)
        return result;
    for (int i = 0; i < count; ++i) {
        nvml::FieldValue &value = values[i];
        const auto found = gpu->fields.find({value.field_id, value.scope_id});
        value.result = found == gpu->fields.end() ? nvml::NOT_SUPPORTED : found->second.result;
        if (value.result != nvml::SUCCESS)
            continue;
        value.value_type = found->second.type;
        if (value.value_type == nvml::TYPE_UNSIGNED_INT)
            value.value.as_unsigned = static_cast<unsigned>(found->second.value);
        else
            value.value.as_unsigned_long_long = found->second.value;
    }
    return nvml::SUCCESS;
}

} // extern "C"
// NOLINTEND(readability-identifier-naming)
#pragma GCC visibility pop
