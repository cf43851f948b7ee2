// SPDX-License-Identifier: Apache-2.0
// Events of ports and devices.
#include <fmt/format.h>

#include "collwire/port_records.h"
#include "collwire/record.h"
#include "correlate/capture/kinds.h"
#include "correlate/model/ingest.h"

namespace collwire::model {

using capture::record_as;
using capture::text_of;

void Ingest::add_event(Event event) {
    if (++n_events_ > MAX_EVENTS) {
        ++model_.captures.back().unusable_records;
        ++model_.captures.back().events_left_out;
        return;
    }
    event.session = session_;
    model_.events.push_back(std::move(event));
}

Event Ingest::event_of_device(const cw_header &header, std::uint32_t dev_index,
                              std::string_view device) {
    Event event;
    event.time_ns = header.time_ns;
    event.host = session().host;
    event.device = device_by_index(dev_index);
    if (event.device == NONE && !device.empty())
        event.device = device_by_name(device);
    return event;
}

void Ingest::add_async_event(std::span<const std::byte> record) {
    const auto from = record_as<cw_async_event>(record);
    if (from.port > MAX_PORT_NUMBER) {
        ++model_.captures.back().unusable_records;
        return;
    }
    Event event = event_of_device(from.header, from.dev_index, text_of(from.device));
    event.port_number = from.port;
    if (event.device != NONE && from.port != 0)
        event.port = port_of(event.device, from.port);
    event.qpn = from.qpn & CW_QPN_MASK;
    const std::string_view name = capture::async_event_name(from.event);
    event.kind = name.empty() ? fmt::format("async_event_{}", from.event) : std::string(name);
    event.what = fmt::format("asynchronous event {}", event.kind);
    add_event(std::move(event));
}

void Ingest::add_carrier(std::span<const std::byte> record) {
    const auto from = record_as<cw_carrier>(record);
    Event event;
    event.time_ns = from.header.time_ns;
    event.host = session().host;
    event.netdev = text_of(from.netdev);
    event.kind = from.up != 0 ? "carrier_up" : "carrier_down";
    event.what = fmt::format("carrier of {} went {}", event.netdev, from.up != 0 ? "up" : "down");
    add_event(std::move(event));
}

void Ingest::add_module_event(std::span<const std::byte> record) {
    const auto from = record_as<cw_module_event>(record);
    Event event;
    event.time_ns = from.header.time_ns;
    event.host = session().host;
    const std::string_view status = capture::module_status_name(from.status);
    event.kind = fmt::format("module_{}", status.empty() ? std::string_view("event") : status);
    event.what = fmt::format("cable module {} at {}: {} (status {}, error type {})", from.module,
                             text_of(from.pci_address), status.empty() ? "?" : status, from.status,
                             from.error_type);
    event.pci_address = text_of(from.pci_address);
    add_event(std::move(event));
}

void Ingest::add_device_gone(std::span<const std::byte> record) {
    const auto from = record_as<cw_device_gone>(record);
    // The kernel's event and the recorder's poll of sysfs that misses the device may both report
    // it.
    if (!gone_devices_.emplace(session_, from.dev_index).second)
        return;
    Event event = event_of_device(from.header, from.dev_index, text_of(from.device));
    event.kind = "device_gone";
    event.what = fmt::format("device {} was removed", text_of(from.device));
    add_event(std::move(event));
}

} // namespace collwire::model
