/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test double of the guest library libcollwire_cupti.so. It has the library's two probe sites and
 * its semaphore, but no CUDA: while a recorder raises the semaphore, it hands over made-up items,
 * and logs each as a line of JSON with the names that `collwire dump` prints.
 */
#ifndef FAKE_GPU_GUEST_H
#define FAKE_GPU_GUEST_H

#include "collwire/gpu_records.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fake_gpu_mode {
    FAKE_GPU_GOOD, /* names, kernels and windows while armed, and a state at each change */
    FAKE_GPU_BAD,  /* while armed hand-overs of forms that no recorder knows, and unreadable ones */
    FAKE_GPU_IDLE, /* states alone */
    FAKE_GPU_DEAF, /* as FAKE_GPU_GOOD, but never says that it is disarmed */
};

/*
 * Starts a thread that polls the semaphore. `log_path`: where the log goes; null: no log. Returns
 * 0, or -1 with errno.
 */
int fake_gpu_start(const char *log_path, unsigned poll_us, enum fake_gpu_mode mode);
typedef int fake_gpu_start_function(const char *, unsigned, enum fake_gpu_mode);

/* The two probe sites. */
void collwire_gpu_batch(const struct cw_gpu_batch *batch);
void collwire_gpu_arm(void);
extern unsigned short collwire_gpu_arm_semaphore;

#ifdef __cplusplus
}
#endif

#endif
