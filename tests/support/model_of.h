// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "collwire/record.h"
#include "correlate/capture/reader.h"
#include "correlate/model/ingest.h"
#include "correlate/model/join.h"
#include "tests/support/leaf_spine.h"
#include "tests/support/node_builder.h"

namespace collwire::test {

inline void ingest_bytes(model::Ingest &ingest, std::string path,
                         std::span<const std::byte> bytes) {
    ingest.begin_capture(std::move(path));
    const auto summary = capture::read_capture(
        bytes, [&](const cw_header &header, std::span<const std::byte> record) {
            ingest.add(header, record);
        });
    if (summary)
        ingest.end_capture(*summary);
    else
        ingest.fail_capture(summary.failure().message);
}

// The joined model of these captures, named 0.cwc, 1.cwc ...
[[nodiscard]] inline model::Model model_of(const std::vector<std::vector<std::byte>> &captures,
                                           std::string_view topology_json = LEAF_SPINE) {
    model::Ingest ingest;
    for (std::size_t i = 0; i < captures.size(); ++i)
        ingest_bytes(ingest, std::to_string(i) + ".cwc", captures[i]);
    model::Model model = ingest.take();
    if (topology_json.empty()) {
        model::join(model, nullptr);
        return model;
    }
    const auto topology = topology::parse_topology(topology_json);
    EXPECT_TRUE(topology) << topology.failure().message;
    model::join(model, topology ? &*topology : nullptr);
    return model;
}

// The first queue pair of this host and number.
[[nodiscard]] inline const model::Qp &qp_of(const model::Model &model, std::string_view host,
                                            std::uint32_t qpn) {
    for (const model::Qp &qp : model.qps)
        if (model.hosts[qp.host].name == host && qp.key.qpn == qpn)
            return qp;
    ADD_FAILURE() << "no queue pair " << qpn << " on " << host;
    static const model::Qp none;
    return none;
}

[[nodiscard]] inline bool has_warning(const model::Model &model, std::string_view words) {
    for (const std::string &warning : model.warnings)
        if (warning.find(words) != std::string::npos)
            return true;
    return false;
}

} // namespace collwire::test
