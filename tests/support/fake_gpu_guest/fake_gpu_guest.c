/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_gpu_guest.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* A probe site as <sys/sdt.h> describes it, at the nop that its function starts with. */
#define NOTE(name, semaphore, arguments)                                                           \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                                                   \
    ".balign 4\n"                                                                                  \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                             \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b\n"                                                                           \
    ".8byte _.stapsdt.base\n"                                                                      \
    ".8byte " semaphore "\n"                                                                       \
    ".asciz \"collwire\"\n"                                                                        \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"" arguments "\"\n"                                                                   \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"
#define SITE(name, semaphore, arguments)                                                           \
    __asm__(".text\n"                                                                              \
            ".p2align 4\n"                                                                         \
            ".globl collwire_" name "\n"                                                           \
            ".type collwire_" name ",@function\n"                                                  \
            "collwire_" name ":\n"                                                                 \
            "990: nop\n"                                                                           \
            "ret\n"                                                                                \
            ".size collwire_" name ", . - collwire_" name "\n" NOTE(name, semaphore, arguments))

__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base, 1\n"
        ".popsection\n");
SITE("gpu_batch", "0", "8@%rdi");
SITE("gpu_arm", "collwire_gpu_arm_semaphore", "");

EXPORTED unsigned short collwire_gpu_arm_semaphore __attribute__((section(".probes"))) = 0;

static FILE *log_file;
static unsigned poll_us;
static enum fake_gpu_mode mode;
static __u64 n_kernels;

static unsigned short tracers(void) {
    return *(volatile unsigned short *)&collwire_gpu_arm_semaphore;
}

static __u64 monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (__u64)now.tv_sec * 1000000000 + (__u64)now.tv_nsec;
}

static void hand_over(enum cw_gpu_item item, const void *items, __u32 count, __u32 item_bytes) {
    const struct cw_gpu_batch batch = {
        .magic = CW_GPU_BATCH_MAGIC,
        .version = CW_GPU_BATCH_VERSION,
        .item = (__u16)item,
        .count = count,
        .item_bytes = item_bytes,
        .items = (__u64)items,
    };
    collwire_gpu_batch(&batch);
}

#define LOG(...)                                                                                   \
    do {                                                                                           \
        if (log_file)                                                                              \
            fprintf(log_file, __VA_ARGS__);                                                        \
    } while (0)

/* Every field has a value of its own. */
static void hand_over_kernels(__u32 count) {
    struct cw_gpu_kernel_item kernels[CW_GPU_BATCH_ITEMS];
    __u32 i;

    memset(kernels, 0, sizeof kernels);
    for (i = 0; i < count; ++i) {
        struct cw_gpu_kernel_item *k = &kernels[i];
        __u64 n = ++n_kernels;

        k->start_ns = monotonic_ns();
        k->end_ns = k->start_ns + n;
        k->graph_node = (__u64)1 << 40 | n;
        k->correlation = (__u32)n;
        k->graph = (__u32)n * 3;
        k->context = 1;
        k->stream = 7 + n % 5;
        k->blocks = 1 + n % 32;
        k->threads = 512;
        k->cluster = n % 4;
        k->device = n % 8;
        k->name = n % 2;
        k->flags = n % 3;
    }
    hand_over(CW_GPU_ITEM_KERNEL, kernels, count, sizeof kernels[0]);
    for (i = 0; i < count; ++i) {
        const struct cw_gpu_kernel_item *k = &kernels[i];

        LOG("{\"kind\":\"gpu_kernel\",\"start_ns\":%llu,\"end_ns\":%llu,\"graph_node\":%llu,"
            "\"correlation\":%u,\"graph\":%u,\"context\":%u,\"stream\":%u,\"blocks\":%u,"
            "\"threads\":%u,\"cluster\":%u,\"device\":%u,\"name\":%u,\"flags\":%u}\n",
            k->start_ns, k->end_ns, k->graph_node, k->correlation, k->graph, k->context, k->stream,
            k->blocks, k->threads, k->cluster, k->device, k->name, k->flags);
    }
}

static void hand_over_names(void) {
    struct cw_gpu_name_item names[2];
    __u32 i;

    memset(names, 0, sizeof names);
    for (i = 0; i < 2; ++i) {
        names[i].name = (__u16)i;
        snprintf(names[i].text, sizeof names[i].text, "_Z21fake_ncclDevKernel_%u", i);
    }
    names[1].is_truncated = 1;
    memset(names[1].text, 'x', sizeof names[1].text - 1);
    hand_over(CW_GPU_ITEM_NAME, names, 2, sizeof names[0]);
    for (i = 0; i < 2; ++i)
        LOG("{\"kind\":\"gpu_name\",\"name\":%u,\"is_truncated\":%u,\"text\":\"%s\"}\n",
            names[i].name, names[i].is_truncated, names[i].text);
}

static void hand_over_window(void) {
    struct cw_gpu_window_item w = {
        .start_ns = monotonic_ns(),
        .busy_ns = 1000 + n_kernels,
        .nccl_ns = 2000 + n_kernels,
        .overlap_ns = 500 + n_kernels,
        .kernels = 17,
        .nccl_kernels = 4,
        .window_ns = 10000000,
        .device = 3,
    };

    hand_over(CW_GPU_ITEM_WINDOW, &w, 1, sizeof w);
    LOG("{\"kind\":\"gpu_window\",\"start_ns\":%llu,\"busy_ns\":%llu,\"nccl_ns\":%llu,"
        "\"overlap_ns\":%llu,\"kernels\":%u,\"nccl_kernels\":%u,\"window_ns\":%u,\"device\":%u}\n",
        w.start_ns, w.busy_ns, w.nccl_ns, w.overlap_ns, w.kernels, w.nccl_kernels, w.window_ns,
        w.device);
}

static void hand_over_channels(void) {
    struct cw_gpu_channel_item channels[3];
    __u32 i;

    memset(channels, 0, sizeof channels);
    for (i = 0; i < 3; ++i) {
        struct cw_gpu_channel_item *c = &channels[i];

        c->start_ns = monotonic_ns();
        c->end_ns = c->start_ns + i;
        c->comm_hash = 0xfedcba9876543210;
        c->plan = n_kernels;
        c->posted_ns = c->start_ns - 1;
        c->launch_ns = c->start_ns - 2;
        c->sequence = n_kernels * 2;
        c->count = n_kernels * 3;
        c->rank = 5;
        c->channel = (__u16)i;
        c->flags = 1 << i;
        c->func = 4;
        c->n_channels = 3;
        c->api_version = 7;
        c->source = CW_GPU_SOURCE_PROFILER;
        c->peer = 6;
    }
    hand_over(CW_GPU_ITEM_CHANNEL, channels, 3, sizeof channels[0]);
    for (i = 0; i < 3; ++i) {
        const struct cw_gpu_channel_item *c = &channels[i];

        LOG("{\"kind\":\"gpu_channel\",\"start_ns\":%llu,\"end_ns\":%llu,\"comm_hash\":%llu,"
            "\"plan\":%llu,\"posted_ns\":%llu,\"launch_ns\":%llu,\"sequence\":%llu,"
            "\"count\":%llu,\"rank\":%u,\"channel\":%u,\"flags\":%u,\"func\":%u,"
            "\"n_channels\":%u,\"api_version\":%u,\"source\":%u,\"peer\":%u}\n",
            c->start_ns, c->end_ns, c->comm_hash, c->plan, c->posted_ns, c->launch_ns, c->sequence,
            c->count, c->rank, c->channel, c->flags, c->func, c->n_channels, c->api_version,
            c->source, c->peer);
    }
}

static void hand_over_state(enum cw_gpu_state state) {
    struct cw_gpu_state_item s = {
        .state = state,
        .reason = CW_GPU_REASON_NONE,
        .result = -5,
        .cupti_version = 26,
        .begin_ns = monotonic_ns(),
        .kernels = n_kernels,
        .unknown_names = 1,
        .unnamed = 2,
        .other_kernels = 3,
        .before_armed = 4,
        .dropped = 6,
        .buffers_lacking = 8,
        .memory_bytes = CW_GPU_BUFFER_BYTES,
        .clock_error_ns = 9,
        .yields = 10,
        .owner = "nobody",
        .not_summed = 12,
    };

    s.end_ns = s.begin_ns + 11;
    hand_over(CW_GPU_ITEM_STATE, &s, 1, sizeof s);
    LOG("{\"kind\":\"gpu_trace\",\"state\":%u,\"reason\":%u,\"result\":%d,\"cupti_version\":%u,"
        "\"begin_ns\":%llu,\"end_ns\":%llu,\"kernels\":%llu,\"unknown_names\":%llu,"
        "\"unnamed\":%llu,\"other_kernels\":%llu,\"before_armed\":%llu,\"dropped\":%llu,"
        "\"buffers_lacking\":%llu,\"memory_bytes\":%llu,\"clock_error_ns\":%llu,\"yields\":%llu,"
        "\"owner\":\"%s\",\"not_summed\":%llu}\n",
        s.state, s.reason, s.result, s.cupti_version, s.begin_ns, s.end_ns, s.kernels,
        s.unknown_names, s.unnamed, s.other_kernels, s.before_armed, s.dropped, s.buffers_lacking,
        s.memory_bytes, s.clock_error_ns, s.yields, s.owner, s.not_summed);
}

static void call(__u32 magic, __u16 version, __u16 item, __u32 count, __u32 bytes, __u64 items) {
    const struct cw_gpu_batch batch = {magic, version, item, count, bytes, items};

    collwire_gpu_batch(&batch);
}

/* Seven of an unknown form, of which the recorder reads nothing; then three items of no memory. */
static void hand_over_bad(void) {
    static const struct cw_gpu_kernel_item kernels[CW_GPU_BATCH_ITEMS + 1];
    const __u64 at = (__u64)kernels;
    const __u32 bytes = sizeof kernels[0];

    call(0xdead, CW_GPU_BATCH_VERSION, CW_GPU_ITEM_KERNEL, 1, bytes, at);
    call(CW_GPU_BATCH_MAGIC, CW_GPU_BATCH_VERSION + 1, CW_GPU_ITEM_KERNEL, 1, bytes, at);
    call(CW_GPU_BATCH_MAGIC, CW_GPU_BATCH_VERSION, 0, 1, bytes, at);
    call(CW_GPU_BATCH_MAGIC, CW_GPU_BATCH_VERSION, CW_GPU_ITEMS, 1, bytes, at);
    call(CW_GPU_BATCH_MAGIC, CW_GPU_BATCH_VERSION, CW_GPU_ITEM_KERNEL, CW_GPU_BATCH_ITEMS + 1,
         bytes, at);
    call(CW_GPU_BATCH_MAGIC, CW_GPU_BATCH_VERSION, CW_GPU_ITEM_KERNEL, 1, 4, at);
    collwire_gpu_batch((const struct cw_gpu_batch *)8);
    call(CW_GPU_BATCH_MAGIC, CW_GPU_BATCH_VERSION, CW_GPU_ITEM_KERNEL, 3, bytes, 8);
    LOG("{\"bad\":7,\"unreadable\":3}\n");
}

static void trace_once(void) {
    if (mode == FAKE_GPU_IDLE)
        return;
    if (mode == FAKE_GPU_BAD) {
        hand_over_bad();
        return;
    }
    hand_over_kernels(CW_GPU_BATCH_ITEMS);
    hand_over_kernels(1 + n_kernels % 5);
    hand_over_window();
    hand_over_channels();
}

static void *run(void *unused) {
    (void)unused;
    int armed = 0;
    for (;;) {
        const int wanted = tracers() > 0;

        if (wanted && !armed) {
            hand_over_state(CW_GPU_ARMED);
            if (mode == FAKE_GPU_GOOD || mode == FAKE_GPU_DEAF)
                hand_over_names();
        }
        if (wanted)
            trace_once();
        if (!wanted && armed && mode != FAKE_GPU_DEAF) {
            trace_once(); /* what was still in its buffers */
            hand_over_state(CW_GPU_DISARMED);
        }
        if (log_file && (wanted || armed))
            fflush(log_file);
        armed = wanted;
        usleep(poll_us);
    }
    return NULL;
}

EXPORTED int fake_gpu_start(const char *log_path, unsigned wanted_poll_us,
                            enum fake_gpu_mode wanted_mode) {
    pthread_t thread;

    poll_us = wanted_poll_us;
    mode = wanted_mode;
    log_file = log_path ? fopen(log_path, "w") : NULL;
    if (log_path && !log_file)
        return -1;
    errno = pthread_create(&thread, NULL, run, NULL);
    return errno == 0 ? 0 : -1;
}
