// SPDX-License-Identifier: Apache-2.0
#include "correlate/find/watchdog_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace collwire::find {
namespace {

constexpr std::size_t MOST_BYTES = 64UL << 10U; // longer than any line; a pasted log is cut
constexpr std::size_t MOST_NAME_BYTES = 64;
constexpr std::int32_t MOST_RANKS = 1 << 20;

bool is_word(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

// What follows the first place of `key` that does not continue a word.
std::optional<std::string_view> after(std::string_view text, std::string_view key) {
    for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1))
        if (at == 0 || !is_word(text[at - 1]) || !is_word(key.front()))
            return text.substr(at + key.size());
    return std::nullopt;
}

std::optional<std::uint64_t> number_at(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || end == text.data())
        return std::nullopt;
    return value;
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key) {
    const auto rest = after(text, key);
    return rest ? number_at(*rest) : std::nullopt;
}

std::optional<std::int32_t> rank_of(std::optional<std::uint64_t> number) {
    return number && *number < static_cast<std::uint64_t>(MOST_RANKS)
               ? std::optional(static_cast<std::int32_t>(*number))
               : std::nullopt;
}

std::string word_at(std::string_view text) {
    std::size_t n = 0;
    while (n < text.size() && n < MOST_NAME_BYTES && is_word(text[n]))
        ++n;
    return std::string(text.substr(0, n));
}

// "[4, 1024]": the product. "[[4, 1024], [3]]": of the first. "[]": a scalar, 1.
std::optional<std::uint64_t> elements_at(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    bool is_open = false;
    while (!text.empty() && (text.front() == '[' || text.front() == '(')) {
        is_open = true;
        text.remove_prefix(1);
    }
    if (!is_open)
        return std::nullopt;
    std::uint64_t product = 1;
    for (;;) {
        text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
        const auto value = number_at(text);
        if (!value)
            break;
        if (*value != 0 && product > UINT64_MAX / *value)
            return std::nullopt;
        product *= *value;
        text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
    }
    return !text.empty() && (text.front() == ']' || text.front() == ')') ? std::optional(product)
                                                                         : std::nullopt;
}

// The value of "key": in JSON, or of 'key': as Python prints it.
std::optional<std::string_view> value_of(std::string_view text, std::string_view key) {
    for (const char quote : {'"', '\''}) {
        const std::string quoted = quote + std::string(key) + quote;
        const std::size_t at = text.find(quoted);
        if (at == std::string_view::npos)
            continue;
        std::string_view rest = text.substr(at + quoted.size());
        rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
        if (rest.empty() || rest.front() != ':')
            continue;
        rest.remove_prefix(1);
        rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
        return rest;
    }
    return std::nullopt;
}

std::string_view text_at(std::string_view value) {
    if (value.empty() || (value.front() != '"' && value.front() != '\''))
        return {};
    const char quote = value.front();
    value.remove_prefix(1);
    return value.substr(0, value.find(quote));
}

// PyTorch's name of an operation in the flight recorder: "nccl:all_reduce".
std::string op_type_of_profile(std::string_view name) {
    using Entry = std::pair<std::string_view, std::string_view>;
    static constexpr auto names = std::to_array<Entry>({
        {"all_reduce", "ALLREDUCE"},
        {"all_reduce_barrier", "BARRIER"},
        {"allreduce_coalesced", "ALLREDUCE_COALESCED"},
        {"broadcast", "BROADCAST"},
        {"_broadcast_oop", "BROADCAST"},
        {"reduce", "REDUCE"},
        {"_reduce_oop", "REDUCE"},
        {"all_gather", "ALLGATHER"},
        {"_all_gather_base", "_ALLGATHER_BASE"},
        {"all_gather_into_tensor_coalesced", "ALLGATHER_COALESCED"},
        {"reduce_scatter", "REDUCE_SCATTER"},
        {"_reduce_scatter_base", "_REDUCE_SCATTER_BASE"},
        {"reduce_scatter_tensor_coalesced", "REDUCE_SCATTER_COALESCED"},
        {"all_to_all", "ALLTOALL_BASE"},
        {"gather", "GATHER"},
        {"scatter", "SCATTER"},
        {"coalesced", "COALESCED"},
    });
    if (name.starts_with("nccl:"))
        name.remove_prefix(5);
    for (const auto &[profile, op_type] : names)
        if (name == profile)
            return std::string(op_type);
    if (name.starts_with("send "))
        return "SEND";
    if (name.starts_with("recv "))
        return "RECV";
    return {};
}

void take_flight_recorder(std::string_view text, WatchdogLine &line) {
    if (const auto name = value_of(text, "profiling_name"))
        line.op_type = op_type_of_profile(text_at(*name));
    const auto is_p2p = value_of(text, "is_p2p");
    line.is_p2p_seq = is_p2p && (is_p2p->starts_with("true") || is_p2p->starts_with("True"));
    for (const std::string_view key :
         {line.is_p2p_seq ? std::string_view("p2p_seq_id") : std::string_view("collective_seq_id"),
          std::string_view("seq_id")})
        if (const auto value = value_of(text, key); value && !line.seq)
            line.seq = number_at(*value);
    if (const auto sizes = value_of(text, "input_sizes"))
        line.numel_in = elements_at(*sizes);
    if (const auto sizes = value_of(text, "output_sizes"))
        line.numel_out = elements_at(*sizes);
    if (const auto state = value_of(text, "state"))
        line.is_unfinished = text_at(*state) == "scheduled" || text_at(*state) == "started";
    if (const auto group = value_of(text, "pg_id"); group && number_at(*group))
        line.group = fmt::format("{}", *number_at(*group));
}

// "[PG ID 1 PG GUID 0(default_pg) Rank 3]", "[PG 0 (default_pg) Rank 1]", "[PG 0 Rank 1]"
void take_group(std::string_view text, WatchdogLine &line) {
    const std::size_t at = text.find("[PG ");
    if (at == std::string_view::npos)
        return;
    const std::string_view inside = text.substr(at + 1, text.find(']', at) - at - 1);
    const std::size_t rank_at = inside.rfind("Rank ");
    if (rank_at == std::string_view::npos)
        return;
    line.rank = rank_of(number_at(inside.substr(rank_at + 5)));
    std::string_view group = inside.substr(0, rank_at);
    while (!group.empty() && group.back() == ' ')
        group.remove_suffix(1);
    line.group = std::string(group.substr(0, MOST_NAME_BYTES));
}

void take_ranks(std::string_view text, WatchdogLine &line) {
    take_group(text, line);
    if (!line.rank)
        line.rank = rank_of(number_after(text, "[Rank "));
    line.global_rank = rank_of(number_after(text, "[rank"));
    // "[rank3] Watchdog caught ...": the only rank that there is.
    if (!line.rank && line.global_rank && text.find("[rank") != std::string_view::npos) {
        const auto rest = after(text, "[rank");
        if (rest && rest->find("] ") != std::string_view::npos &&
            rest->find("] ") == rest->find_first_not_of("0123456789"))
            line.rank = std::exchange(line.global_rank, std::nullopt);
    }
}

} // namespace

Result<WatchdogLine> parse_watchdog_line(std::string_view text) {
    text = text.substr(0, MOST_BYTES);
    WatchdogLine line;
    take_ranks(text, line);
    if (const auto op_type = after(text, "OpType="))
        line.op_type = word_at(*op_type);
    line.seq = number_after(text, "SeqNum=");
    line.numel_in = number_after(text, "NumelIn=");
    line.numel_out = number_after(text, "NumelOut=");
    if (const auto shape = after(text, "TensorShape="); shape && !line.numel_in)
        line.numel_in = elements_at(*shape);
    line.is_unfinished = text.find("before timing out") != std::string_view::npos ||
                         text.find("collective operation timeout") != std::string_view::npos ||
                         text.find("Timeout at NCCL work") != std::string_view::npos;
    for (const std::string_view key :
         {"Timeout at NCCL work: ", "detected by watchdog at work sequence id: ",
          "detected by watchdog at work: "})
        if (!line.seq)
            line.seq = number_after(text, key);
    if (line.op_type.empty() && !line.seq)
        take_flight_recorder(text, line);
    line.is_p2p_seq = line.is_p2p_seq || line.op_type == "SEND" || line.op_type == "RECV" ||
                      line.op_type == "RECVANYSOURCE";
    if (line.op_type.empty() && !line.seq)
        return error(ErrorKind::BadInput,
                     "no operation in the line: it has neither OpType= nor SeqNum=. Fix: give the "
                     "whole line of PyTorch's watchdog (\"... WorkNCCL(SeqNum=..., OpType=..., "
                     "...) ...\") or an entry of its flight recorder");
    return line;
}

} // namespace collwire::find
