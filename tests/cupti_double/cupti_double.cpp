// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/cupti_double.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#ifndef COLLWIRE_CUPTI_LIBRARY_VERSION
#error "Fix: compile it with the API version that the library has by default"
#endif

namespace collwire::cupti_double {
namespace {

std::atomic<CuptiDouble *> made{nullptr};
CuptiDouble *instead = nullptr;

constexpr KernelObserver OBSERVER = {
    [](const KernelLaunch &launch, std::uint64_t started_ns, std::uint64_t ended_ns) {
        made.load()->activity.earlier(launch, started_ns, ended_ns);
    },
    [](const KernelLaunch &launch) { made.load()->activity.launched(launch); },
    [](std::uint64_t id, std::uint64_t at_ns) { made.load()->activity.started(id, at_ns); },
    [](std::uint64_t id, std::uint64_t at_ns) { made.load()->activity.ended(id, at_ns); }};

std::string file_of(const void *code) {
    Dl_info info;
    if (::dladdr(code, &info) == 0 || info.dli_fname == nullptr)
        return "";
    const std::string path = info.dli_fname;
    return path.substr(path.rfind('/') + 1);
}

void make() {
    auto *kept = new CuptiDouble(read_settings(COLLWIRE_CUPTI_LIBRARY_VERSION));
    made = kept;
    const auto observe = reinterpret_cast<ObserveFunction>(::dlsym(RTLD_DEFAULT, OBSERVE_FUNCTION));
    kept->log.write("loaded", fmt::format("\"api_version\":{},\"record_bytes\":{},\"has_cuda\":{}",
                                          kept->settings.api_version,
                                          kernel_record_bytes(kept->settings.api_version),
                                          observe != nullptr));
    if (observe == nullptr) {
        note("no double of CUDA is in this process: no kernel will be seen. Fix: preload "
             "libcuda_double.so");
        return;
    }
    kept->cuda = observe(&OBSERVER);
    if (const std::uint64_t forgotten = kept->cuda->forgotten_launches())
        kept->log.write("forgotten", fmt::format("\"launches\":{}", forgotten));
}

const InjectedFailure *injected_at(const std::vector<InjectedFailure> &failures,
                                   const std::string &function, std::uint64_t nth) {
    for (const InjectedFailure &failure : failures)
        if (failure.function == function && failure.nth == nth)
            return &failure;
    return nullptr;
}

// After the exit handlers of the client, which flushes in them. A forked child has no such log, and
// its copy of a mutex may be locked for ever.
__attribute__((destructor)) void finish_log() {
    CuptiDouble *kept = made;
    if (kept != nullptr && kept->process == getpid())
        kept->finish();
}

} // namespace

CuptiDouble &cupti_double() {
    if (instead != nullptr)
        return *instead;
    static std::once_flag once;
    std::call_once(once, make);
    return *made;
}

void use_instead(CuptiDouble *of_test) {
    instead = of_test;
}

CuptiDouble::CuptiDouble(Settings read)
    : settings(std::move(read)), log(settings.log_path), activity(settings, log),
      subscribers(settings, log), attributes(log) {}

Result CuptiDouble::call(const char *function, const void *caller, const std::string &arguments,
                         const std::function<Result()> &body) {
    std::uint64_t nth = 0;
    {
        const std::lock_guard lock(mutex_);
        nth = ++calls_[function];
    }
    Result result = Result::Success;
    const std::uint64_t begin_ns = monotonic_ns();
    const InjectedFailure *injected = injected_at(settings.failures, function, nth);
    if (const InjectedFailure *delay = injected_at(settings.delays, function, nth)) {
        log.write("delayed", fmt::format("\"function\":\"{}\"", function));
        std::this_thread::sleep_for(std::chrono::milliseconds(delay->code));
        while (!settings.delayed_until.empty() &&
               ::access(settings.delayed_until.c_str(), F_OK) != 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (const char *callback = InBufferCallback::of_this_thread()) {
        log.misuse(fmt::format("{} is called in {}, where CUPTI deadlocks", function, callback));
        result = Result::Unknown;
    } else if (injected != nullptr) {
        result = static_cast<Result>(injected->code);
    } else {
        result = body();
    }
    if (log.has_file())
        log.write("call", fmt::format("\"function\":\"{}\",\"arguments\":{{{}}},\"result\":{},"
                                      "\"injected\":{},\"begin_ns\":{},\"caller\":{}",
                                      function, arguments, static_cast<int>(result),
                                      injected != nullptr, begin_ns, quoted(file_of(caller))));
    return result;
}

Result CuptiDouble::count(const char *function) {
    std::uint64_t nth = 0;
    {
        const std::lock_guard lock(mutex_);
        nth = ++calls_[function];
    }
    const InjectedFailure *injected = injected_at(settings.failures, function, nth);
    return injected != nullptr ? static_cast<Result>(injected->code) : Result::Success;
}

bool CuptiDouble::is_cuda_initialised() const {
    return cuda != nullptr && cuda->is_initialised();
}

void CuptiDouble::finish() {
    const std::string activity_members = activity.finish();
    const auto members_of = [](const std::map<std::string, std::uint64_t> &counts) {
        std::string members;
        for (const auto &[name, number] : counts)
            members += fmt::format("{}{}:{}", members.empty() ? "" : ",", quoted(name), number);
        return members;
    };
    const std::lock_guard lock(mutex_);
    log.write("summary", fmt::format("{},\"misuses\":{},\"hazards\":{},\"calls\":{{{}}},"
                                     "\"lacking\":{{{}}}",
                                     activity_members, log.misuses(), log.hazards(),
                                     members_of(calls_), members_of(log.lacking())));
}

} // namespace collwire::cupti_double
