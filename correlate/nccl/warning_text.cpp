// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/warning_text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace collwire::nccl {
namespace {

// enum ibv_wc_status, infiniband/verbs.h
constexpr std::array<std::string_view, 24> STATUS_NAMES{"IBV_WC_SUCCESS",
                                                        "IBV_WC_LOC_LEN_ERR",
                                                        "IBV_WC_LOC_QP_OP_ERR",
                                                        "IBV_WC_LOC_EEC_OP_ERR",
                                                        "IBV_WC_LOC_PROT_ERR",
                                                        "IBV_WC_WR_FLUSH_ERR",
                                                        "IBV_WC_MW_BIND_ERR",
                                                        "IBV_WC_BAD_RESP_ERR",
                                                        "IBV_WC_LOC_ACCESS_ERR",
                                                        "IBV_WC_REM_INV_REQ_ERR",
                                                        "IBV_WC_REM_ACCESS_ERR",
                                                        "IBV_WC_REM_OP_ERR",
                                                        "IBV_WC_RETRY_EXC_ERR",
                                                        "IBV_WC_RNR_RETRY_EXC_ERR",
                                                        "IBV_WC_LOC_RDD_VIOL_ERR",
                                                        "IBV_WC_REM_INV_RD_REQ_ERR",
                                                        "IBV_WC_REM_ABORT_ERR",
                                                        "IBV_WC_INV_EECN_ERR",
                                                        "IBV_WC_INV_EEC_STATE_ERR",
                                                        "IBV_WC_FATAL_ERR",
                                                        "IBV_WC_RESP_TIMEOUT_ERR",
                                                        "IBV_WC_GENERAL_ERR",
                                                        "IBV_WC_TM_ERR",
                                                        "IBV_WC_TM_RNDV_INCOMPLETE"};

constexpr std::string_view DIGITS = "0123456789";

std::optional<std::uint32_t> number_at(std::string_view text, std::size_t at) {
    std::uint32_t number = 0;
    const char *begin = text.data() + std::min(at, text.size());
    const auto read = std::from_chars(begin, text.data() + text.size(), number);
    return read.ec == std::errc{} ? std::optional(number) : std::nullopt;
}

// The text after `name`; absent if `name` is.
std::optional<std::string_view> text_after(std::string_view text, std::string_view name) {
    const std::size_t at = text.find(name);
    return at == std::string_view::npos ? std::nullopt
                                        : std::optional(text.substr(at + name.size()));
}

// "12", or "IBV_WC_RETRY_EXC_ERR(12)"
std::optional<std::uint32_t> status_of(std::string_view value) {
    if (!value.starts_with("IBV_WC_"))
        return number_at(value, 0);
    const std::size_t open = value.find('(');
    return open == std::string_view::npos ? std::nullopt : number_at(value, open + 1);
}

// The conversion after a '%': its length, "%%" has 1.
std::size_t conversion_length(std::string_view format) {
    const std::size_t last = format.find_first_of("diouxXeEfFgGaAcspn%");
    return last == std::string_view::npos ? format.size() : last + 1;
}

} // namespace

bool is_made_of(std::string_view format, std::string_view text) {
    bool is_first = true;
    while (!format.empty()) {
        std::string literal;
        bool ends_in_value = false;
        while (!format.empty() && !ends_in_value) {
            if (format[0] != '%') {
                literal += format[0];
                format.remove_prefix(1);
                continue;
            }
            format.remove_prefix(1);
            const std::size_t length = conversion_length(format);
            if (length == 1 && format[0] == '%')
                literal += '%';
            else
                ends_in_value = true;
            format.remove_prefix(length);
        }
        const std::size_t at = is_first ? (text.starts_with(literal) ? 0 : std::string_view::npos)
                                        : text.find(literal);
        if (at == std::string_view::npos)
            return false;
        text.remove_prefix(at + literal.size());
        is_first = false;
        // The format allows nothing after its last literal.
        if (format.empty() && !ends_in_value && !text.empty() && at != 0)
            return text.find_first_not_of(" \n") == std::string_view::npos;
    }
    return true;
}

std::optional<CompletionText> read_completion(std::string_view text) {
    const auto completion = text_after(text, "Got completion from peer ");
    const auto entry = text_after(text, "Got CQE with error");
    if (!completion && !entry)
        return std::nullopt;
    CompletionText read;
    for (const std::string_view name : {"status=", "with error "})
        if (const auto value = completion ? text_after(*completion, name) : std::nullopt;
            value && !read.status)
            read.status = status_of(*value);
    if (const auto value = text_after(text, "qp_num="))
        read.qpn = number_at(*value, 0);
    // "remoteGid ", "remoteGids", with or without text in between.
    if (auto value = text_after(text, "remoteGid")) {
        value->remove_prefix(std::min(value->find_first_not_of("s "), value->size()));
        read.remote_gid = value->substr(0, value->find_first_not_of("0123456789abcdef:."));
    }
    return read;
}

std::optional<std::uint16_t> peer_port(std::string_view text) {
    const std::size_t close = text.rfind('>');
    const std::size_t open = close == std::string_view::npos ? close : text.rfind('<', close);
    if (open == std::string_view::npos || open + 1 == close ||
        text.substr(open + 1, close - open - 1).find_first_not_of(DIGITS) != std::string_view::npos)
        return std::nullopt;
    const auto number = number_at(text, open + 1);
    return number && *number <= UINT16_MAX ? std::optional(static_cast<std::uint16_t>(*number))
                                           : std::nullopt;
}

std::string_view wc_status_name(std::uint32_t status) {
    return status < STATUS_NAMES.size() ? STATUS_NAMES[status] : std::string_view{};
}

} // namespace collwire::nccl
