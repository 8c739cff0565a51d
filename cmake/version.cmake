# Writes OUTPUT, a header with VERSION and the commit of SOURCE_DIR; run at every build, touches the file only if it changes.
cmake_policy(VERSION 3.25)
execute_process(
  COMMAND git -C ${SOURCE_DIR} describe --always --abbrev=12 --exclude=* --dirty
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"#pragma once
#define OUTRIDER_VERSION \"@VERSION@\"
#define OUTRIDER_COMMIT \"@commit@\"
")
