// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/libbpf_log.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "userspace/loader/privileges.h"

namespace collwire::loader {
namespace {

thread_local LibbpfLog *innermost = nullptr;
constexpr std::size_t max_log_bytes = 1 << 20;

} // namespace

struct LibbpfLogAccess {
    static int print(libbpf_print_level level, const char *format, va_list arguments) {
        if (level == LIBBPF_DEBUG || innermost == nullptr)
            return 0;
        va_list again;
        va_copy(again, arguments);
        const int length = std::vsnprintf(nullptr, 0, format, again);
        va_end(again);
        auto &text = innermost->text_;
        if (length <= 0 || text.size() > max_log_bytes)
            return 0;
        const auto begin = text.size();
        text.resize(begin + static_cast<std::size_t>(length) + 1);
        (void)std::vsnprintf(text.data() + begin, static_cast<std::size_t>(length) + 1, format,
                             arguments);
        text.pop_back();
        return length;
    }
};

LibbpfLog::LibbpfLog() : outer_(innermost) {
    static std::once_flag once;
    std::call_once(once, [] { libbpf_set_print(LibbpfLogAccess::print); });
    innermost = this;
}

LibbpfLog::~LibbpfLog() {
    innermost = outer_;
}

std::string cause_in_libbpf_log(std::string_view log) {
    std::string last;
    std::string verifier;
    bool in_verifier_log = false;
    while (!log.empty()) {
        const auto end = log.find('\n');
        std::string_view line = log.substr(0, end);
        log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
        constexpr std::string_view prefix = "libbpf: ";
        if (line.starts_with(prefix))
            line.remove_prefix(prefix.size());
        if (line.find("BEGIN PROG LOAD LOG") != std::string_view::npos) {
            in_verifier_log = true;
            verifier.clear();
        } else if (line.find("END PROG LOAD LOG") != std::string_view::npos) {
            in_verifier_log = false;
        } else if (line.empty() || line.starts_with("processed ") ||
                   line.starts_with("verification time") || line.starts_with("stack depth")) {
            continue;
        } else if (in_verifier_log) {
            verifier = line;
        } else if (last.empty() || !line.starts_with("failed to load")) {
            // "failed to load object" only repeats that it failed.
            if (!line.starts_with("failed to load object"))
                last = line;
        }
    }
    if (verifier.empty())
        return last;
    return last.empty() ? "verifier: " + verifier : last + ": verifier: " + verifier;
}

Error bpf_error(std::string_view what, int error_number, std::string_view log) {
    const int number = std::abs(error_number);
    const auto cause = cause_in_libbpf_log(log);
    std::string message(what);
    message += ": ";
    if (!has_kernel_btf())
        return error(ErrorKind::Unsupported,
                     message + "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing). "
                               "Fix: boot a kernel built with CONFIG_DEBUG_INFO_BTF=y");
    if (number == EPERM || number == EACCES) {
        if (kernel_lockdown() == Lockdown::Confidentiality)
            return error(ErrorKind::NotPermitted,
                         message + "lockdown=confidentiality forbids programs that read kernel "
                                   "memory. Fix: boot with lockdown=integrity or none");
        if (const auto missing = missing_capabilities(); !missing.empty())
            return error(ErrorKind::NotPermitted,
                         message + "not permitted, missing " + missing + ". Fix: run as root");
    }
    message += cause.empty() ? std::strerror(number) : cause + " (" + std::strerror(number) + ")";
    if (number != EPERM)
        return error(ErrorKind::Failed, std::move(message));
    return error(ErrorKind::NotPermitted,
                 message + ". Fix: allow bpf() and perf_event_open() in the security policy "
                           "(SELinux, AppArmor, seccomp of a container)");
}

} // namespace collwire::loader
