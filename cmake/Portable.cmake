# The program for every Linux with glibc 2.28 or later (packaging/package.sh portable). DDPTRAIN_PORTABLE is the folder that
# packaging/portable/glibc.py has made, in which the linker finds an older C library than that of this machine. Libraries are linked
# statically; the shared ones of modules lie beside them.
set(DDPTRAIN_PORTABLE "" CACHE PATH "folder with the C library to link with, for another Linux")
if(DDPTRAIN_PORTABLE)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
  add_link_options(-L${DDPTRAIN_PORTABLE} -Wl,--enable-new-dtags)
endif()

function(make_portable)
  if(NOT DDPTRAIN_PORTABLE)
    return()
  endif()
  target_link_options(ddptrain PRIVATE -Wl,--wrap=__libc_start_main)
  set_target_properties(ddptrain PROPERTIES INSTALL_RPATH $ORIGIN/../lib/ddptrain)
  set_target_properties(ddptrain_predict PROPERTIES INSTALL_RPATH $ORIGIN/ddptrain)
  set_target_properties(ddptrain_gloo ddptrain_onednn PROPERTIES INSTALL_RPATH $ORIGIN)
  foreach(module gloo onednn) # C++'s library, and what those of Debian take of a newer glibc
    target_link_libraries(ddptrain_${module} PRIVATE ${DDPTRAIN_PORTABLE}/glibc-visible.o -Wl,--no-as-needed stdc++ gcc_s)
  endforeach()
  target_link_libraries(ddptrain_onednn PRIVATE -l:libgomp.so.1)
  # what the headers for extensions include, which a machine without its Debian package compiles
  find_path(NETTLE_INCLUDE nettle/sha2.h REQUIRED)
  install(FILES ${NETTLE_INCLUDE}/nettle/sha2.h ${NETTLE_INCLUDE}/nettle/nettle-types.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddptrain/nettle)
  install(FILES packaging/modulefile DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/ddptrain RENAME ${PROJECT_VERSION})
endfunction()
