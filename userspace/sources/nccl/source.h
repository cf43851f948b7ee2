// SPDX-License-Identifier: Apache-2.0
// NCCL's communicators, calls, launches and connections (bpf/nccl.bpf.c). docs/sources/nccl.md
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record.h"
#include "userspace/nccl/memory/comm_copies.h"
#include "userspace/nccl/memory/live_comms.h"
#include "userspace/sources/nccl/errors.h"
#include "userspace/sources/nccl/images.h"
#include "userspace/sources/nccl/plugins.h"
#include "userspace/sources/nccl/shapes.h"
#include "userspace/sources/nccl/steps.h"

namespace collwire {

struct NcclOptions {
    NcclProbes probes;
    std::vector<std::string> files; // that are probed before anybody maps them
    // Whether CW_KIND_FILE_MAPPED records come. Without them processes are looked at again and
    // again: each with every sample while it is young, later less often.
    std::function<bool()> told_of_mappings = [] { return true; };
    // Whoever maps a file with one of these numbers next is told of, as if it were the first.
    std::function<void(const std::set<std::uint64_t> &inodes)> tell_again = {};
    // For how long an image that nobody maps keeps its probes.
    std::uint64_t spare_unused_ns = NcclImages::MINUTE_NS;
    // NCCL has an error that queue pairs may tell more of.
    std::function<void()> on_error = {};
    // Gets the connections that do not come through the ring buffer.
    std::function<void(const cw_header &)> on_connection = {};
};

class NcclSource : public Source {
public:
    NcclSource(const SharedMaps &maps, NcclOptions options);
    ~NcclSource() override;

    [[nodiscard]] std::string_view name() const override { return "nccl"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<PlannedProbe> plan() const override;
    Result<void> attach() override;
    [[nodiscard]] std::vector<SourceState> states() const override;
    void baseline() override { keep_steps(false); }
    void begin() override;
    void on_record(const cw_header &header) override;
    void sample(RecordSink &sink, bool everything) override;
    [[nodiscard]] std::vector<LossCount> losses() const override;
    void end() override;
    void detach() override;

private:
    using Bytes = std::vector<std::byte>;
    struct CommKey {
        std::uint32_t tgid = 0;
        std::uint64_t comm = 0;
        friend auto operator<=>(const CommKey &, const CommKey &) = default;
    };
    // What is known of a communicator as records, for a new segment of the capture.
    struct Comm {
        cw_nccl_comm record{};
        std::vector<Bytes> channels;
        bool has_fresh_channels = false; // to be appended with a sample
        std::map<std::tuple<std::uint64_t, std::uint32_t>, Bytes> connections; // address, first
        std::set<std::uint64_t> elsewhere; // connections of other ranks' proxies that were met
    };
    // A connection of another rank's proxy, that only its process can tell of.
    struct Elsewhere {
        CommKey comm;
        std::uint64_t connection = 0;
        std::uint32_t proxy_index = 0;
        unsigned looks = 0;
    };
    // Connections that were read of a communicator that the programs met first, whose record is on
    // its way.
    struct Waiting {
        std::uint64_t generation_ns = 0; // of that record
        std::uint64_t comm_hash = 0;     // as it was read
        std::int32_t rank = 0;
        std::vector<cw_nccl_connection> connections;
    };
    // That a process has mapped an image: it may have several.
    struct ProcessKey {
        std::uint32_t tgid = 0;
        std::uint32_t image_id = 0;
        friend auto operator<=>(const ProcessKey &, const ProcessKey &) = default;
    };
    struct Process {
        std::uint64_t start_ticks = 0;
        std::uint64_t start_boottime_ns = 0;
        std::map<std::string, std::int64_t> parameters; // as they were told of
        bool may_have_more = false;                     // parameters that are not told of
        std::uint64_t there_ns = 0;                     // when it was seen last
    };

    struct ToldMapping {
        pid_t pid = 0;
        std::uint64_t inode = 0;
        bool is_known = false; // what the file is
    };

    void look_at(const std::vector<pid_t> &pids);
    void look_at_files(bool everything);
    void look_at_told();
    void keep_steps(bool everything);
    // Those of images with a greater number than `last_known`.
    void look_into(const std::vector<pid_t> &pids, std::uint32_t last_known);
    void look_into(pid_t pid, std::uint32_t last_known, nccl::CommCopies &copies);
    // `is_there`: whether it is what was read.
    void add_outside(const NcclImage &image, nccl::LiveComm &live,
                     const std::function<bool()> &is_there);
    void tell_connections(const NcclImage &image, const CommKey &key,
                          std::vector<cw_nccl_connection> &connections);
    void tell_waiting(const cw_nccl_comm &record);
    void on_comm(const cw_nccl_comm &record);
    void on_comm_end(const CommKey &key);
    void read_channels(Comm &comm, const NcclImage &image);
    void drop_channels(Comm &comm);
    void append_fresh_channels(RecordSink &sink);
    [[nodiscard]] static std::string channels_problem();
    void note_elsewhere(const cw_nccl_shape_ops &record);
    void look_elsewhere();
    bool read_elsewhere(const Elsewhere &connection);
    void keep(const CommKey &key, const cw_nccl_connection &connection);
    void note_plugin(const CommKey &key, const Comm &comm, const cw_nccl_connection &connection);
    [[nodiscard]] static std::string plugins_problem(std::size_t n_connections);
    void look_at_plugins();
    void append_plugins(RecordSink &sink, bool everything);
    void watch_steps(const cw_nccl_connection &connection, const CommKey &comm);
    // Null: there is none.
    const cw_nccl_layout *layout_of(const NcclImage &image);
    void look_at_parameters(const ProcessKey &key, Process &process);
    void watch_errors(const cw_nccl_comm &record);
    void look_at_errors();
    void look_at_text(std::uint32_t tgid);
    void keep_errors(const NcclErrors::Told &told);
    void append_errors(RecordSink &sink, bool everything);
    void forget_ended();
    void forget_comms(const ProcessKey &key, const Process &process);
    void look_around();
    void forget_images();
    void append_images(RecordSink &sink, bool everything);

    NcclOptions options_;
    NcclImages images_;
    std::map<CommKey, Comm> comms_;
    std::map<CommKey, Waiting> waiting_;
    std::map<ProcessKey, Process> processes_;
    std::vector<Bytes> fresh_;                        // to be appended with the next sample
    std::size_t channel_bytes_ = 0;                   // of all communicators, and those below
    std::size_t fresh_channel_bytes_ = 0;             // in fresh_: of communicators that have ended
    bool are_channels_cut_ = false;                   // there was no room for all of them
    bool is_cut_ = false;                             // of a process not all was read
    std::map<std::uint32_t, cw_nccl_layout> layouts_; // by image
    NcclShapes shapes_;
    NcclSteps steps_;
    NcclPlugins plugins_;
    NcclPlugins::Found fresh_plugins_;  // to be appended with the next sample
    std::vector<cw_nccl_process> gone_; // to be appended with the next sample
    NcclErrors errors_;
    NcclErrors::Told fresh_errors_;         // to be appended with the next sample
    std::vector<cw_nccl_steps> kept_steps_; // of the baseline, of the end
    bool ended_ = false;
    std::vector<ToldMapping> told_;    // since the last sample
    std::vector<pid_t> again_;         // that have files which there was no time for
    std::vector<Elsewhere> elsewhere_; // that are not found yet
    std::map<pid_t, unsigned> looks_;  // at processes that are not known to have NCCL
    std::uint32_t last_told_ = 0;      // the image with the greatest number that was told of
};

} // namespace collwire
