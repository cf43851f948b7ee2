// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/kernel_functions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <mutex>
#include <unistd.h>

namespace collwire::loader {

namespace {

// The shared one if somebody holds it, else a new reading of the file.
Result<std::shared_ptr<const std::string>> shared_kallsyms() {
    static std::mutex mutex;
    static std::weak_ptr<const std::string> current;
    const std::lock_guard lock(mutex);
    if (auto text = current.lock())
        return text;
    std::ifstream file("/proc/kallsyms");
    std::string read;
    std::array<char, 65536> part{};
    while (file.read(part.data(), part.size()) || file.gcount() > 0)
        read.append(part.data(), static_cast<std::size_t>(file.gcount()));
    if (read.empty())
        return error(ErrorKind::Unsupported,
                     "cannot read /proc/kallsyms: no kernel function can be found. Fix: run as "
                     "root on a kernel with CONFIG_KALLSYMS=y; in a unit of systemd, without "
                     "ProtectKernelTunables=");
    auto text = std::make_shared<const std::string>(std::move(read));
    current = text;
    return text;
}

} // namespace

KernelFunctions KernelFunctions::parse(std::string_view kallsyms,
                                       const std::vector<std::string_view> &names) {
    KernelFunctions found;
    for (const auto name : names)
        found.functions_.emplace(name, Function{});
    // "ffffffffc0a01234 t name\t[module]"
    while (!kallsyms.empty()) {
        const auto line = kallsyms.substr(0, kallsyms.find('\n'));
        kallsyms.remove_prefix(std::min(kallsyms.size(), line.size() + 1));
        const auto type_at = line.find(' ') + 1;
        if (type_at == 0 || type_at + 2 > line.size())
            continue;
        const char type = line[type_at];
        if (type != 't' && type != 'T' && type != 'w' && type != 'W')
            continue;
        const auto rest = line.substr(type_at + 2);
        const auto name = rest.substr(0, rest.find('\t'));
        const auto entry = found.functions_.find(name);
        if (entry == found.functions_.end())
            continue;
        auto &function = entry->second;
        ++function.symbols;
        std::from_chars(line.data(), line.data() + type_at - 1, function.address, 16);
        const auto open = rest.find('[');
        function.module = open == std::string_view::npos
                              ? "vmlinux"
                              : rest.substr(open + 1, rest.find(']') - open - 1);
    }
    std::erase_if(found.functions_, [](const auto &entry) { return entry.second.symbols == 0; });
    return found;
}

Result<KernelFunctions> KernelFunctions::read(const std::vector<std::string_view> &names,
                                              std::shared_ptr<const std::string> *kallsyms) {
    auto text = shared_kallsyms();
    if (!text)
        return std::move(text).failure();
    if (kallsyms != nullptr)
        *kallsyms = *text;
    return parse(**text, names);
}

void KernelFunctions::forget(const std::vector<std::string_view> &names) {
    for (const auto name : names)
        if (const auto entry = functions_.find(name); entry != functions_.end())
            functions_.erase(entry);
}

const KernelFunctions::Function *KernelFunctions::find(std::string_view name) const {
    const auto entry = functions_.find(name);
    return entry == functions_.end() ? nullptr : &entry->second;
}

bool module_is_loaded(std::string_view module) {
    return access(("/sys/module/" + std::string(module)).c_str(), F_OK) == 0;
}

bool module_has_btf(std::string_view module) {
    return access(("/sys/kernel/btf/" + std::string(module)).c_str(), R_OK) == 0;
}

} // namespace collwire::loader
