# pytrtplugins_VERSION: the numbers of the package's version, from pytrtplugins/version.py, the only place that has them.
foreach(root ${CMAKE_CURRENT_LIST_DIR}/../.. ${CMAKE_CURRENT_LIST_DIR}/..)  # a checkout; <prefix>/share/pytrtplugins
  if(EXISTS ${root}/pytrtplugins/version.py)
    file(STRINGS ${root}/pytrtplugins/version.py line REGEX "^__version__ = ")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" pytrtplugins_VERSION "${line}")
  endif()
endforeach()
if(NOT pytrtplugins_VERSION)
  message(FATAL_ERROR "pytrtplugins/version.py, which has the version, was not found above ${CMAKE_CURRENT_LIST_DIR}")
endif()
