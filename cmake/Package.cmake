# What `cmake --install` and `cpack -G DEB` install beside the program and its modules: the manual page and the shell
# completions that the program itself writes, documentation, configs and their datasets.
set(generated ${CMAKE_BINARY_DIR}/share)
set(generated_files ddptrain.1 ddptrain.1.gz completion.bash completion.zsh completion.fish)
list(TRANSFORM generated_files PREPEND ${generated}/)
file(MAKE_DIRECTORY ${generated})
add_custom_command(
  OUTPUT ${generated_files}
  COMMAND
    sh -ec "\"$@\" --man >ddptrain.1; gzip -9 -n -k -f ddptrain.1; for shell in bash zsh fish; do \"$@\" --completion $shell >completion.$shell; done"
    sh ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:ddptrain>
  WORKING_DIRECTORY ${generated}
  DEPENDS ddptrain
  VERBATIM)
add_custom_target(share ALL DEPENDS ${generated_files})
add_custom_target(install_files DEPENDS ddptrain ddptrain_predict share) # all that `cmake --install` needs, without the tests

set(share ${CMAKE_INSTALL_DATADIR})
set(doc ${CMAKE_INSTALL_DATADIR}/doc/ddptrain)
install(TARGETS ddptrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${generated}/ddptrain.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${generated}/completion.bash DESTINATION ${share}/bash-completion/completions RENAME ddptrain)
install(FILES ${generated}/completion.zsh DESTINATION ${share}/zsh/vendor-completions RENAME _ddptrain)
install(FILES ${generated}/completion.fish DESTINATION ${share}/fish/vendor_completions.d RENAME ddptrain.fish)
install(DIRECTORY configs datasets DESTINATION ${share}/ddptrain)
# What extensions are compiled against.
install(DIRECTORY src/base src/device src/model src/optim src/data src/dist src/train DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddptrain
  FILES_MATCHING PATTERN *.h PATTERN cuda EXCLUDE)
install(FILES README.md NOTICE DESTINATION ${doc})
install(DIRECTORY docs/ DESTINATION ${doc}/docs)
install(PROGRAMS examples/slurm/slurm_train.sbatch examples/slurm/slurm_sweep.sbatch DESTINATION ${share}/ddptrain/scripts)
# Debian's place for examples. The configs name their datasets relative to the folder above, which a link keeps.
install(CODE "
  file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${doc}\")
  file(CREATE_LINK ../../ddptrain/configs \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${doc}/examples\" SYMBOLIC)")

# ---- the Debian package: packaging/package.sh ----

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ddptrain)
set(CPACK_PACKAGE_CONTACT "ddptrain maintainers <maintainers@ddptrain.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "data-parallel training of neural networks from a YAML file")
set(CPACK_PACKAGE_DESCRIPTION "ddptrain trains neural networks from a YAML file that names the layers,
the dataset, the sampler, the optimizer and the checkpoints. It starts one
process per GPU or CPU slot, averages gradients as PyTorch's
DistributedDataParallel does, and continues an unfinished run with the
same bits.
.
It is one native program: Python is not needed at run time.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES TRUE)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS TRUE)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS TRUE) # of libddptrain_predict.so
file(WRITE ${CMAKE_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/debian/triggers)
# One package for a program, its library and the header: it is not split as those of Debian's archive.
file(WRITE ${CMAKE_BINARY_DIR}/debian/overrides
     "ddptrain: package-name-doesnt-match-sonames libddptrain-predict0
ddptrain: link-to-shared-library-in-wrong-package *libddptrain_predict.so*
# written by CPack
ddptrain: maintscript-calls-ldconfig *
")
install(FILES ${CMAKE_BINARY_DIR}/debian/overrides DESTINATION ${share}/lintian/overrides RENAME ddptrain)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "gcc, libc6-dev, nettle-dev, python3-h5py, hdf5-tools, libopenmpi3, libmpich12")
file(READ ${CMAKE_SOURCE_DIR}/LICENSE license_text)
string(REPLACE "\n" "\n " license_text "${license_text}")
string(REGEX REPLACE "\n *\n" "\n .\n" license_text "${license_text}")
string(REGEX REPLACE "[\n ]+$" "" license_text "${license_text}")
file(WRITE ${CMAKE_BINARY_DIR}/debian/copyright
     "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ddptrain
Comment: NOTICE names the works of others that the program and its datasets are made of.

Files: *
Copyright: 2025 the ddptrain authors
License: Expat
 ${license_text}
")
# Debian wants a changelog in its own form; CHANGELOG.md says what changed.
file(
  WRITE ${CMAKE_BINARY_DIR}/debian/changelog
  "ddptrain (${PROJECT_VERSION}) unstable; urgency=medium

  * Version ${PROJECT_VERSION}; see /usr/share/doc/ddptrain/CHANGELOG.md.gz.

 -- ${CPACK_PACKAGE_CONTACT}  Sun, 01 Jun 2025 12:00:00 +0000
")
find_program(GZIP_PROGRAM gzip REQUIRED)
execute_process(COMMAND ${GZIP_PROGRAM} -9 -n -k -f changelog WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/debian)
execute_process(COMMAND ${GZIP_PROGRAM} -9 -n -c ${CMAKE_SOURCE_DIR}/CHANGELOG.md
                OUTPUT_FILE ${CMAKE_BINARY_DIR}/debian/CHANGELOG.md.gz)
install(FILES ${CMAKE_BINARY_DIR}/debian/copyright ${CMAKE_BINARY_DIR}/debian/changelog.gz
              ${CMAKE_BINARY_DIR}/debian/CHANGELOG.md.gz DESTINATION ${doc})
include(CPack)
