// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/attach_targets.h"

#include <cerrno>
#include <mutex>
#include <string_view>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "userspace/loader/kernel_btf.h"

namespace collwire::loader {
namespace {

// Replaces libbpf's own handler for these sections, which does the same and more.
int find_target(bpf_program *program, bpf_prog_load_opts *options, long) {
    const std::string_view section = bpf_program__section_name(program);
    const auto slash = section.find('/');
    if (slash == std::string_view::npos)
        return -EINVAL;
    const auto target = KernelBtf::shared()->attach_target(section.substr(slash + 1));
    if (!target)
        return -ESRCH;
    options->attach_btf_obj_fd = static_cast<std::uint32_t>(target->btf_fd);
    options->attach_btf_id = target->type_id;
    return 0;
}

} // namespace

void use_shared_attach_targets() {
    static std::once_flag once;
    std::call_once(once, [] {
        libbpf_prog_handler_opts options = {};
        options.sz = sizeof(options);
        options.prog_prepare_load_fn = find_target;
        libbpf_register_prog_handler("fentry+", BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, &options);
        libbpf_register_prog_handler("fexit+", BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT, &options);
    });
}

} // namespace collwire::loader
