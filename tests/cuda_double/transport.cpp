// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/transport.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>

#include "tests/cuda_double/library.h"
#include "tests/cuda_double/own_memory.h"

namespace collwire::cuda_double {
namespace {

using Address = std::uintptr_t;

constexpr std::size_t kNameBytes = 8;

struct TransportLayout {
    bool is_known;
    Field channels, peers, connector_transport;
    std::array<Field, 2> connectors, transports; // by direction
    Address channel_bytes, connector_bytes;
};

const TransportLayout &transport_layout() {
    static const TransportLayout known = [] {
        const Layout &layout = library().layout();
        TransportLayout found{
            false,
            layout.field("ncclComm.channels"),
            layout.field("ncclChannel.peers"),
            layout.field("ncclConnector.transportComm"),
            {layout.field("ncclChannelPeer.recv"), layout.field("ncclChannelPeer.send")},
            {layout.field("ncclTransport.recv"), layout.field("ncclTransport.send")},
            static_cast<Address>(layout.size_bytes("ncclChannel").value_or(0)),
            static_cast<Address>(layout.size_bytes("ncclConnector").value_or(0))};
        found.is_known = found.channels && found.peers && found.connector_transport &&
                         found.connectors[0] && found.connectors[1] && found.transports[0] &&
                         found.transports[1] && found.channel_bytes != 0 &&
                         found.connector_bytes != 0;
        return found;
    }();
    return known;
}

Address offset_of(const Field &field) {
    return static_cast<Address>(field.offset_bytes());
}

} // namespace

std::optional<std::string> transport_of(const HostCommunicator &host, int channel, int peer,
                                        Direction direction, int index) {
    const TransportLayout &layout = transport_layout();
    if (!layout.is_known)
        return std::nullopt;
    const auto side = static_cast<std::size_t>(direction);
    const Address of_channel = host.address + offset_of(layout.channels) +
                               static_cast<Address>(channel) * layout.channel_bytes;
    const auto peers = try_read(of_channel + offset_of(layout.peers));
    if (!peers)
        return std::nullopt;
    const auto of_peer = try_read(*peers + static_cast<Address>(peer) * sizeof(void *));
    if (!of_peer)
        return std::nullopt;
    const Address connector = *of_peer + offset_of(layout.connectors[side]) +
                              static_cast<Address>(index) * layout.connector_bytes;
    const auto transport = try_read(connector + offset_of(layout.connector_transport));
    // The name comes first in ncclTransport.
    const auto text =
        transport ? try_read(*transport - offset_of(layout.transports[side])) : std::nullopt;
    if (!text)
        return std::nullopt;
    std::array<char, kNameBytes + 1> name{};
    std::memcpy(name.data(), &*text, kNameBytes);
    std::string lower = name.data();
    const bool is_name = !lower.empty() && std::all_of(lower.begin(), lower.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0;
    });
    std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
        return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
    return is_name ? std::optional(lower) : std::nullopt;
}

} // namespace collwire::cuda_double
