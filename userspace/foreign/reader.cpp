// SPDX-License-Identifier: Apache-2.0
#include "userspace/foreign/reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "userspace/foreign/mailbox.h"
#include "userspace/foreign/word_pieces.h"

namespace collwire::foreign {
namespace {

constexpr std::size_t FIRST_READ_BYTES = 4096;
// A counter of a dead device or a FIFO must not hang the reader.
constexpr int FILE_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// The control message of up to two descriptors.
union FdMessage {
    std::array<char, CMSG_SPACE(2 * sizeof(int))> bytes{};
    cmsghdr aligned;
};

class RequestServer {
public:
    RequestServer(int socket, std::byte *shared)
        : socket_(socket), shared_(shared),
          mailbox_(*reinterpret_cast<Mailbox *>(shared + SHARED_BYTES)) {}

    void serve() {
        ReaderRequest request{};
        std::array<int, 2> none{};
        for (;;) {
            const bool is_mail = mailbox_.next(request);
            if (!is_mail && receive_message(socket_, &request, sizeof(request), none.data(), 0) !=
                                static_cast<std::int64_t>(sizeof(request)))
                return;
            errno = 0;
            fd_ = -1;
            ReaderReply reply{answer(request), 0};
            reply.error_number = reply.result < 0 ? errno : 0;
            if (is_mail && mailbox_.answer(reply))
                continue;
            if (!is_mail)
                mailbox_.get_ready();
            const bool sent = send_message(socket_, &reply, sizeof(reply), fd_);
            if (fd_ >= 0)
                close(fd_);
            if (!sent)
                return;
        }
    }

private:
    std::int64_t answer(const ReaderRequest &request) {
        switch (request.task) {
        case ReaderTask::Memory:
            return memory(request);
        case ReaderTask::Words:
            return words(request);
        case ReaderTask::OpenFile:
            return open_file(request);
        case ReaderTask::FilePart:
            return file_part(request);
        case ReaderTask::Link:
            return readlink(path(), reinterpret_cast<char *>(shared_), SHARED_BYTES);
        case ReaderTask::OpenPath:
            fd_ = open(path(), O_PATH | O_CLOEXEC);
            return fd_ < 0 ? -1 : 0;
        case ReaderTask::Status:
            return statuses(request);
        }
        errno = EINVAL;
        return -1;
    }

    [[nodiscard]] const char *path() const { return reinterpret_cast<const char *>(shared_); }

    std::int64_t memory(const ReaderRequest &request) {
        const std::size_t length = std::min<std::size_t>(request.length, SHARED_BYTES);
        const iovec local{shared_, length};
        // An address of another process. NOLINTNEXTLINE(performance-no-int-to-ptr)
        const iovec remote{reinterpret_cast<void *>(request.address), length};
        return process_vm_readv(request.pid, &local, 1, &remote, 1, 0);
    }

    std::int64_t words(const ReaderRequest &request) {
        const std::size_t n = std::min<std::size_t>(request.count, MAX_WORDS);
        std::array<std::uint64_t, MAX_WORDS> words{};
        std::memcpy(words.data(), shared_, n * sizeof(std::uint64_t));
        const auto n_read = words_.read(request.pid, std::span{words}.first(n));
        if (!n_read)
            return -1;
        std::memcpy(shared_, words.data(), *n_read * sizeof(std::uint64_t));
        return static_cast<std::int64_t>(*n_read * sizeof(std::uint64_t));
    }

    std::int64_t open_file(const ReaderRequest &request) {
        const int file = open(path(), FILE_FLAGS);
        if (file < 0)
            return -1;
        file_.clear();
        std::size_t got = 0;
        int error_number = 0;
        if (request.address != 0 && lseek(file, static_cast<off_t>(request.address), SEEK_SET) < 0)
            error_number = errno;
        while (error_number == 0 && got < request.length) {
            if (got == file_.size())
                file_.resize(
                    std::min<std::size_t>(request.length, std::max(2 * got, FIRST_READ_BYTES)));
            const ssize_t n = read(file, file_.data() + got, file_.size() - got);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                error_number = errno;
            if (n <= 0)
                break;
            got += static_cast<std::size_t>(n);
        }
        close(file);
        file_.resize(got);
        std::memcpy(shared_, file_.data(), std::min(got, SHARED_BYTES));
        errno = error_number;
        return error_number != 0 ? -1 : static_cast<std::int64_t>(got);
    }

    std::int64_t file_part(const ReaderRequest &request) {
        const std::size_t from = std::min<std::size_t>(request.address, file_.size());
        const std::size_t n =
            std::min({file_.size() - from, static_cast<std::size_t>(request.length), SHARED_BYTES});
        std::memcpy(shared_, file_.data() + from, n);
        return static_cast<std::int64_t>(n);
    }

    std::int64_t statuses(const ReaderRequest &request) {
        std::vector<std::string> paths;
        const char *at = path();
        for (std::uint64_t i = 0; i < request.count; ++i) {
            paths.emplace_back(at);
            at += paths.back().size() + 1;
        }
        std::vector<struct statx> found(paths.size());
        for (std::size_t i = 0; i < paths.size(); ++i)
            if (statx(AT_FDCWD, paths[i].c_str(), AT_STATX_DONT_SYNC, STATX_BASIC_STATS,
                      &found[i]) != 0)
                found[i] = {}; // no stx_mask: it failed
        std::memcpy(shared_, found.data(), found.size() * sizeof(struct statx));
        return static_cast<std::int64_t>(found.size());
    }

    int socket_;
    std::byte *shared_;
    Mailbox &mailbox_;
    int fd_ = -1;
    std::string file_;
    WordPieces words_;
};

} // namespace

bool send_message(int socket, const void *message, std::size_t bytes, int fd, int fd2) {
    iovec part{const_cast<void *>(message), bytes};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    FdMessage control;
    const std::array<int, 2> fds{fd, fd2};
    const std::size_t n_fds = fd < 0 ? 0U : fd2 < 0 ? 1U : 2U;
    if (n_fds != 0) {
        header.msg_control = control.bytes.data();
        header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        cmsghdr *first = CMSG_FIRSTHDR(&header);
        first->cmsg_level = SOL_SOCKET;
        first->cmsg_type = SCM_RIGHTS;
        first->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        std::memcpy(CMSG_DATA(first), fds.data(), n_fds * sizeof(int));
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(bytes);
}

std::int64_t receive_message(int socket, void *message, std::size_t bytes, int *fds, int flags) {
    iovec part{message, bytes};
    msghdr header{};
    FdMessage control;
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    ssize_t got = 0;
    do {
        got = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    fds[0] = -1;
    fds[1] = -1;
    if (got < 0)
        return got;
    for (cmsghdr *one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one))
        if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS)
            std::memcpy(fds, CMSG_DATA(one),
                        std::min<std::size_t>(one->cmsg_len - CMSG_LEN(0), 2 * sizeof(int)));
    return got;
}

void serve_requests(int socket, std::byte *shared) {
    RequestServer{socket, shared}.serve();
}

} // namespace collwire::foreign
