# outrider_golden: what tests link that read packed golden files. Those of tests/golden/NAME.tar.xz are in
# OUTRIDER_GOLDEN_DIR/NAME, unpacked into the build folder before such a test is built (scripts/golden/packing.py).
set(golden ${PROJECT_BINARY_DIR}/golden)
file(GLOB_RECURSE archives CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests/golden
     ${PROJECT_SOURCE_DIR}/tests/golden/*.tar.xz)
set(unpacked)
foreach(archive IN LISTS archives)
  string(REPLACE .tar.xz "" name ${archive})
  # The stamp is a name that no archive holds: files keep the time in the archive, which is 0.
  add_custom_command(
    OUTPUT ${golden}/${name}/unpacked
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${golden}/${name}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${golden}/${name}
    COMMAND ${CMAKE_COMMAND} -E chdir ${golden}/${name} ${CMAKE_COMMAND} -E tar xf
            ${PROJECT_SOURCE_DIR}/tests/golden/${archive}
    COMMAND ${CMAKE_COMMAND} -E touch ${golden}/${name}/unpacked
    DEPENDS ${PROJECT_SOURCE_DIR}/tests/golden/${archive})
  list(APPEND unpacked ${golden}/${name}/unpacked)
endforeach()
add_custom_target(golden_files DEPENDS ${unpacked})
add_library(outrider_golden INTERFACE)
add_dependencies(outrider_golden golden_files)
target_compile_definitions(outrider_golden INTERFACE OUTRIDER_GOLDEN_DIR="${golden}")
