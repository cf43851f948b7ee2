// SPDX-License-Identifier: Apache-2.0
// Recoverable errors are values: Result<T> is a T or an Error whose message ends with what to do.
#pragma once

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace collwire {

// The kind of failure decides the exit status of the command line (see exit_status.h).
enum class ErrorKind {
    Failed,       // anything not named below
    Usage,        // the caller asked for something that makes no sense
    NotPermitted, // a missing privilege, or a kernel lockdown
    Unsupported,  // this kernel, driver or library cannot do it
    BadInput,     // a file is truncated, corrupt, foreign or newer than this program
};

struct Error {
    ErrorKind kind = ErrorKind::Failed;
    std::string message;

    // The same error with "what: " before it; use it when passing an error up.
    [[nodiscard]] Error in(std::string_view what) && {
        message.insert(0, ": ");
        message.insert(0, what);
        return std::move(*this);
    }
};

inline Error error(ErrorKind kind, std::string message) {
    return Error{kind, std::move(message)};
}

template <typename T> class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error failure) : state_(std::in_place_index<1>, std::move(failure)) {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    [[nodiscard]] T &value() & { return checked(); }
    [[nodiscard]] const T &value() const & { return std::get<0>(state_); }
    [[nodiscard]] T &&value() && { return std::move(checked()); }
    T *operator->() { return &checked(); }
    const T *operator->() const { return &std::get<0>(state_); }
    T &operator*() & { return checked(); }
    const T &operator*() const & { return std::get<0>(state_); }
    T &&operator*() && { return std::move(checked()); }

    [[nodiscard]] const Error &failure() const & { return std::get<1>(state_); }
    [[nodiscard]] Error &&failure() && { return std::get<1>(std::move(state_)); }

private:
    T &checked() {
        assert(ok());
        return std::get<0>(state_);
    }
    std::variant<T, Error> state_;
};

template <> class [[nodiscard]] Result<void> {
public:
    Result() = default;
    Result(Error failure) : failure_(std::move(failure)), ok_(false) {}

    [[nodiscard]] bool ok() const { return ok_; }
    explicit operator bool() const { return ok_; }
    [[nodiscard]] const Error &failure() const & { return failure_; }
    [[nodiscard]] Error &&failure() && { return std::move(failure_); }

private:
    Error failure_;
    bool ok_ = true;
};

} // namespace collwire
