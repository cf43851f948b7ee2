/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_gpu_process LIBRARY LOG POLL_US MODE: a process with the test double of the guest library.
 * Prints "ready"; then for each line of standard input the semaphore's value. Ends with its input.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_gpu_guest.h"

int main(int argc, char **argv) {
    char line[64];
    void *library = argc == 5 ? dlopen(argv[1], RTLD_NOW) : NULL;
    fake_gpu_start_function *start;
    unsigned short *semaphore;

    if (!library) {
        fprintf(stderr, "fake_gpu_process LIBRARY LOG POLL_US MODE: %s\n",
                argc == 5 ? dlerror() : "arguments");
        return 2;
    }
    *(void **)&start = dlsym(library, "fake_gpu_start");
    semaphore = dlsym(library, "collwire_gpu_arm_semaphore");
    if (!start || !semaphore || start(argv[2], (unsigned)atoi(argv[3]), atoi(argv[4])))
        return 1;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("%u\n", *(volatile unsigned short *)semaphore);
        fflush(stdout);
    }
    return 0;
}
