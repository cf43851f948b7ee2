# SPDX-License-Identifier: Apache-2.0
collwire_test(capture_full_disk_test LABEL root
  SOURCES capture_full_disk_test.cpp
  LIBS collwire_capture_writer collwire_capture_format)
