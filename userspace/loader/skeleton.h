// SPDX-License-Identifier: Apache-2.0
// Owns a BPF skeleton (T is what bpftool generates) through its life: closed, open, loaded.
#pragma once

#include <cassert>
#include <cerrno>
#include <string>
#include <utility>

#include <bpf/libbpf.h>

#include "correlate/base/result.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/shared_maps.h"

namespace collwire {

template <typename T> class Skeleton {
public:
    // `name` is for messages.
    explicit Skeleton(std::string name) : name_(std::move(name)) {}
    Skeleton(Skeleton &&other) noexcept
        : name_(std::move(other.name_)), skeleton_(std::exchange(other.skeleton_, nullptr)),
          loaded_(other.loaded_) {}
    Skeleton &operator=(Skeleton &&) = delete;
    ~Skeleton() { close(); }

    // Parses the object. `btf_path`, if not empty, is the BTF that CO-RE resolves against instead
    // of the kernel's own. Between open and load, set rodata and choose programs.
    Result<void> open(const std::string &btf_path = {}) {
        assert(skeleton_ == nullptr);
        const LibbpfLog log;
        bpf_object_open_opts options = {};
        options.sz = sizeof(options);
        options.btf_custom_path = btf_path.empty() ? nullptr : btf_path.c_str();
        skeleton_ = T::open(&options);
        if (skeleton_ == nullptr)
            return bpf_error(name_ + ": open", errno, log.text());
        return {};
    }

    // Creates the object's own maps, takes over the shared ones, and has the kernel verify the
    // programs. On an error the skeleton is closed.
    Result<void> load(const SharedMaps &maps) {
        assert(skeleton_ != nullptr && !loaded_);
        if (auto given = maps.give_to(skeleton_->obj); !given) {
            close();
            return given;
        }
        const LibbpfLog log;
        if (const int failed = T::load(skeleton_); failed != 0) {
            close();
            return bpf_error(name_ + ": load", failed, log.text());
        }
        loaded_ = true;
        return {};
    }

    // Detaches and frees everything.
    void close() {
        if (skeleton_ != nullptr)
            T::destroy(skeleton_);
        skeleton_ = nullptr;
        loaded_ = false;
    }

    [[nodiscard]] bool is_open() const { return skeleton_ != nullptr; }
    [[nodiscard]] bool is_loaded() const { return loaded_; }
    [[nodiscard]] bpf_object *object() const { return skeleton_->obj; }
    T *operator->() const { return skeleton_; }

private:
    std::string name_;
    T *skeleton_ = nullptr;
    bool loaded_ = false;
};

} // namespace collwire
