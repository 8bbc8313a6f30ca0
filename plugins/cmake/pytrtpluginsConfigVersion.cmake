# A version fits if it has the same first two numbers, which are those that change with the headers before 1.0, and is not older.
include(${CMAKE_CURRENT_LIST_DIR}/version.cmake)
set(PACKAGE_VERSION ${pytrtplugins_VERSION})
string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor ${PACKAGE_VERSION})
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if("${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}" VERSION_EQUAL minor
   AND PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
