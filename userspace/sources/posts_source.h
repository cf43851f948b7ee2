// SPDX-License-Identifier: Apache-2.0
// Source "posts": the bytes that programs post to their queue pairs, from uprobes in the drivers'
// user-space libraries (bpf/verbs_post.bpf.c). docs/sources/posts.md
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/verbs.h"
#include "userspace/loader/map_reader.h"
#include "userspace/loader/skeleton.h"
#include "userspace/process/process_view.h"
#include "userspace/source/nccl_queue_pairs.h"
#include "userspace/source/source.h"
#include "userspace/sources/posts_sites.h"
#include "userspace/sources/qp_source.h"
#include "userspace/sources/slice_schedule.h"

struct verbs_post; // the skeleton of bpf/verbs_post.bpf.c

namespace collwire::sources {

// An RDMA device of this machine and whether the bytes of its queue pairs come from something
// cheaper than probes on posts: frames of a software device, per-queue-pair counters of the device.
struct PostsDevice {
    std::string name;   // "rxe0"
    std::string driver; // the kernel's name: "rdma_rxe", "mlx5_core"
    bool counted_otherwise = false;
};

struct PostsOptions {
    // Asked for by the user: every device, and single-stepped instructions where there is no other.
    // If not, only devices that are not counted otherwise; those not listed are not.
    bool forced = false;
    std::vector<PostsDevice> devices;
    bool filter_by_tgid = false; // only those given to SharedMaps::want_tgid
    std::uint32_t max_slots = 0; // queue pairs times kinds of request times threads; 0: 65536
    // A library that no process maps keeps its probes so long at least; the jobs of a container
    // follow one another.
    std::uint64_t spare_unused_ns = 60'000'000'000;
    // Walks chains without bpf_loop; also COLLWIRE_NO_BPF_LOOP=1 in the environment, for tests.
    bool bounded_walk = false;
    // While all queue pairs here are NCCL's, and their bytes are derived: probes are in place in
    // slices only.
    SliceTimes slices = {};
    // What is known of the process's connections. Empty: it has none.
    std::function<const source::NcclQueuePairs *(std::uint32_t tgid)> nccl_queue_pairs = {};
};

class PostsSource : public source::Source {
public:
    PostsSource(const loader::SharedMaps &maps, PostsOptions options);
    ~PostsSource() override;

    [[nodiscard]] std::string_view name() const override { return "posts"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override {
        return sites_.probe_list();
    }
    Result<void> attach() override;
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    // Queue pairs lead to the libraries of processes that use RDMA from now on.
    void on_record(const cw_header &header) override;
    void sample(source::RecordSink &sink, bool everything) override;
    [[nodiscard]] bool has_read_all() const override { return has_read_all_; }
    [[nodiscard]] std::uint64_t due_ns() const override;
    void on_due() override;
    void end() override;
    void detach() override { sites_.detach(); }
    [[nodiscard]] std::vector<source::ProbeGroup> probe_groups() const override;
    void take_off(std::string_view group, std::string reason) override;
    [[nodiscard]] std::set<std::uint32_t> recorded_processes() const override;

private:
    struct KeyHash {
        std::size_t operator()(const cw_verbs_key &key) const;
    };
    struct KeyEqual {
        bool operator()(const cw_verbs_key &a, const cw_verbs_key &b) const;
    };
    template <typename Value>
    using KeyMap = std::unordered_map<cw_verbs_key, Value, KeyHash, KeyEqual>;
    struct OwnedQp {
        pid_t pid = 0;
        std::uint64_t address = 0;   // of struct ibv_qp; 0: not known
        std::uint32_t maker_tid = 0; // 0: not known
        bool is_own_peer = false;    // connected with itself: NCCL's flush
    };
    struct PendingQp {
        cw_qp_key key;
        pid_t pid;
        std::uint64_t address;
        unsigned tries;
        std::uint64_t created_ns; // 0: before the recording
    };

    [[nodiscard]] static bool is_gone(pid_t pid);
    Result<void> load(bool bounded);
    [[nodiscard]] bool wants_device(std::string_view device) const;
    [[nodiscard]] bool wants_library(std::string_view path) const;
    void add_installed_libraries();
    void look_at_process(pid_t pid);
    [[nodiscard]] bool look_at_qp(const PendingQp &qp);
    void retry_pending();
    struct Counted {
        cw_post_counters counters{};
        std::vector<cw_slot_key> slots; // that they came from
    };
    // False: some may be missing.
    [[nodiscard]] bool read_counters(KeyMap<Counted> &all);
    void retire_dead_threads(const KeyMap<Counted> &all);
    void tie_unannounced(source::RecordSink &sink, const cw_verbs_key &key, std::uint64_t first_ns);
    void forget_stale(const KeyMap<Counted> &all);
    void forget_key(const cw_verbs_key &key, const Counted &counted);
    void size_slice_maps();
    void note_owner(const cw_qp_event &event);
    [[nodiscard]] bool may_pause();
    void follow_schedule();
    void note_counted(std::uint64_t since_ns, std::uint64_t change_ns);
    void watch_connections();
    void end_slice();
    void append_slices(source::RecordSink &sink, bool everything);

    const loader::SharedMaps &maps_;
    PostsOptions options_;
    loader::Skeleton<verbs_post> skeleton_;
    PostsSites sites_;
    source::SourceState state_;
    std::string loop_refused_; // why, where the kernel has bpf_loop
    std::string taken_off_;    // why, if it was
    bool attached_ = false;
    std::optional<loader::MapReader> reader_;
    struct Appended {
        std::uint64_t activity = 0;
        std::uint64_t last_ns = 0; // when it was last seen to grow
    };
    KeyMap<Appended> appended_;
    KeyMap<cw_verbs_qp> ties_;
    KeyMap<cw_post_counters> retired_;                // of threads that are no more
    KeyMap<std::set<std::uint32_t>> dead_threads_;    // in the last sample
    KeyMap<bool> untied_;                             // seen without a tie in the last sample
    KeyMap<bool> stale_;                              // stale in the last sample
    std::set<std::pair<pid_t, std::string>> scanned_; // processes and devices
    std::map<pid_t, process::ProcessView> views_;
    std::vector<PendingQp> pending_;
    QpMap<pid_t> resolved_; // whose functions are known: nothing more is to be found in them
    bool has_read_all_ = true;
    std::uint64_t unresolved_qps_ = 0;
    std::uint64_t late_qps_ = 0; // that may have posted before their probes were in place
    SliceSchedule schedule_;
    PostsCounted counted_ = PostsCounted::All;
    std::uint64_t slice_since_ns_ = 0;
    bool is_over_ = false;         // the recording
    bool has_lost_probes_ = false; // not all were attached again after a pause
    QpMap<OwnedQp> owned_;         // of user space
    std::vector<cw_watched_key> watched_, watched_qps_;
    std::vector<cw_post_slice> slice_records_; // not appended yet
    std::vector<cw_post_operations> operation_records_;
    std::optional<cw_post_slice> last_slice_record_;
    bool any_library_ = true; // a device here has a driver library of unknown name
};

} // namespace collwire::sources
