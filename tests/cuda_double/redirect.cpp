// SPDX-License-Identifier: Apache-2.0
// libnccl links CUDA's runtime statically: its cuda* functions are local, and nothing can be put
// before them by symbol resolution. So their first bytes are overwritten in memory with a jump.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda_double/fakecuda/cuda_runtime.h"
#include "tests/cuda_double/gpu_direct.h"
#include "tests/cuda_double/library.h"
#include "tests/cuda_double/runtime.h"
#include "tests/cuda_double/settings.h"

#ifndef __x86_64__
#error "The jumps are x86-64 machine code. Fix: build it on x86-64, or leave this folder out"
#endif

namespace collwire::cuda_double {
namespace {

struct CalledFunction {
    std::string name;
    std::uint64_t count = 0; // the thunk increments it
    bool has_double = false;
};

// Exit handlers read both after the destructors of this file.
std::optional<Library> &adopted() {
    static auto &kept = *new std::optional<Library>;
    return kept;
}
std::deque<CalledFunction> &called_functions() {
    static auto &kept = *new std::deque<CalledFunction>;
    return kept;
}

cudaError_t refuse_call(CalledFunction *function) {
    if (function->count == 1)
        note(fmt::format("NCCL called {}, which the double lacks: cudaErrorNotSupported. If the "
                         "job fails: implement it",
                         function->name));
    return cudaErrorNotSupported;
}

// mov r11, value; jmp r11. No argument of a function is passed in r11.
constexpr std::size_t kJumpBytes = 13;

class MachineCode {
public:
    MachineCode(char *begin, std::size_t bytes) : begin_(begin), size_bytes_(bytes) {}

    static MachineCode allocate(std::size_t bytes) {
        void *memory =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            fatal(fmt::format("no memory for the jumps: {}. Fix: raise ulimit -v",
                              std::strerror(errno)));
        return {static_cast<char *>(memory), bytes};
    }

    [[nodiscard]] char *here() const { return begin_ + used_bytes_; }
    void append(std::string_view code) {
        if (code.size() > size_bytes_ - used_bytes_)
            fatal("the jumps do not fit. Fix: raise kThunkBytes");
        std::memcpy(here(), code.data(), code.size());
        used_bytes_ += code.size();
    }
    void append_address(const void *address) {
        append({reinterpret_cast<const char *>(&address), sizeof address});
    }
    void append_jump(const void *target) {
        append("\x49\xbb"); // mov r11, target
        append_address(target);
        append("\x41\xff\xe3"); // jmp r11
    }
    void make_executable() const { ::mprotect(begin_, size_bytes_, PROT_READ | PROT_EXEC); }

private:
    char *begin_ = nullptr;
    std::size_t size_bytes_ = 0;
    std::size_t used_bytes_ = 0;
};

constexpr std::size_t kThunkBytes = 48;

char *append_thunk(MachineCode &code, CalledFunction &function, void *target) {
    char *entry = code.here();
    code.append("\x49\xbb"); // mov r11, &count
    code.append_address(&function.count);
    code.append("\xf0\x49\xff\x03"); // lock inc qword [r11]
    if (target == nullptr) {
        code.append("\x48\xbf"); // mov rdi, &function
        code.append_address(&function);
        target = reinterpret_cast<void *>(&refuse_call);
    }
    code.append_jump(target);
    return entry;
}

void *handle_of_this_library() {
    Dl_info self;
    void *handle = nullptr;
    if (::dladdr(reinterpret_cast<void *>(&handle_of_this_library), &self) != 0)
        handle = ::dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr)
        fatal("the double cannot be opened by its own name. Fix: preload it by an absolute path");
    return handle;
}

void redirect(const Library &nccl) {
    std::vector<Symbol> functions;
    std::copy_if(nccl.symbols().begin(), nccl.symbols().end(), std::back_inserter(functions),
                 [](const Symbol &symbol) {
                     return symbol.is_function && symbol.name.compare(0, 4, "cuda") == 0 &&
                            symbol.size_bytes >= kJumpBytes;
                 });
    if (functions.empty())
        fatal(fmt::format("{} has no cuda* functions of its own. Fix: a build that links the CUDA "
                          "runtime statically",
                          nccl.path()));

    const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t begin = functions.front().address / page_bytes * page_bytes;
    const std::uintptr_t end = functions.back().address + kJumpBytes;
    // Symbols have addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto *text = reinterpret_cast<char *>(begin);
    if (::mprotect(text, end - begin, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        fatal(fmt::format("libnccl's code cannot be made writable: {}. Fix: allow it in this "
                          "system's security policy",
                          std::strerror(errno)));
    auto thunks = MachineCode::allocate(functions.size() * kThunkBytes);
    void *self = handle_of_this_library();
    std::size_t with_double = 0;
    for (const Symbol &function : functions) {
        void *target = ::dlsym(self, function.name.c_str());
        with_double += target != nullptr ? 1 : 0;
        CalledFunction &called =
            called_functions().emplace_back(CalledFunction{function.name, 0, target != nullptr});
        const char *thunk = append_thunk(thunks, called, target);
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        MachineCode(reinterpret_cast<char *>(function.address), kJumpBytes).append_jump(thunk);
    }
    thunks.make_executable();
    ::mprotect(text, end - begin, PROT_READ | PROT_EXEC);
    ::dlclose(self);
    if (settings().verbose)
        note(fmt::format("{} cuda* functions of {} (build-id {}) redirected, {} have a double",
                         functions.size(), nccl.path(), nccl.build_id(), with_double));
}

void adopt_mapped_library() {
    if (adopted())
        return;
    adopted() = Library::find_mapped();
    if (!adopted())
        return;
    redirect(*adopted());
    if (settings().has_gpu_direct)
        lend_device_memory_to_sockets(*adopted());
}

void write_calls() {
    const std::string &path = settings().calls_path;
    if (path.empty() || !adopted())
        return;
    std::FILE *file = std::fopen(path.c_str(), "a");
    if (file == nullptr)
        return;
    for (const CalledFunction &function : called_functions()) {
        if (function.count != 0)
            fmt::print(file, "{} {} {}{}\n", ::getpid(), function.name, function.count,
                       function.has_double ? "" : " REFUSED");
    }
    std::fclose(file);
}

} // namespace

const Library &library() {
    if (!adopted())
        fatal("no libnccl is mapped. Fix: link or dlopen libnccl.so.2 first");
    return *adopted();
}

} // namespace collwire::cuda_double

using namespace collwire::cuda_double;

// PyTorch and others load libnccl late.
extern "C" __attribute__((visibility("default"))) void *dlopen(const char *path, int flags) {
    using Open = void *(*)(const char *, int);
    static const auto real = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "dlopen"));
    static thread_local bool adopting = false;
    // Up to 2.20 NCCL looks for the driver's functions itself. Without them it does without NVLS.
    if (path != nullptr && std::strcmp(path, "libcuda.so") == 0 && settings().has_multicast)
        return open_driver();
    void *handle = real(path, flags);
    if (handle != nullptr && !adopting && path != nullptr && std::strstr(path, "nccl") != nullptr) {
        adopting = true;
        adopt_mapped_library();
        adopting = false;
    }
    return handle;
}

namespace {

struct Boot {
    Boot() {
        // NCCL is made not to ask for what has no double.
        for (const char *variable : {"NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE"})
            ::setenv(variable, "0", 0);
        if (!settings().has_multicast)
            ::setenv("NCCL_NVLS_ENABLE", "0", 0);
        adopt_mapped_library();
    }
    ~Boot() { write_calls(); }
};
const Boot boot;

} // namespace
