# libddptrain_predict.so: predictions in other programs (src/predict/ddptrain.h). It has the layers up to train, of which only
# the functions of the header are visible (symbols.map), so that it can be in one process with other libraries of the same kind.
file(GLOB predict_sources CONFIGURE_DEPENDS src/predict/*.c)
add_library(ddptrain_predict SHARED ${predict_sources})
target_compile_definitions(ddptrain_predict PRIVATE DDPTRAIN_VERSION="${PROJECT_VERSION}")
target_link_libraries(ddptrain_predict PRIVATE train)
target_link_options(ddptrain_predict PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/predict/symbols.map -Wl,--wrap=stderr -Wl,--wrap=stdout -Wl,--wrap=exit -Wl,--no-undefined)
# libjansson.a is not made for a shared library, in which it must not name data of another; nothing here reads stdin by it.
if(JANSSON_LIBRARY MATCHES "[.]a$")
  target_link_options(ddptrain_predict PRIVATE -Wl,--wrap=stdin -Wl,--defsym=__wrap_stdin=__wrap_stdout)
endif()
set_target_properties(ddptrain_predict PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS
                      ${CMAKE_SOURCE_DIR}/src/predict/symbols.map LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(TARGET ddptrain_onednn)
  add_dependencies(ddptrain_predict ddptrain_onednn)
endif()
file(RELATIVE_PATH UP ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX}) # so that an installed folder may be moved
string(REGEX REPLACE "/$" "" UP ${UP})
configure_file(src/predict/ddptrain_predict.pc.in ${CMAKE_BINARY_DIR}/ddptrain_predict.pc @ONLY)
install(TARGETS ddptrain_predict LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES src/predict/ddptrain.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/ddptrain_predict.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
