// SPDX-License-Identifier: Apache-2.0
// The facts from which a communicator's role is guessed, and the guess; plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace collwire::roles {

enum class GuessedRole : std::uint8_t { None, DataParallel, TensorParallel, Pipeline, Expert };
[[nodiscard]] std::string_view guessed_role_name(GuessedRole role); // "dp", "tp", "pp", "ep"; ""

// A GPU that a rank of the job has.
struct Place {
    std::uint32_t node = 0;
    std::uint32_t gpu = 0; // among the job's GPUs of that node, by PCI address, from 0
};

struct Member {
    std::int32_t rank = 0;
    std::size_t place = 0; // in JobFacts
};

enum class Movement : std::uint8_t { AllReduce, ReduceScatter, AllGather, Reduce, AllToAll, Other };

// `bytes`: of the whole buffer, which an AllGather fills and a ReduceScatter reduces.
struct CollectiveKind {
    Movement movement = Movement::Other;
    std::uint64_t bytes = 0;

    friend auto operator<=>(const CollectiveKind &, const CollectiveKind &) = default;
};

// Of one communicator. Ranks are its own.
struct GroupFacts {
    std::int32_t n_ranks = 0;
    std::int32_t n_nodes = 0;    // by NCCL; 0: not known
    std::vector<Member> members; // the captured ones, by rank
    std::map<CollectiveKind, std::uint64_t> collectives;
    std::vector<CollectiveKind> latest; // of the large ones, in order
    std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> transfers; // source, destination
    std::map<std::uint64_t, std::uint64_t> transfer_sizes;                    // bytes: how often
    // Of two ranks: sends and receives take turns, where an exchange has both at once. Absent: not
    // all launches were recorded.
    std::optional<bool> takes_turns;
};

// The communicators of ranks that are connected by them.
struct JobFacts {
    std::vector<Place> places;
    std::vector<GroupFacts> groups;
};

struct RoleGuess {
    GuessedRole role = GuessedRole::None;
    std::string reason; // the evidence, or why there is no guess
};

// Smaller collectives are no gradients and no activations: norms, counts, flags.
inline constexpr std::uint64_t LARGE_BYTES = 64 << 10;
// Large collectives that GroupFacts::latest keeps.
inline constexpr std::size_t MOST_LATEST = 1 << 14;

// One for each group.
[[nodiscard]] std::vector<RoleGuess> guess_job(const JobFacts &job);

} // namespace collwire::roles
