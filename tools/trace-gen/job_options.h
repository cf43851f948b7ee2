// SPDX-License-Identifier: Apache-2.0
// What a generated training job is, and what is wrong with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace collwire::trace_gen {

inline constexpr std::uint32_t GPUS = 8; // and NICs, of each node
inline constexpr std::uint32_t NODES_OF_POD = 32;
inline constexpr std::uint32_t MOST_NODES = 1024;

struct LateRank {
    std::uint32_t rank = 0;
    std::uint64_t delay_ns = 0;
    std::uint32_t first_iteration = 0;
    std::uint32_t last_iteration = ~0U;
};

struct SlowLink {
    std::uint32_t node = 0;
    std::uint32_t nic = 0;
    double factor = 1; // of the duration of each operation over it
    std::uint32_t first_iteration = 0;
    std::uint32_t last_iteration = ~0U;
};

// Connections of a node through one NIC that go through another one.
struct MovedNic {
    std::uint32_t node = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
};

// A counter of a port that grows by one at each sample of a time.
struct PortErrors {
    std::uint32_t node = 0;
    std::uint32_t nic = 0;
    std::string counter;
    std::uint64_t from_ns = 0; // from the start of the recordings
    std::uint64_t to_ns = UINT64_MAX;
};

// NCCL of a rank keeps an error for its communicator of data parallelism.
struct KeptError {
    std::uint32_t rank = 0;
    std::uint64_t at_ns = 0; // from the start of the recordings
};

// A parameter of NCCL with another value.
struct SetParameter {
    std::string name;
    std::int64_t value = 0;
};

// CLOCK_REALTIME of a node, ahead of true time by so much more from a time on.
struct SetClock {
    std::uint32_t node = 0;
    std::int64_t ahead_ns = 0;
    std::uint64_t from_ns = 0; // from the start of the recordings
};

enum class BucketProtocol { Simple, LL, LL128 };

struct StoppedRank {
    std::uint32_t rank = 0;
    std::uint64_t at_ns = 0; // from the start of the recordings
};

enum class Damage { None, Missing, Truncated, Doubled, Corrupt, NewerMajor, NewerMinor };

struct DamagedCapture {
    std::uint32_t node = 0;
    Damage damage = Damage::None;
};

enum class JobBytes { Posts, Computed };
enum class JobSkew { None, Constant, Drift };

struct JobOptions {
    std::uint32_t nodes = 2;
    std::uint32_t tensor_parallel = 1; // 1, 4, 8 ranks of a node
    std::uint32_t pipeline_stages = 1; // divides the nodes
    std::uint32_t expert_parallel = 0; // ranks of an all-to-all; 0: none
    std::uint32_t iterations = 3;
    std::uint64_t step_ns = 2'000'000'000;
    std::uint32_t buckets = 4; // AllReduces of gradients in an iteration
    std::uint64_t bucket_bytes = 32U << 20;
    BucketProtocol bucket_protocol = BucketProtocol::Simple;
    std::uint32_t layers = 2; // AllGather and ReduceScatter of tensor parallelism each
    std::uint32_t microbatches = 2;
    std::uint64_t transfer_bytes = 1U << 20; // a send of a pipeline, or to an expert
    bool is_sharded = false;                 // ReduceScatter and AllGather in place of AllReduce
    bool has_small = true;                   // an AllReduce of 4 KiB by a tree with LL
    bool has_network_times = false;
    bool has_local_launches = false;
    bool has_ring_order = true;
    bool has_names = true; // of communicators
    JobBytes bytes = JobBytes::Posts;
    JobSkew skew = JobSkew::None;
    std::uint64_t skew_ns = 0; // at most
    double drift_ppm = 0;      // at most
    std::vector<SetClock> clocks;
    std::vector<LateRank> late;
    std::vector<SlowLink> slow;
    std::vector<PortErrors> port_errors;
    std::vector<KeptError> kept_errors;
    std::vector<MovedNic> moved;
    std::vector<SetParameter> parameters;
    std::optional<StoppedRank> stopped;
    std::vector<DamagedCapture> damaged;
    std::uint64_t seed = 1;
    int zstd_level = 1;
    bool has_truth = true;
    std::string directory = ".";

    [[nodiscard]] std::uint32_t n_ranks() const { return nodes * GPUS; }
};

// RANK:MS[:FROM-TO]: iterations FROM to TO.
[[nodiscard]] Result<LateRank> parse_late(std::string_view text);
// NODE:NIC:FACTOR[:FROM-TO].
[[nodiscard]] Result<SlowLink> parse_slow_link(std::string_view text);
[[nodiscard]] Result<PortErrors> parse_port_errors(std::string_view text);
[[nodiscard]] Result<KeptError> parse_kept_error(std::string_view text);
// NODE:FROM:TO.
[[nodiscard]] Result<MovedNic> parse_moved_nic(std::string_view text);
// NAME:VALUE.
[[nodiscard]] Result<SetParameter> parse_parameter(std::string_view text);
// SECONDS[:RANK].
[[nodiscard]] Result<StoppedRank> parse_stopped(std::string_view text);
// NODE:missing, truncated, doubled, corrupt, newer-major or newer-minor.
[[nodiscard]] Result<DamagedCapture> parse_damage(std::string_view text);
[[nodiscard]] std::string_view damage_name(Damage damage);
// "SIMPLE", "LL" or "LL128".
[[nodiscard]] Result<BucketProtocol> parse_protocol(std::string_view text);
// NODE:MS[:SECONDS].
[[nodiscard]] Result<SetClock> parse_clock(std::string_view text);
// "none", "constant:MS" or "drift:PPM", set in `options`.
[[nodiscard]] Result<void> parse_skew(std::string_view text, JobOptions &options);
// Usage, with the option to change.
[[nodiscard]] Result<void> check_job(const JobOptions &options);

} // namespace collwire::trace_gen
