# Files of the project as part of the program: none is looked for at run time.
#
# embed(TARGET FILE SYMBOL): `extern const char SYMBOL[]` in namespace outrider is the text of FILE.
# embed_list(TARGET FUNCTION GLOB): `std::span<const EmbeddedFile> FUNCTION()` gives all files that match, by name
# (base/embedded_file.h). Paths are relative to the project.
set(OUTRIDER_EMBED_FOLDER ${CMAKE_CURRENT_LIST_DIR})

# The text of a file as a raw string.
function(embedded_text file result)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  if(text MATCHES "\\)embedded\"")
    message(FATAL_ERROR "${file}: holds what ends an embedded text")
  endif()
  set(${result} "R\"embedded(${text})embedded\"" PARENT_SCOPE)
endfunction()

function(embed target file symbol)
  embedded_text(${PROJECT_SOURCE_DIR}/${file} text)
  get_filename_component(name ${file} NAME)
  configure_file(${OUTRIDER_EMBED_FOLDER}/embed.cpp.in ${name}.cpp @ONLY)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
endfunction()

function(embed_list target function glob)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${glob})
  set(entries "")
  foreach(file IN LISTS files)
    embedded_text(${file} text)
    get_filename_component(name ${file} NAME)
    string(APPEND entries "      {\"${name}\", ${text}},\n")
  endforeach()
  configure_file(${OUTRIDER_EMBED_FOLDER}/embed_list.cpp.in ${function}.cpp @ONLY)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
endfunction()
