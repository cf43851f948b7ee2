collwire_test(capture_test LABEL unit
  SOURCES capture_reader_test.cpp capture_writer_test.cpp capture_rotation_test.cpp
          capture_storage_test.cpp
  LIBS collwire_capture_writer collwire_capture_format collwire_zstd)
collwire_test(capture_dump_test LABEL unit
  SOURCES capture_dump_test.cpp
  LIBS collwire_cli_common)
