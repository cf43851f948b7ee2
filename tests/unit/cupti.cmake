# SPDX-License-Identifier: Apache-2.0
# The guest library's parts (cupti/). The recorder and CUPTI are test doubles.
collwire_test(cupti_test LABEL unit SOURCES cupti_buffers_test.cpp cupti_clock_test.cpp cupti_control_lock_test.cpp cupti_kernels_test.cpp
              cupti_received.cpp cupti_windows_test.cpp LIBS collwire_cupti_parts)
