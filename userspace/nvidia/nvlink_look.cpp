// SPDX-License-Identifier: Apache-2.0
#include "userspace/nvidia/nvlink_look.h"

#include <cstring>
#include <map>

#include <fmt/format.h>

#include "collwire/nvlink_records.h"
#include "collwire/record_kinds.h"
#include "userspace/nvidia/nvml_abi.h"
#include "userspace/nvidia/nvml_process.h"

namespace collwire::nvidia {
namespace {

using Gpus = std::map<std::uint32_t, NvlinkLook::Gpu>;

bool counts_bytes(unsigned field) {
    return (field >= nvml::THROUGHPUT_DATA_TX && field <= nvml::THROUGHPUT_RAW_RX) ||
           field == nvml::COUNT_XMIT_BYTES;
}

void take(const NvmlMessage &message, Gpus &gpus) {
    NvlinkLook::Gpu &gpu = gpus[message.gpu];
    const auto *bytes = reinterpret_cast<const std::byte *>(message.record.data());
    if (message.header().kind == CW_KIND_NVLINK_GPU) {
        cw_nvlink_gpu record{};
        std::memcpy(&record, bytes, sizeof record);
        gpu.pci_address = pci_address_of(record.bus_id);
        gpu.name.assign(record.name, strnlen(record.name, sizeof record.name));
        gpu.links = record.links;
        return;
    }
    cw_nvlink_sample head{};
    std::memcpy(&head, bytes, sizeof head);
    for (std::uint32_t i = 0; i < head.n; ++i) {
        cw_nvlink_value value{};
        std::memcpy(&value, bytes + sizeof head + i * sizeof value, sizeof value);
        if (value.result != nvml::SUCCESS)
            continue;
        gpu.has_bytes = gpu.has_bytes || counts_bytes(value.field);
        if (value.field == nvml::GET_STATE) {
            gpu.has_state = true;
            gpu.active_links += value.value == 1 ? 1 : 0;
        }
    }
}

} // namespace

std::string pci_address_of(std::uint64_t bus_id) {
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", bus_id >> 20U, bus_id >> 12U & 0xffU,
                       bus_id >> 4U & 0xffU, bus_id & 0xfU);
}

NvlinkLook look_at_nvlink(const std::string &library, std::chrono::milliseconds most) {
    NvlinkLook look;
    NvmlProcess process;
    NvmlProcess::Options options;
    options.library = library;
    if (auto started = process.start(options); !started) {
        look.outcome = NvlinkLook::Outcome::Failed;
        look.problem = started.failure().message;
        return look;
    }
    Gpus gpus;
    const auto end = std::chrono::steady_clock::now() + most;
    look.outcome = NvlinkLook::Outcome::NoAnswer;
    look.problem = fmt::format("NVML gave no answer within {} s", most.count() / 1000);
    for (bool is_done = false; !is_done && std::chrono::steady_clock::now() < end;) {
        const auto message = process.next();
        if (!message && !process.runs()) {
            look.outcome = NvlinkLook::Outcome::Failed;
            look.problem = "the process that reads NVML has exited";
            break;
        }
        if (!message) {
            process.wait(std::chrono::milliseconds{100});
            continue;
        }
        switch (message->event) {
        case NvmlEvent::Absent:
            look.outcome = NvlinkLook::Outcome::NoLibrary;
            look.problem = message->text;
            is_done = true;
            break;
        case NvmlEvent::Failed:
            look.outcome = NvlinkLook::Outcome::Failed;
            look.problem = message->text.empty()
                               ? fmt::format("NVML cannot be used (error {})", message->result)
                               : message->text;
            is_done = true;
            break;
        case NvmlEvent::Record:
            take(*message, gpus);
            break;
        case NvmlEvent::Round:
            look.outcome = NvlinkLook::Outcome::Listed;
            look.problem.clear();
            is_done = true;
            break;
        case NvmlEvent::Ready:
        case NvmlEvent::Begin:
            break;
        }
    }
    for (auto &[index, gpu] : gpus)
        look.gpus.push_back(std::move(gpu));
    return look;
}

} // namespace collwire::nvidia
