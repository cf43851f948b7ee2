// SPDX-License-Identifier: Apache-2.0
// A process that does not answer whoever reads it, in one of two ways. It prints "ready PID
// SERVER" (SERVER: 0, or the process to kill first) and ends by itself after two minutes.
//
// silent_process mmap_lock DIRECTORY LIBRARY  needs no privilege: it holds its own mmap lock, by a
// FUSE file system in a user namespace of its own that never
//                                             answers a write. To map a file in direct I/O the
//                                             kernel writes back the file's dirty pages first.
// silent_process fuse_file DIRECTORY LIBRARY  root: maps code of a file whose file system never
// answers a second open() silent_process memory DIRECTORY LIBRARY     root: its command line lies
// in memory that userfaultfd watches, and nobody fills
//
// LIBRARY is mapped as code, too; "-": none. DIRECTORY: an empty one, to mount on.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/fuse.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { LIFE_S = 120, NO_DEVICE = 77, PAGE = 4096, FILE_BYTES = 4 << 20 };

static int device;
static pid_t main_process;

static void stop(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(NO_DEVICE);
}

static void write_text(const char *path, const char *text) {
    const int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) < 0)
        stop(path);
    close(file);
}

static void say_ready(pid_t server) {
    printf("ready %d %d\n", main_process, server);
    fflush(stdout);
}

static void reply(uint64_t unique, int error, const void *data, size_t bytes) {
    static char out[sizeof(struct fuse_out_header) + (1 << 17)];
    const struct fuse_out_header header = {(uint32_t)(sizeof(header) + bytes), error, unique};
    memcpy(out, &header, sizeof(header));
    if (bytes != 0)
        memcpy(out + sizeof(header), data, bytes);
    if (write(device, out, header.len) < 0)
        perror("FUSE reply");
}

static struct fuse_attr attributes(uint64_t node) {
    return (struct fuse_attr){.ino = node,
                              .nlink = 1,
                              .size = node == 1 ? 0 : FILE_BYTES,
                              .mode = node == 1 ? S_IFDIR | 0777 : S_IFREG | 0777};
}

// One directory with one file in it, whatever its name.
static void serve(int answers_opens) {
    static char in[1 << 18], zeroes[1 << 17];
    int n_opened = 0;
    while (read(device, in, sizeof(in)) > 0) {
        const struct fuse_in_header *header = (const void *)in;
        const void *body = header + 1;
        switch (header->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = PAGE};
            reply(header->unique, 0, &out, sizeof(out));
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out out = {.nodeid = 2, .attr_valid = 1000, .entry_valid = 1000};
            out.attr = attributes(2);
            reply(header->unique, 0, &out, sizeof(out));
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {.attr_valid = 1000};
            out.attr = attributes(header->nodeid);
            reply(header->unique, 0, &out, sizeof(out));
            break;
        }
        case FUSE_OPEN: {
            struct fuse_open_out out = {0};
            if (n_opened++ != 0) {
                if (!answers_opens)
                    continue;
                out.open_flags = FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE;
            }
            reply(header->unique, 0, &out, sizeof(out));
            break;
        }
        case FUSE_READ:
            reply(header->unique, 0, zeroes, ((const struct fuse_read_in *)body)->size);
            break;
        case FUSE_WRITE: // never answered; the other process has its mmap lock now
            say_ready(getpid());
            break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
            break;
        default:
            reply(header->unique, -ENOSYS, NULL, 0);
        }
    }
}

static pid_t mount_and_serve(const char *directory, int answers_opens) {
    char options[200];
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0)
        stop("/dev/fuse");
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0%s", device,
             answers_opens ? "" : ",allow_other");
    if (mount("silent", directory, "fuse", 0, options) != 0)
        stop("mount");
    const pid_t server = fork();
    if (server == 0) {
        alarm(LIFE_S);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(answers_opens);
        _exit(0);
    }
    close(device);
    return server;
}

static void own_user_namespace(void) {
    char map[64];
    const unsigned user = geteuid(), group = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        stop("a user namespace");
    write_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "0 %u 1", user);
    write_text("/proc/self/uid_map", map);
    snprintf(map, sizeof(map), "0 %u 1", group);
    write_text("/proc/self/gid_map", map);
}

static void hold_mmap_lock(const char *directory) {
    char path[4096];
    own_user_namespace();
    mount_and_serve(directory, 1);
    snprintf(path, sizeof(path), "%s/file", directory);
    const int cached = open(path, O_RDWR);
    char *dirty = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, cached, 0);
    if (dirty == MAP_FAILED)
        stop("mmap");
    dirty[0] = 1;
    const int direct = open(path, O_RDWR);
    mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, direct, 0);
}

static void map_silent_file(const char *directory) {
    char path[4096];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        stop("a mount namespace");
    const pid_t server = mount_and_serve(directory, 0);
    snprintf(path, sizeof(path), "%s/libnccl.so.2", directory);
    const int file = open(path, O_RDONLY);
    if (mmap(NULL, FILE_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
        stop("mmap");
    say_ready(server);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    main_process = getpid();
    alarm(LIFE_S);
    if (strcmp(argv[3], "-") != 0) {
        const int library = open(argv[3], O_RDONLY | O_CLOEXEC);
        if (mmap(NULL, 4 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, library, 0) == MAP_FAILED)
            stop(argv[3]);
    }
    if (strcmp(argv[1], "mmap_lock") == 0)
        hold_mmap_lock(argv[2]);
    else if (strcmp(argv[1], "fuse_file") == 0)
        map_silent_file(argv[2]);
    else
        return 2;
    for (;;)
        pause();
}
