// SPDX-License-Identifier: Apache-2.0
// Which files the probes on posts sit in, and how long.
#include <algorithm>
#include <string_view>
#include <vector>

#include "userspace/loader/take_off.h"
#include "userspace/sources/posts_sites.h"
#include "userspace/verbs/installed.h"

namespace collwire::sources {

std::size_t PostsSites::library_of(const process::MappedFile &file, const std::string &path) {
    for (std::size_t i = 0; i < libraries_.size(); ++i)
        if (is_same(i, file))
            return i;
    Library fresh;
    fresh.device = file.device();
    fresh.inode = file.inode();
    fresh.changed = file.changed();
    fresh.path = path;
    const auto free = std::ranges::find_if(libraries_, &Library::dropped);
    if (free == libraries_.end()) {
        libraries_.push_back(std::move(fresh));
        return libraries_.size() - 1;
    }
    *free = std::move(fresh);
    return static_cast<std::size_t>(free - libraries_.begin());
}

bool PostsSites::is_same(std::size_t library, const process::MappedFile &file) const {
    const Library &known = libraries_[library];
    if (known.dropped || known.device != file.device() || known.inode != file.inode())
        return false;
    const auto now = file.changed();
    return (known.changed.tv_sec == now.tv_sec && known.changed.tv_nsec == now.tv_nsec) ||
           known.file.is_open() || std::ranges::any_of(sites_, [library](const Site &site) {
               return site.library == library && site.link != nullptr;
           });
}

void PostsSites::note_user(std::size_t library, pid_t pid) {
    auto &users = libraries_[library].users;
    if (libraries_[library].installed || users.contains(pid))
        return;
    if (const auto start = process::start_ticks(pid))
        users.emplace(pid, *start);
}

// By itself, or by its probes, which count for other names of its file.
bool PostsSites::is_used(std::size_t library) const {
    return !libraries_[library].users.empty() || libraries_[library].installed ||
           std::ranges::any_of(sites_, [&](const Site &site) {
               return site.same_as == library && (!libraries_[site.library].users.empty() ||
                                                  libraries_[site.library].installed);
           });
}

bool PostsSites::is_installed(std::size_t library) const {
    return std::ranges::any_of(verbs::installed_providers(), [&](const std::string &path) {
        const auto file = process::MappedFile::open(path);
        return file && is_same(library, *file);
    });
}

// Processes that map one of these and were not met yet, such as the second of a container.
void PostsSites::find_users(const std::vector<std::size_t> &libraries) {
    const auto name_of_file = [](std::string_view path) {
        if (path.ends_with(" (deleted)"))
            path.remove_suffix(10);
        return path.substr(path.rfind('/') + 1);
    };
    for (const pid_t pid : process::rdma_processes()) {
        process::ProcessView view{pid};
        if (!view.refresh())
            continue;
        for (const process::Mapping &mapping : view.mappings()) {
            if (!mapping.executable || mapping.path.empty())
                continue;
            const auto same_name = [&](std::size_t library) {
                return name_of_file(libraries_[library].path) == name_of_file(mapping.path);
            };
            if (std::ranges::none_of(libraries, same_name))
                continue;
            const auto file = process::MappedFile::open(pid, mapping);
            for (const std::size_t library : libraries)
                if (file && is_same(library, *file))
                    note_user(library, pid);
        }
    }
}

// It had users since the last look, and so had those whose probes count for it.
void PostsSites::was_used(std::size_t library) {
    libraries_[library].unused_since_ns = 0;
    for (const Site &site : sites_)
        if (site.library == library && site.same_as)
            libraries_[*site.same_as].unused_since_ns = 0;
}

void PostsSites::drop(std::size_t library) {
    std::vector<bpf_link *> links;
    std::erase_if(sites_, [&](const Site &site) {
        if (site.library != library) {
            if (site.same_as != library)
                return false;
            libraries_[site.library].scanned = false; // looked at anew with its next user
            return true;
        }
        links.push_back(site.link);
        return true;
    });
    loader::take_off(links);
    libraries_[library] = Library{};
    libraries_[library].dropped = true;
}

void PostsSites::drop_unused(std::uint64_t now_ns) {
    if (now_ns - looked_for_unused_ns_ < spare_unused_ns_)
        return;
    looked_for_unused_ns_ = now_ns;
    for (std::size_t i = 0; i < libraries_.size(); ++i) {
        const auto is_over = [](const auto &user) {
            return process::start_ticks(user.first) != user.second;
        };
        if (std::erase_if(libraries_[i].users, is_over) != 0)
            was_used(i);
    }
    std::vector<std::size_t> unused;
    for (std::size_t i = 0; i < libraries_.size(); ++i) {
        Library &library = libraries_[i];
        if (library.dropped || is_used(i))
            library.unused_since_ns = 0;
        else if (library.unused_since_ns == 0)
            library.unused_since_ns = now_ns;
        else
            unused.push_back(i);
    }
    if (unused.empty())
        return;
    find_users(unused);
    for (const std::size_t library : unused)
        libraries_[library].installed = is_installed(library);
    for (const std::size_t library : unused)
        if (!is_used(library))
            drop(library);
}

} // namespace collwire::sources
