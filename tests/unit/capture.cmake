# SPDX-License-Identifier: Apache-2.0
collwire_test(capture_test LABEL unit
  SOURCES capture_reader_test.cpp capture_writer_test.cpp capture_rotation_test.cpp
          capture_storage_test.cpp
  LIBS collwire_capture_writer collwire_capture_format collwire_zstd)
collwire_test(capture_dump_test LABEL unit
  SOURCES capture_dump_test.cpp
  LIBS collwire_cli_common)
collwire_test(capture_document_test LABEL unit
  SOURCES capture_document_test.cpp
  LIBS collwire_capture_format)
if(TARGET capture_document_test)
  target_compile_definitions(capture_document_test PRIVATE COLLWIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endif()
collwire_test(job_sizes_test LABEL unit SOURCES job_sizes_test.cpp LIBS collwire_trace_gen_lib)
collwire_test(trace_gen_test LABEL unit
  SOURCES trace_gen_test.cpp
  LIBS collwire_trace_gen_lib collwire_cli_common collwire_model)
