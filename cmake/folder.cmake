# outrider_folder(NAME [LINK targets...] [PRIVATE_LINK targets...] [SUBFOLDERS dirs...])
#
# A folder of src/ is one library, outrider_NAME. Sources are found by their names: foo.cpp is library code, foo_test.cpp
# belongs to the folder's test program NAME_tests, foo_fuzz.cpp is a fuzz target of its own (with OUTRIDER_FUZZ), which
# ctest runs for OUTRIDER_FUZZ_SECONDS, beginning with the files of tests/corpus/foo_fuzz if there are any.
# main.cpp belongs to a program that the folder declares itself.
set(OUTRIDER_FUZZ_SECONDS 20 CACHE STRING "how long ctest runs each fuzz target")

function(outrider_folder name)
  cmake_parse_arguments(folder "" "" "LINK;PRIVATE_LINK;SUBFOLDERS" ${ARGN})
  set(patterns *.cpp)
  foreach(sub IN LISTS folder_SUBFOLDERS)
    list(APPEND patterns ${sub}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${patterns})
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER sources EXCLUDE REGEX "((_test|_fuzz)\\.cpp|^main\\.cpp)$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")

  if(sources)
    add_library(outrider_${name} STATIC ${sources})
    target_include_directories(outrider_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(outrider_${name} PUBLIC ${folder_LINK} PRIVATE ${folder_PRIVATE_LINK})
  else()
    add_library(outrider_${name} INTERFACE)
    target_include_directories(outrider_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(outrider_${name} INTERFACE ${folder_LINK})
  endif()

  if(OUTRIDER_TESTS AND tests)
    add_executable(${name}_tests ${tests})
    target_link_libraries(${name}_tests PRIVATE outrider_${name} ${folder_PRIVATE_LINK} GTest::gtest_main)
    target_compile_definitions(${name}_tests PRIVATE OUTRIDER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    gtest_discover_tests(${name}_tests TEST_PREFIX ${OUTRIDER_TEST_PREFIX}${name}. DISCOVERY_TIMEOUT 60)
  endif()
  if(OUTRIDER_FUZZ)
    foreach(source IN LISTS fuzzers)
      get_filename_component(target ${source} NAME_WE)
      add_executable(${target} ${source})
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      target_link_libraries(${target} PRIVATE outrider_${name})
      if(OUTRIDER_TESTS)
        # The first folder takes what fuzzing finds; the others are only read.
        set(found ${CMAKE_CURRENT_BINARY_DIR}/${target}.corpus)
        file(MAKE_DIRECTORY ${found})
        set(corpus ${found})
        if(EXISTS ${PROJECT_SOURCE_DIR}/tests/corpus/${target})
          list(APPEND corpus ${PROJECT_SOURCE_DIR}/tests/corpus/${target})
        endif()
        add_test(NAME ${OUTRIDER_TEST_PREFIX}fuzz.${target}
                 COMMAND ${target} -max_total_time=${OUTRIDER_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048
                         -artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/ ${corpus})
      endif()
    endforeach()
  endif()
endfunction()
