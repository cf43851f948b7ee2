# SPDX-License-Identifier: Apache-2.0
collwire_test(topology_test LABEL unit
  SOURCES topology_file_test.cpp topology_ibnetdiscover_test.cpp topology_lldpctl_test.cpp
          topology_lookup_test.cpp topology_pattern_test.cpp
  LIBS collwire_topology)
