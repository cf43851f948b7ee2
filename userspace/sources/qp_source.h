// SPDX-License-Identifier: Apache-2.0
// The life of queue pairs, from ib_core (bpf/qp.bpf.c). docs/sources/qp.md
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "userspace/netlink/attributes.h"
#include "userspace/sources/known_qps.h"
#include "userspace/sources/probed_source.h"

struct qp; // the skeleton of bpf/qp.bpf.c

namespace collwire::sources {

struct QpSourceOptions {
    bool filter_by_tgid = false; // only those given to SharedMaps::want_tgid
    std::string layout_unknown;  // of module_origin.h: why its modules must not be read
    std::string off;             // why it is not asked for; empty: it is
    // Queue pairs are recorded without it, too: then its failure does not end the recording.
    bool has_other_source = false;
    loader::HookMode mode = loader::default_hook_mode();
};

// Attach this before any other source that looks at queue pairs: it fills the table of live ones.
class QpSource : public ProbedSource<qp> {
public:
    QpSource(const loader::SharedMaps &maps, QpSourceOptions options);
    ~QpSource() override;

    void on_record(const cw_header &header) override;
    // Queue pairs are events; there is something to append only when the whole state is asked for.
    void sample(source::RecordSink &sink, bool everything) override;

    // KnownQps::look_for_errors.
    void look_for_errors() { known_.look_for_errors(); }

private:
    [[nodiscard]] source::ProbeUse use() const override { return source::ProbeUse::Control; }
    bool applicable() override;
    bool configure() override;
    [[nodiscard]] bool indispensable() const override { return !options_.has_other_source; }
    [[nodiscard]] std::uint64_t missed() const override;
    // Dumps the queue pairs that exist, under our own probe, and checks what it read.
    Result<void> on_attached() override;
    void forget_destroyed();
    void check_dump(const std::vector<netlink::NetlinkQp> &dumped);

    QpSourceOptions options_;
    KnownQps known_;
    std::unordered_map<std::uint64_t, std::uint32_t> netlink_destinations_; // by device and QPN
};

} // namespace collwire::sources
