// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/meaning.h"

#include <algorithm>
#include <array>

namespace collwire::model {

namespace {

constexpr std::array<std::string_view, 16> PATH_LOSS = {
    "local_ack_timeout_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "out_of_sequence",
    "req_transport_retries_exceeded",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "rcvd_seq_err",
    "completer_retry_err",
    "retry_exceeded_err",
    "out_of_seq_request",
    "RetransSegs",
    "RTO",
    "retrans_pkts",
    "retrans_timeout_events",
    "unresponsive_remote_events",
};

constexpr std::array<std::string_view, 11> PORT_ERRORS = {
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "rx_crc_errors_phy",
    "rx_pcs_symbol_err_phy",
    "link_down_events_phy",
};

template <std::size_t N>
bool contains(const std::array<std::string_view, N> &names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

} // namespace

CounterMeaning meaning_of(std::string_view counter_name) {
    if (contains(PATH_LOSS, counter_name))
        return CounterMeaning::PathLoss;
    if (contains(PORT_ERRORS, counter_name))
        return CounterMeaning::PortErrors;
    if (counter_name == "carrier_down_count")
        return CounterMeaning::CarrierDown;
    return CounterMeaning::None;
}

} // namespace collwire::model
