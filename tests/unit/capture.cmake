collwire_test(capture_test LABEL unit
  SOURCES capture_reader_test.cpp
  LIBS collwire_capture_format collwire_zstd)
