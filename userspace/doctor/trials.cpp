// SPDX-License-Identifier: Apache-2.0
#include "userspace/doctor/trials.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "userspace/inventory/files.h"

namespace collwire::doctor {
namespace {

// A kernel function for tests of BPF (net/bpf/test_run.c), called by nothing else.
constexpr const char *trial_function = "bpf_fentry_test1";
constexpr const char *trial_tracepoint = "inet_sock_set_state";
constexpr std::uint32_t ring_bytes = 4096;
// r0 = 0; exit
constexpr std::array<bpf_insn, 2> empty_program = {
    {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}}};

Trial outcome(int result) {
    if (result >= 0)
        return {Trial::Outcome::Works, ""};
    const int errnum = -result;
    const bool denied = errnum == EPERM || errnum == EACCES;
    return {denied ? Trial::Outcome::NotPermitted : Trial::Outcome::Fails, std::strerror(errnum)};
}

// Keeps libbpf's messages off stderr; the outcome of a trial is enough.
class QuietLibbpf {
public:
    QuietLibbpf() : before_(libbpf_set_print(nullptr)) {}
    QuietLibbpf(const QuietLibbpf &) = delete;
    QuietLibbpf &operator=(const QuietLibbpf &) = delete;
    ~QuietLibbpf() { libbpf_set_print(before_); }

private:
    libbpf_print_fn_t before_;
};

Trial close_after(int file) {
    if (file < 0)
        return outcome(-errno);
    close(file);
    return outcome(0);
}

Trial try_ring_buffer() {
    const int map = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "cw_doctor", 0, 0, ring_bytes, nullptr);
    return close_after(map);
}

// A perf event of a dynamic probe, never enabled: the kernel checks that it could.
Trial try_probe(const std::string &pmu, std::uint64_t name_or_path, std::uint64_t offset) {
    const auto type = inventory::read_number("/sys/bus/event_source/devices/" + pmu + "/type");
    if (!type)
        return {Trial::Outcome::Fails, "not in this kernel (no " + pmu + " event source)"};
    perf_event_attr attributes{};
    attributes.size = sizeof(attributes);
    attributes.type = static_cast<std::uint32_t>(*type);
    attributes.disabled = 1;
    attributes.config1 = name_or_path;
    attributes.config2 = offset;
    const long file = syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
    return close_after(static_cast<int>(file));
}

Trial try_kprobe() {
    return try_probe("kprobe", reinterpret_cast<std::uint64_t>(trial_function), 0);
}

Trial try_uprobe() {
    // An offset inside the ELF header: no code runs there.
    static constexpr const char *own_program = "/proc/self/exe";
    return try_probe("uprobe", reinterpret_cast<std::uint64_t>(own_program), 16);
}

Trial try_fentry() {
    const int type_id = libbpf_find_vmlinux_btf_id(trial_function, BPF_TRACE_FENTRY);
    if (type_id < 0)
        return {Trial::Outcome::Fails, "kernel BTF does not describe functions"};
    bpf_prog_load_opts options{};
    options.sz = sizeof(options);
    options.expected_attach_type = BPF_TRACE_FENTRY;
    options.attach_btf_id = static_cast<std::uint32_t>(type_id);
    const int loaded = bpf_prog_load(BPF_PROG_TYPE_TRACING, "cw_doctor", "GPL",
                                     empty_program.data(), empty_program.size(), &options);
    if (loaded < 0)
        return outcome(-errno);
    Trial attached = close_after(bpf_raw_tracepoint_open(nullptr, loaded));
    close(loaded);
    return attached;
}

Trial try_tracepoint() {
    const int loaded = bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "cw_doctor", "GPL",
                                     empty_program.data(), empty_program.size(), nullptr);
    if (loaded < 0)
        return outcome(-errno);
    Trial attached = close_after(bpf_raw_tracepoint_open(trial_tracepoint, loaded));
    close(loaded);
    return attached;
}

Trial try_memory_in_cgroup() {
    // The helper came with the same release, and libbpf uses it as the sign, too.
    const int found =
        libbpf_probe_bpf_helper(BPF_PROG_TYPE_SOCKET_FILTER, BPF_FUNC_ktime_get_coarse_ns, nullptr);
    return found == 1 ? Trial{Trial::Outcome::Works, ""} : Trial{Trial::Outcome::Fails, ""};
}

template <Trial (*attempt)()> Trial quietly() {
    const QuietLibbpf quiet;
    return attempt();
}

} // namespace

Trials machine_trials() {
    return {quietly<try_ring_buffer>, quietly<try_kprobe>,           quietly<try_uprobe>,
            quietly<try_fentry>,      quietly<try_memory_in_cgroup>, quietly<try_tracepoint>};
}

} // namespace collwire::doctor
