// SPDX-License-Identifier: Apache-2.0
// Names of the numbers in records, for reports and `collwire dump`. A name is part of the output
// formats: never change one. All return text that lives for ever, and "" for a number that this
// program does not know.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace collwire::capture {

struct NamedNumber {
    std::uint64_t number;
    std::string_view name;
};

// "" for a number without a name.
[[nodiscard]] inline std::string_view name_in(std::span<const NamedNumber> names,
                                              std::uint64_t number) {
    for (const NamedNumber &entry : names)
        if (entry.number == number)
            return entry.name;
    return {};
}

[[nodiscard]] std::string_view kind_name(std::uint64_t kind);          // enum cw_kind
[[nodiscard]] std::string_view link_layer_name(std::uint64_t value);   // enum cw_link_layer
[[nodiscard]] std::string_view port_state_name(std::uint64_t value);   // enum ib_port_state
[[nodiscard]] std::string_view gid_type_name(std::uint64_t value);     // enum cw_gid_type
[[nodiscard]] std::string_view probe_kind_name(std::uint64_t value);   // enum cw_probe_kind
[[nodiscard]] std::string_view source_state_name(std::uint64_t value); // enum cw_source_state
[[nodiscard]] std::string_view end_reason_name(std::uint64_t value);   // cw_end.reason
[[nodiscard]] std::string_view
qp_type_name(std::uint64_t value); // enum ib_qp_type, enum ibv_qp_type
[[nodiscard]] std::string_view qp_state_name(std::uint64_t value);    // enum ib_qp_state
[[nodiscard]] std::string_view async_event_name(std::uint64_t value); // enum ib_event_type
[[nodiscard]] std::string_view wire_class_name(std::uint64_t value);  // enum cw_wire_class
[[nodiscard]] std::string_view post_class_name(std::uint64_t value);  // enum cw_post_class
[[nodiscard]] std::string_view mtu_class_name(std::uint64_t value); // index of packets[]: "256" ...
[[nodiscard]] std::string_view module_status_name(std::uint64_t value);  // cw_module_event.status
[[nodiscard]] std::string_view posts_counted_name(std::uint64_t value);  // enum cw_posts_counted
[[nodiscard]] std::string_view counter_unit_name(std::uint64_t value);   // enum cw_counter_unit
[[nodiscard]] std::string_view counter_source_name(std::uint64_t value); // enum cw_counter_source
[[nodiscard]] std::string_view loss_class_name(std::uint64_t value);     // enum cw_loss_class

// Bits and their names.
[[nodiscard]] std::span<const NamedNumber> node_flag_names();    // enum cw_node_flags
[[nodiscard]] std::span<const NamedNumber> device_flag_names();  // enum cw_device_flags
[[nodiscard]] std::span<const NamedNumber> process_flag_names(); // enum cw_process_flags
[[nodiscard]] std::span<const NamedNumber> probe_flag_names();   // enum cw_probe_flags
[[nodiscard]] std::span<const NamedNumber> qp_flag_names();      // enum cw_qp_flags
// enum cw_post_operations_flags
[[nodiscard]] std::span<const NamedNumber> post_operations_flag_names();

// Every kind of record that this program knows.
[[nodiscard]] std::span<const NamedNumber> kind_names();
[[nodiscard]] bool is_known_kind(std::uint64_t kind);

// enum ib_mtu (1 to 5) in bytes; 0 for any other number.
[[nodiscard]] std::uint32_t path_mtu_bytes(std::uint64_t path_mtu);

} // namespace collwire::capture
