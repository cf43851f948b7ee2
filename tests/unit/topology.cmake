collwire_test(topology_test LABEL unit
  SOURCES topology_file_test.cpp topology_pattern_test.cpp topology_lookup_test.cpp
  LIBS collwire_topology)
