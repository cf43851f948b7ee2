# SPDX-License-Identifier: Apache-2.0
# What is installed besides the binary, the guest library and the pages, and the packages that `cpack` makes of it all: a .deb for /usr, and a tarball
# whose tree is a prefix, for /usr/local. Components: binary, guest, layouts, man, completion, systemd, doc, deploy, licence.
set(doc_folder share/doc/collwire)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/nccl-layouts/ DESTINATION share/collwire/nccl-layouts COMPONENT layouts FILES_MATCHING PATTERN "*.json")
# The links between the documents keep working.
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${doc_folder} COMPONENT doc)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${doc_folder} COMPONENT doc PATTERN ".*" EXCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/cupti/README.md DESTINATION ${doc_folder}/cupti COMPONENT doc)
install(FILES ${CMAKE_SOURCE_DIR}/nccl-layouts/README.md DESTINATION ${doc_folder}/nccl-layouts COMPONENT doc)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/deploy DESTINATION ${doc_folder} COMPONENT deploy USE_SOURCE_PERMISSIONS)
install(PROGRAMS ${CMAKE_SOURCE_DIR}/deploy/collwire-trim DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT systemd)
install(PROGRAMS ${CMAKE_SOURCE_DIR}/deploy/check-machine DESTINATION share/collwire COMPONENT layouts)
install(FILES ${CMAKE_SOURCE_DIR}/deploy/systemd/collwire-record.service DESTINATION lib/systemd/system COMPONENT systemd)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/packaging/copyright DESTINATION ${doc_folder} COMPONENT licence)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/LICENSES DESTINATION ${doc_folder} COMPONENT licence)
# The notices of the libraries inside the binary, as the build machine's packages have them.
foreach(package libbpf-dev libelf-dev libdw-dev zlib1g-dev libzstd-dev libnl-3-dev libcapstone-dev liblzma-dev libbz2-dev libcli11-dev
        libsqlite3-dev         nlohmann-json3-dev libfmt-dev)
  if(EXISTS /usr/share/doc/${package}/copyright)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION ${doc_folder}/third-party RENAME ${package} COMPONENT licence)
  elseif(COLLWIRE_STATIC)
    message(STATUS "/usr/share/doc/${package}/copyright not found: packages made here lack the notice of a library that is linked statically")
  endif()
endforeach()

set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_PACKAGE_NAME collwire)
set(CPACK_PACKAGE_VENDOR "The collwire authors")
set(CPACK_PACKAGE_CONTACT "The collwire authors <collwire@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "shows which NCCL operation sent which bytes over which link")
set(CPACK_PACKAGE_DESCRIPTION "collwire records, with BPF, the bytes of each RDMA queue pair and NCCL socket of a node and the NCCL operations that
they belong to, and reports them for all nodes together. Neither NCCL nor the job is changed.
The service collwire-record is installed, and neither enabled nor started.")
set(CPACK_PACKAGE_FILE_NAME collwire-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_MONOLITHIC_INSTALL ON)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/PackagePrefix.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE amd64)
# Not found by a tool, which would ask for the glibc of the build machine: test self_contained holds the binary to 2.34.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34)")
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/debian/postinst ${CMAKE_SOURCE_DIR}/packaging/debian/prerm
    ${CMAKE_SOURCE_DIR}/packaging/debian/postrm)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
